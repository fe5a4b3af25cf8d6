//! Errors are reported with a hint and the right exit code.

use serde_json::{Value, json};

use crate::testbed::{CliTestbed, abide, assert_contains, into_command_output};

#[test]
fn an_unreachable_server_is_reported_with_how_to_start_one() {
    // No process listens on a port that was just released.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for args in
        [&["list"][..], &["show", "x"], &["start", "w"], &["stats"], &["entity", "list"], &["dlq", "list"]]
    {
        let command =
            into_command_output(abide(args).env("ABIDE_URL", &url).output().unwrap()).expect_code(3);
        assert_contains(
            &command.err,
            &[&format!("abide: cannot connect to {url}: "), "hint: start a server with `abide serve`"],
        );
        assert_eq!(command.out, "");
    }
    let json =
        into_command_output(abide(&["stats", "--json", "--url", &url]).output().unwrap()).expect_code(3);
    let error: Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(error["error"]["code"], "UNREACHABLE");
    let output =
        into_command_output(abide(&["stats", "--url", "localhost:7070"]).output().unwrap()).expect_code(2);
    assert_contains(&output.err, &["is not the URL of a server", "http://127.0.0.1:7070"]);
}

#[test]
fn a_silent_server_causes_a_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let output = into_command_output(abide(&["stats", "--url", &url, "--timeout", "50ms"]).output().unwrap())
        .expect_code(3);
    assert_contains(
        &output.err,
        &["did not respond within 0.05 seconds", "check before retrying", "--timeout"],
    );
}

#[test]
fn an_error_response_is_printed_with_the_servers_message() {
    let world = CliTestbed::new();
    let output = world.abide(&["start", "nothing"]).expect_code(1);
    assert_contains(&output.err, &["abide: ", "nothing", "`abide workflows list`"]);
    let output = world.abide(&["show", "missing", "--json"]).expect_code(1);
    let error: Value = serde_json::from_str(&output.err).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["status"]),
        (&json!("RESOURCE_NOT_FOUND"), &json!(404))
    );
    assert!(error["error"]["correlationId"].is_string());
    assert_contains(&world.abide(&["start", "w", "--input", "{"]).expect_code(2).err, &["--input: line 1"]);
    assert_contains(
        &world.abide(&["start", "w", "--wait", "soon"]).expect_code(2).err,
        &["is not a duration such as"],
    );
    assert_contains(
        &world.abide(&["list", "--created-from", "yesterday"]).expect_code(2).err,
        &["is neither a timestamp such as"],
    );
}

#[test]
fn a_missing_resource_is_reported_with_the_command_that_lists_its_kind() {
    let world = CliTestbed::new();
    let all = ["list", "workflows list", "entity list", "route list", "dlq list"];
    for (args, expected) in [
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
        let output = world.abide(args).expect_code(1);
        for command in all {
            let named = output.err.contains(&format!("hint: `abide {command}` lists the"));
            assert_eq!(named, command == expected, "{args:?}: {}", output.err);
        }
    }
}

#[test]
fn the_position_in_an_invalid_argument_is_printed_once() {
    let world = CliTestbed::new();
    for args in [
        &["start", "w", "--input", "{bad"][..],
        &["raise", "x", "Go", "{bad"],
        &["entity", "call", "device", "x", "RecordEvent", "{bad"],
        &["send", "--type", "t", "--data", "{bad"],
    ] {
        let output = world.abide(args).expect_code(2);
        assert_eq!(output.err.matches("line 1, column 2").count(), 1, "{}", output.err);
    }
    let output = world.abide(&["publish", "none.json"]).expect_code(2);
    assert_eq!(output.err.matches("No such file").count(), 1, "{}", output.err);
}

#[test]
fn a_folder_in_use_is_named_once_and_reported_with_a_hint() {
    let world = CliTestbed::new();
    let output = world.abide(&["fsck"]).expect_code(2);
    assert_contains(
        &output.err,
        &["abide: ", " is in use by another process", "hint: stop the server first"],
    );
    assert_eq!(output.err.matches(&world.data()).count(), 1, "{}", output.err);
    let output = world.abide(&["fsck", "--data", &world.path("none")]).expect_code(2);
    assert_contains(
        &output.err,
        &["abide.json cannot be read or written: No such file", "hint: give a folder that"],
    );
}

#[test]
fn a_demo_that_cannot_start_reports_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let data = folder.path().display().to_string();
    let listen = taken.local_addr().unwrap().to_string();
    let args = ["demo", "--data", &data, "--listen", &listen, "--seconds", "1"];
    let output = into_command_output(abide(&args).output().unwrap()).expect_code(2);
    assert_contains(
        &output.err,
        &[&format!("abide demo: cannot listen on {listen}: Address already in use")],
    );
}

#[test]
fn colours_are_printed_only_if_they_are_wanted() {
    let world = CliTestbed::new();
    world.publish_all();
    let args = ["start", "echo", "--wait", "30s"];
    let plain = world.command(&args).output().unwrap();
    let forced = world.command(&args).env("CLICOLOR_FORCE", "1").output().unwrap();
    let disabled = world.command(&args).env("NO_COLOR", "1").output().unwrap();
    let coloured = |output: &std::process::Output| output.stdout.contains(&0x1b);
    assert_eq!([coloured(&plain), coloured(&forced), coloured(&disabled)], [false, true, false]);
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = into_command_output(abide(&["completions", shell]).output().unwrap()).expect_ok();
        assert_contains(&script, &["terminate", "workflows", "correlation-id"]);
    }
    into_command_output(abide(&["completions", "ed"]).output().unwrap()).expect_code(2);
}
