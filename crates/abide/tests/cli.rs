//! The commands that need no server: exit codes, output and invalid input.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn abide(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_abide")).args(args).current_dir(root()).output().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// Writes a file for a test and returns its path.
fn file(name: &str, text: &[u8]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const SPECIFIED: &str = "crates/workflow/tests/spec/onboarding-as-specified.json";
const EXAMPLE: &str = "examples/device-onboarding/workflow.json";
const ACTIVITIES: &str = "examples/device-onboarding/activities.json";

#[test]
fn validate_prints_the_place_the_message_and_the_consequences_of_a_finding() {
    let output = abide(&["validate", SPECIFIED]);
    assert_eq!(code(&output), 1);
    let text = out(&output);
    for part in [
        "error[dangling-target]: there is no state \"HandleTimeout\" to go to",
        ":42:7 /states/WaitForExternalProcess/timeoutNext",
        "42 | \"timeoutNext\": \"HandleTimeout\",",
        "/states/ProcessEventBatch/next",
        "also: so state \"Success\" (/states/Success) cannot be reached",
        "rejected, 2 errors, 0 warnings",
        "note[activities-unchecked]",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours without a terminal");
}

#[test]
fn validate_prints_one_line_for_a_valid_definition() {
    let output = abide(&["validate", EXAMPLE, "--activities", ACTIVITIES]);
    assert_eq!(
        (code(&output), out(&output).as_str()),
        (0, "examples/device-onboarding/workflow.json: valid, 0 errors, 0 warnings\n")
    );
}

#[test]
fn validate_prints_json() {
    let output = abide(&["validate", SPECIFIED, EXAMPLE, "--json"]);
    assert_eq!(code(&output), 1);
    let reports: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((&reports[0]["valid"], &reports[1]["valid"]), (&false.into(), &true.into()));
    let finding = &reports[0]["findings"][0];
    assert_eq!(finding["code"], "dangling-target");
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["pointer"], "/states/ProcessEventBatch/next");
    assert_eq!(finding["line"], 62);
    assert!(finding["hint"].is_string() && finding["consequences"].is_array());
}

#[test]
fn unreadable_files_exit_with_two_and_the_others_are_still_checked() {
    let output = abide(&["validate", "no-such-file.json", EXAMPLE]);
    assert_eq!(code(&output), 2);
    assert!(out(&output).contains("valid, 0 errors"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file.json"));
    let binary = file("binary.json", &[0xff, 0xfe, 0x00]);
    assert_eq!(code(&abide(&["validate", &binary])), 2);
    assert_eq!(code(&abide(&["validate", EXAMPLE, "--activities", "no-such-file.json"])), 2);
    assert_eq!(code(&abide(&["validate"])), 2);
    assert_eq!(code(&abide(&["validate", "."])), 2, "a folder");
}

#[test]
fn malformed_json_is_reported_with_its_line() {
    let path = file("syntax.json", b"{\n  \"a\": 1\n  \"b\": 2\n}");
    let output = abide(&["validate", &path]);
    assert!(
        out(&output).contains("syntax.json:3:3") && out(&output).contains("3 | \"b\": 2"),
        "{}",
        out(&output)
    );
}

#[test]
fn strict_rejects_warnings_and_a_byte_order_mark_is_ignored() {
    let text = r#"{"$schema": "workflow-schema-v1.json", "id": "w", "version": "1.0.0", "startAt": "E",
        "configuration": {"escalation": {"recover": "E"}}, "states": {"E": {"type": "succeed"}}}"#;
    let path = file("warns.json", format!("\u{feff}{text}").as_bytes());
    assert_eq!(code(&abide(&["validate", &path])), 0);
    let strict = abide(&["validate", &path, "--strict"]);
    assert_eq!(code(&strict), 1);
    assert!(out(&strict).contains("rejected, 0 errors, 1 warning"));
}

#[test]
fn nothing_in_a_file_reaches_the_terminal_as_a_control_sequence() {
    let path = file("escape.json", br#"{"$schema": "workflow-schema-v1.json", "id": "w", "version": "1.0.0", "startAt": "\u001b[31m", "states": {"\u001b[31m": {"type": "succeed"}}}"#);
    let output = Command::new(env!("CARGO_BIN_EXE_abide"))
        .args(["validate", &path])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    let text = out(&output);
    assert!(text.contains("\\u001b[31m") && !text.contains("/\u{1b}"), "{text:?}");
    // The drawing has no styles of its own.
    for text in [br#""\u001b]0;x\u0007\u009b2J\u202e""#.as_slice(), br#""\u001b[31m\u2066""#] {
        let name = str::from_utf8(text).unwrap();
        let definition = format!(
            r#"{{"$schema": "workflow-schema-v1.json", "id": "w", "version": "1.0.0", "startAt": {name}, "states": {{{name}: {{"type": "fail", "error": {name}}}}}}}"#
        );
        let path = file("drawn.json", definition.as_bytes());
        for command in ["graph", "validate"] {
            let output = Command::new(env!("CARGO_BIN_EXE_abide"))
                .args([command, &path])
                .env("CLICOLOR_FORCE", "1")
                .output()
                .unwrap();
            assert_no_foreign_controls(&output, command != "graph");
        }
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_abide"))
        .args(["validate", "/\u{1b}[2J\u{9b}31m\u{202e}"])
        .env("CLICOLOR_FORCE", "1")
        .output()
        .unwrap();
    assert_no_foreign_controls(&missing, false);
}

/// Neither output may contain what a terminal obeys, except line breaks and, if allowed, colours and weights.
fn assert_no_foreign_controls(output: &Output, styles: bool) {
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8(text.clone()).unwrap();
        let mut bare = text.clone();
        for style in ["0", "1", "2", "31", "32", "33", "36"].iter().filter(|_| styles) {
            bare = bare.replace(&format!("\u{1b}[{style}m"), "");
        }
        let is_obeyed = |c: char| c != '\n' && abide_json::is_obeyed(c);
        assert!(!bare.contains(is_obeyed), "{text:?}");
    }
}

#[test]
fn nothing_in_a_response_reaches_the_terminal_as_a_control_sequence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let text = r"\u001b]0;x\u0007\u001b[2J\u009b31m\u202e\n";
        let error = format!(
            r#"{{"error": {{"code": "CONFLICT", "message": "{text}", "target": "{text}", "correlationId": "{text}", "details": [{{"code": "X", "message": "{text}", "target": "{text}", "hint": "{text}"}}]}}, "code": "CONFLICT", "message": "{text}", "data": "{text}"}}"#
        );
        let raw = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}".to_owned();
        let bodies =
            [("409 Conflict", error.clone()), ("200 OK", error), ("200 OK", raw.clone()), ("500 X", raw)];
        for (stream, (status, body)) in listener.incoming().zip(bodies.iter().cycle()) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    for command in [
        &["list"][..],
        &["show", "a"],
        &["history", "a"],
        &["stats"],
        &["stuck"],
        &["workflows", "list"],
        &["dispatches", "list"],
        &["dlq", "list"],
        &["terminate", "a"],
        &["conform"],
    ] {
        // Each answer once, with and without JSON.
        for json in [false, true] {
            for _ in 0..if command == ["conform"] { 1 } else { 4 } {
                let mut run = Command::new(env!("CARGO_BIN_EXE_abide"));
                run.args(command).env("CLICOLOR_FORCE", "1").env("ABIDE_URL", &url);
                if command == ["conform"] {
                    run.args([url.as_str(), "--within", "PT2S"]);
                }
                if json {
                    run.arg("--json");
                }
                assert_no_foreign_controls(&run.output().unwrap(), true);
            }
        }
    }
}

#[test]
fn a_full_standard_output_ends_the_command_with_a_message() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_abide"))
        .args(["graph", EXAMPLE])
        .current_dir(root())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("abide: standard output:"), "{output:?}");
}

