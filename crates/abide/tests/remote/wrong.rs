//! What is wrong is told with what to do, and by its exit code.

use serde_json::{Value, json};

use crate::world::{World, abide, has, told};

#[test]
fn a_server_that_is_not_there_is_told_with_how_to_start_one() {
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for args in
        [&["list"][..], &["show", "x"], &["start", "w"], &["stats"], &["entity", "list"], &["dlq", "list"]]
    {
        let command = told(abide(args).env("ABIDE_URL", &url).output().unwrap()).with(3);
        has(
            &command.err,
            &[&format!("abide: {url} cannot be reached: "), "do: start a server with `abide serve`"],
        );
        assert_eq!(command.out, "");
    }
    let machine = told(abide(&["stats", "--json", "--url", &url]).output().unwrap()).with(3);
    let error: Value = serde_json::from_str(&machine.err).unwrap();
    assert_eq!(error["error"]["code"], "UNREACHABLE");
    let told = told(abide(&["stats", "--url", "localhost:7070"]).output().unwrap()).with(2);
    has(&told.err, &["is not the URL of a server", "http://127.0.0.1:7070"]);
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for_for_ever() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let told = told(abide(&["stats", "--url", &url, "--timeout", "50ms"]).output().unwrap()).with(3);
    has(&told.err, &["did not answer within 0.05 seconds", "look before you ask again", "--timeout"]);
}

#[test]
fn what_the_server_refuses_is_told_in_its_words() {
    let world = World::new();
    let told = world.abide(&["start", "nothing"]).with(1);
    has(&told.err, &["abide: ", "nothing", "`abide workflows list`"]);
    let told = world.abide(&["show", "nobody", "--json"]).with(1);
    let error: Value = serde_json::from_str(&told.err).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["status"]),
        (&json!("RESOURCE_NOT_FOUND"), &json!(404))
    );
    assert!(error["error"]["correlationId"].is_string());
    has(&world.abide(&["start", "w", "--input", "{"]).with(2).err, &["--input: line 1"]);
    has(&world.abide(&["start", "w", "--wait", "soon"]).with(2).err, &["is not a duration such as"]);
    has(&world.abide(&["list", "--created-from", "yesterday"]).with(2).err, &["how long ago"]);
}

#[test]
fn what_is_not_there_is_told_with_where_to_look_for_it() {
    let world = World::new();
    let all = ["list", "workflows list", "entity list", "route list", "dlq list"];
    for (args, fitting) in [
        (&["show", "x"][..], "list"),
        (&["history", "x"], "list"),
        (&["raise", "x", "Go"], "list"),
        (&["terminate", "x"], "list"),
        (&["restart", "x"], "list"),
        (&["purge", "x", "--yes"], "list"),
        (&["start", "x"], "workflows list"),
        (&["workflows", "show", "x"], "workflows list"),
        (&["workflows", "default", "x", "1.0.0"], "workflows list"),
        (&["route", "put", "x", "--entity-type", "t", "--workflow", "x"], "workflows list"),
        (&["route", "delete", "x"], "route list"),
        (&["entity", "show", "device", "x"], "entity list"),
        (&["entity", "events", "device", "x"], "entity list"),
        (&["dlq", "show", "ingress", "x"], "dlq list"),
    ] {
        let told = world.abide(args).with(1);
        for command in all {
            let named = told.err.contains(&format!("do: `abide {command}` shows which"));
            assert_eq!(named, command == fitting, "{args:?}: {}", told.err);
        }
    }
}

#[test]
fn a_place_in_an_argument_is_told_once() {
    let world = World::new();
    for args in [
        &["start", "w", "--input", "{bad"][..],
        &["raise", "x", "Go", "{bad"],
        &["entity", "call", "device", "x", "RecordEvent", "{bad"],
        &["send", "--type", "t", "--data", "{bad"],
    ] {
        let told = world.abide(args).with(2);
        assert_eq!(told.err.matches("line 1, column 2").count(), 1, "{}", told.err);
    }
    let told = world.abide(&["publish", "none.json"]).with(2);
    assert_eq!(told.err.matches("No such file").count(), 1, "{}", told.err);
}

#[test]
fn a_folder_in_use_is_named_once_and_told_with_what_to_do() {
    let world = World::new();
    let told = world.abide(&["fsck"]).with(2);
    has(&told.err, &["abide: ", " is in use by another process", "do: stop the server first"]);
    assert_eq!(told.err.matches(&world.data()).count(), 1, "{}", told.err);
    let told = world.abide(&["fsck", "--data", &world.path("none")]).with(2);
    has(&told.err, &["abide.json cannot be read or written: No such file", "do: is it the folder that"]);
}

#[test]
fn a_demo_that_cannot_begin_is_told_with_its_cause() {
    let (folder, taken) = (tempfile::tempdir().unwrap(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let (data, listen) = (folder.path().display().to_string(), taken.local_addr().unwrap().to_string());
    let args = ["demo", "--data", &data, "--listen", &listen, "--seconds", "1"];
    let told = told(abide(&args).output().unwrap()).with(2);
    has(&told.err, &[&format!("abide demo: {listen} cannot be listened on: Address already in use")]);
}

#[test]
fn colours_come_only_when_they_are_wanted() {
    let world = World::new();
    world.publish_all();
    let args = ["start", "echo", "--wait", "30s"];
    let plain = world.command(&args).output().unwrap();
    let forced = world.command(&args).env("CLICOLOR_FORCE", "1").output().unwrap();
    let refused = world.command(&args).env("NO_COLOR", "1").output().unwrap();
    let coloured = |output: &std::process::Output| output.stdout.contains(&0x1b);
    assert_eq!([coloured(&plain), coloured(&forced), coloured(&refused)], [false, true, false]);
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = told(abide(&["completions", shell]).output().unwrap()).ok();
        has(&script, &["terminate", "workflows", "correlation-id"]);
    }
    told(abide(&["completions", "ed"]).output().unwrap()).with(2);
}
