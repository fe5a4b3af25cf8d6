//! `start`, `show`, `history`, `raise`: a run from its start to its end.

use serde_json::json;

use crate::testbed::{CliTestbed, assert_contains};

#[test]
fn a_start_names_the_show_command_and_a_wait_prints_the_outcome() {
    let world = CliTestbed::new();
    world.publish_all();
    let output = world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    assert_eq!(output, "started g-1; `abide show g-1` shows its progress\n");
    let output =
        world.abide(&["start", "echo", "--id", "e-1", "--input", "{\"a\": 1}", "--wait", "30s"]).expect_ok();
    assert_eq!(output, "e-1 Completed with {\"a\":1}\n");
    let output = world.abide(&["start", "undone", "--id", "u-1", "--wait", "PT30S"]).expect_code(1);
    assert_eq!(output.out, "u-1 Failed: Lost: failed as asked, 1 of 1\n");

    let run = &world.abide(&["start", "echo", "--id", "e-2", "--input", "@-", "--wait", "30s", "--json"]);
    assert_eq!(run.code, 2, "empty standard input is not JSON: {run:?}");
    let read = world
        .abide_with_stdin(&["start", "echo", "--input", "@-", "--wait", "30s", "--json"], "[1, 2]")
        .json();
    assert_eq!((&read[0]["status"], &read[0]["output"]), (&json!("Completed"), &json!([1, 2])));
    let started = world.abide(&["start", "gate", "--id", "g-2", "--json"]).json();
    assert_eq!((&started[0]["executionId"], started.len()), (&json!("g-2/1"), 1));
    let running = world.abide(&["start", "gate", "--id", "g-3", "--wait", "1ms", "--json"]).expect_code(4);
    assert_contains(&running.out, &["\"instanceId\":\"g-3\""]);
}

#[test]
fn a_key_makes_two_starts_one() {
    let world = CliTestbed::new();
    world.publish_all();
    let start = || world.abide(&["start", "gate", "--key", "k-1", "--json"]).json()[0]["executionId"].clone();
    assert_eq!(start(), start());
}

#[test]
fn the_path_of_a_waiting_run_ends_with_what_it_waits_for() {
    let world = CliTestbed::new();
    world.publish_all();
    world
        .abide(&["start", "gate", "--id", "g-1", "--entity-id", "device 7", "--correlation-id", "c-9"])
        .expect_ok();
    let output = world.abide(&["show", "g-1"]).expect_ok();
    assert_contains(
        &output,
        &[
            "g-1/1 Running\n",
            "  workflow     gate 1.0.0\n",
            "  correlation  c-9\n",
            "  entity       device 7\n",
            "  ● Begin  for ",
            "waits for the event \"Go\"\n",
            "  ✓ done   ✗ failed   ● now   ↩ compensated   ○ abandoned\n",
        ],
    );
    assert!(!output.contains('\u{1b}'), "no colours without a terminal");
    let bare = world.abide(&["show", "g-1", "--no-path"]).expect_ok();
    assert!(!bare.contains("● Begin"), "{bare}");

    assert_eq!(world.abide(&["raise", "g-1", "Go", "{\"x\": 1}"]).expect_ok(), "raised Go in g-1\n");
    let output = world.abide(&["show", "g-1"]).expect_ok();
    assert_contains(&output, &["g-1/1 Completed with {\"x\":1}", "  ✓ Begin  ", "  ✓ End    "]);
    let json = world.abide(&["show", "g-1", "--json"]).json();
    assert_eq!((&json[0]["status"], &json[0]["output"]), (&json!("Completed"), &json!({"x": 1})));
}

#[test]
fn the_path_of_a_compensated_run_shows_failed_and_compensated_steps() {
    let world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "undone", "--id", "u-1", "--wait", "30s"]).expect_code(1);
    let output = world.abide(&["show", "u-1"]).expect_ok();
    assert_contains(
        &output,
        &[
            "  ↩ Begin",
            "core.echo",
            "  ✗ Break",
            "Broken: failed as asked, 1 of 1",
            "  ✓ Undo ",
            "1 compensated",
            "  ✗ Lost ",
            "Lost: failed as asked, 1 of 1",
        ],
    );
    let order: Vec<usize> =
        ["↩ Begin", "✗ Break", "✓ Undo", "✗ Lost"].map(|line| output.find(line).unwrap()).to_vec();
    assert!(order.is_sorted(), "{output}");
}

#[test]
fn a_history_is_a_timeline_as_text_and_one_event_per_line_as_json() {
    let world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "undone", "--id", "u-1", "--wait", "30s"]).expect_code(1);
    let output = world.abide(&["history", "u-1"]).expect_ok();
    assert_contains(
        &output,
        &[
            "  00:00:00.000  started undone 1.0.0 with {}\n",
            "    #1 core.echo ← {\"a\":1}\n",
            "attempt 0 failed: Broken: failed as asked, 1 of 1, permanently\n",
            ", undoes Begin\n",
            "compensation ends: 1 compensated, 0 failed\n",
            "failed with Lost: failed as asked, 1 of 1\n",
        ],
    );
    let absolute = world.abide(&["history", "u-1", "--absolute"]).expect_ok();
    assert!(absolute.starts_with("20") && absolute.contains("Z  started undone 1.0.0"), "{absolute}");
    let events = world.abide(&["history", "u-1", "--json"]).json();
    assert!(
        events.iter().enumerate().all(|(index, event)| event["sequence"] == json!(index + 1)),
        "{events:?}"
    );
    assert_eq!(events[1]["eventType"], "ExecutionStarted");
    assert_eq!(world.abide(&["history", "u-1", "--json", "--limit", "3"]).json().len(), 3);
}

#[test]
fn branches_are_shown_below_the_state_that_started_them() {
    let world = CliTestbed::new();
    let one = |next: &str| json!({"type": "task", "activity": "core.echo", "input": 1, "next": next});
    let end = json!({"type": "succeed"});
    let wait = json!({"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D", "next": "End"});
    world.publish(
        "fan",
        "1.0.0",
        &json!({
            "Begin": {"type": "parallel", "next": "Done", "branches": [
                {"startAt": "Left", "states": {"Left": one("End"), "End": end}},
                {"startAt": "Right", "states": {"Right": wait, "End": end}},
            ]},
            "Done": {"type": "succeed"},
        }),
    );
    world.abide(&["start", "fan", "--id", "f-1"]).expect_ok();
    let output = loop {
        let output = world.abide(&["show", "f-1"]).expect_ok();
        if output.contains("branch 0: succeeded") {
            break output;
        }
    };
    assert_contains(
        &output,
        &[
            "  ● Begin  for ",
            "1 of 2 branches have ended\n",
            "    branch 0: succeeded\n      ✓ Left ",
            "      ✓ End ",
            "    branch 1: running\n      ● Right  for ",
        ],
    );
    let history = world.abide(&["history", "f-1"]).expect_ok();
    assert_contains(
        &history,
        &["0: Begin/branches/0/Left\n", "1: Begin/branches/1/Right\n", "0: branch succeeded\n"],
    );
}