#[test]
fn run_names_unused_mocks_and_events_that_were_not_consumed() {
    let mock = file("unused.json", br#"{"activities": {"Typo": {"result": 1}}}"#);
    let events = file("untaken.json", br#"[{"at": "PT1S", "event": "Typo"}]"#);
    let path = file("pause.json", br#"{"$schema": "workflow-schema-v1.json", "id": "w", "version": "1.0.0", "startAt": "P", "states": {
        "P": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "E"}, "E": {"type": "succeed"}}}"#);
    let text = out(&abide(&["run", &path, "--mock", &mock, "--events", &events]));
    assert!(text.contains("unused mocks: Typo") && text.contains("events not consumed: typo"), "{text}");
}

#[test]
fn a_text_that_is_no_definition_is_rejected_with_a_finding() {
    for (name, text) in [
        ("empty.json", &b""[..]),
        ("half.json", b"{\"a\": "),
        ("array.json", b"[]"),
        ("null.json", b"null"),
        ("twice.json", b"{\"a\":1,\"a\":2}"),
    ] {
        let path = file(name, text);
        let output = abide(&["validate", &path]);
        assert_eq!(code(&output), 1, "{name}");
        assert!(out(&output).contains("error["), "{name}");
    }
    let deep = file("deep.json", "[".repeat(100_000).as_bytes());
    assert_eq!(code(&abide(&["validate", &deep])), 1);
}

