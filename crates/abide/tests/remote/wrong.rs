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