#[test]
fn graph_prints_mermaid_for_valid_and_invalid_definitions() {
    let output = abide(&["graph", EXAMPLE]);
    assert_eq!(code(&output), 0);
    assert!(out(&output).starts_with("flowchart TD\n"));
    let broken = abide(&["graph", SPECIFIED]);
    assert_eq!(code(&broken), 0);
    assert!(out(&broken).contains("HandleTimeout is missing"));
    assert_eq!(code(&abide(&["graph", "no-such-file.json"])), 2);
    assert_eq!(code(&abide(&["graph", &file("no-graph.json", b"{")])), 1);
}

/// Rehearses a case of the onboarding example.
fn play(case: &str, more: &[&str]) -> Output {
    let folder = format!("examples/device-onboarding/cases/{case}");
    let (input, mock, events) =
        (format!("@{folder}/input.json"), format!("{folder}/mock.json"), format!("{folder}/events.json"));
    let mut args = vec!["run", EXAMPLE, "--activities", ACTIVITIES, "--input", &input, "--mock", &mock];
    if root().join(&events).exists() {
        args.extend(["--events", &events]);
    }
    args.extend(more);
    abide(&args)
}

#[test]
fn run_reports_success_and_failure_by_its_exit_code() {
    assert_eq!(code(&play("success", &[])), 0);
    for failing in ["timeout", "failure-with-compensation"] {
        let output = play(failing, &[]);
        assert_eq!(code(&output), 1, "{failing}");
        assert!(out(&output).contains("Failed with"), "{failing}");
    }
    let json: Value = serde_json::from_str(&out(&play("success", &["--json"]))).unwrap();
    assert_eq!(json["status"], "Completed");
    assert!(json["history"].as_array().unwrap().iter().any(|event| event["eventType"] == "TaskCompleted"));
}

#[test]
fn run_prints_what_the_run_still_waits_for() {
    let path = file("waits.json", br#"{"$schema": "workflow-schema-v1.json", "id": "waits", "version": "1.0.0", "startAt": "Gate", "states": {
        "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "End"}, "End": {"type": "succeed"}}}"#);
    let output = abide(&["run", &path]);
    assert_eq!(code(&output), 1);
    assert!(out(&output).contains("Gate waits for the event \"Go\""), "{}", out(&output));
}

#[test]
fn run_reports_why_a_definition_cannot_be_rehearsed() {
    let error_of = |args: &[&str]| {
        let output = abide(args);
        assert_eq!(code(&output), 2, "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error_of(&["run", SPECIFIED]).contains("has 2 errors"));
    assert!(
        out(&abide(&["run", SPECIFIED])).contains("error[dangling-target]"),
        "the findings are printed as well"
    );
    assert!(error_of(&["run", EXAMPLE, "--input", "{"]).contains("--input"));
    assert!(error_of(&["run", EXAMPLE, "--input", "{}"]).contains("entityId"), "the input schema is checked");
    assert!(error_of(&["run", EXAMPLE, "--at", "noon"]).contains("--at"));
    let mock = file("mock.json", br#"{"activities": {"A": {"result": 1, "error": {"code": "X"}}}}"#);
    assert!(error_of(&["run", EXAMPLE, "--mock", &mock]).contains("exactly one of"));
    let events = file("events.json", br#"[{"at": "PT1H"}]"#);
    assert!(
        error_of(&[
            "run",
            EXAMPLE,
            "--input",
            r#"{"entityId":"d","entityType":"device"}"#,
            "--events",
            &events
        ])
        .contains("/0: expected exactly one of")
    );
}

#[test]
fn conform_has_different_exit_codes_for_broken_rules_wrong_arguments_and_an_unreachable_service() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // A server without activities, for as long as this test runs.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let mut head = [0; 4_096];
            let _ = Read::read(&mut stream, &mut head);
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nwelcome";
            let _ = Write::write_all(&mut stream, response);
        }
    });
    let broken = abide(&["conform", &url]);
    assert_eq!(code(&broken), 1);
    let text = out(&broken);
    for part in [
        "FAIL     serves ",
        "expected: op run: {\"runs\":1}",
        "53 rules over rest: 0 pass, 1 FAIL, 52 skipped",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let line: Value = serde_json::from_str(out(&abide(&["conform", &url, "--json"])).trim()).unwrap();
    assert_eq!((line["check"].as_str(), line["verdict"].as_str()), (Some("serves"), Some("FAIL")));
    let unreachable = abide(&["conform", "http://127.0.0.1:1", "--transport", "grpc"]);
    assert_eq!((code(&unreachable), out(&unreachable).as_str()), (3, ""));
    for wrong in [
        &["conform", "nowhere"][..],
        &["conform", &url, "--timeout", "1s"],
        &["conform", &url, "--bearer-env", "ABIDE_TEST_NO_SUCH_VARIABLE"],
        &["conform", &url, "--transport", "pigeon"],
    ] {
        assert_eq!(code(&abide(wrong)), 2, "{wrong:?}");
    }
}
