//! `start`, `show`, `history`, `raise`: a run from its beginning to its end.

use serde_json::json;

use crate::world::{World, has};

#[test]
fn a_start_says_how_to_look_and_a_wait_says_how_it_ended() {
    let world = World::new();
    world.publish_all();
    let told = world.abide(&["start", "gate", "--id", "g-1"]).ok();
    assert_eq!(told, "started g-1; `abide show g-1` tells how it goes\n");
    let told = world.abide(&["start", "echo", "--id", "e-1", "--input", "{\"a\": 1}", "--wait", "30s"]).ok();
    assert_eq!(told, "e-1 Completed with {\"a\":1}\n");
    let told = world.abide(&["start", "undone", "--id", "u-1", "--wait", "PT30S"]).with(1);
    assert_eq!(told.out, "u-1 Failed: Lost: failed as asked, 1 of 1\n");

    let run = &world.abide(&["start", "echo", "--id", "e-2", "--input", "@-", "--wait", "30s", "--json"]);
    assert_eq!(run.code, 2, "nothing to read is not JSON: {run:?}");
    let read =
        world.abide_reading(&["start", "echo", "--input", "@-", "--wait", "30s", "--json"], "[1, 2]").json();
    assert_eq!((&read[0]["status"], &read[0]["output"]), (&json!("Completed"), &json!([1, 2])));
    let begun = world.abide(&["start", "gate", "--id", "g-2", "--json"]).json();
    assert_eq!((&begun[0]["executionId"], begun.len()), (&json!("g-2/1"), 1));
    let still = world.abide(&["start", "gate", "--id", "g-3", "--wait", "1ms", "--json"]).with(4);
    has(&still.out, &["\"instanceId\":\"g-3\""]);
}

#[test]
fn a_key_makes_two_starts_one() {
    let world = World::new();
    world.publish_all();
    let start = || world.abide(&["start", "gate", "--key", "k-1", "--json"]).json()[0]["executionId"].clone();
    assert_eq!(start(), start());
}

#[test]
fn the_path_of_a_waiting_run_ends_with_what_it_waits_for() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1", "--entity-id", "device 7", "--correlation-id", "c-9"]).ok();
    let told = world.abide(&["show", "g-1"]).ok();
    has(
        &told,
        &[
            "g-1/1 Running\n",
            "  workflow     gate 1.0.0\n",
            "  correlation  c-9\n",
            "  entity       device 7\n",
            "  ● Begin  for ",
            "waits for the event \"Go\"\n",
            "  ✓ done   ✗ failed   ● now   ↩ undone   ○ left behind\n",
        ],
    );
    assert!(!told.contains('\u{1b}'), "no colours off a terminal");
    let bare = world.abide(&["show", "g-1", "--no-path"]).ok();
    assert!(!bare.contains("● Begin"), "{bare}");

    assert_eq!(world.abide(&["raise", "g-1", "Go", "{\"x\": 1}"]).ok(), "raised Go to g-1\n");
    let told = world.abide(&["show", "g-1"]).ok();
    has(&told, &["g-1/1 Completed with {\"x\":1}", "  ✓ Begin  ", "  ✓ End    "]);
    let json = world.abide(&["show", "g-1", "--json"]).json();
    assert_eq!((&json[0]["status"], &json[0]["output"]), (&json!("Completed"), &json!({"x": 1})));
}

#[test]
fn the_path_of_a_compensated_run_shows_what_failed_and_what_was_undone() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "undone", "--id", "u-1", "--wait", "30s"]).with(1);
    let told = world.abide(&["show", "u-1"]).ok();
    has(
        &told,
        &[
            "  ↩ Begin",
            "core.echo",
            "  ✗ Break",
            "Broken: failed as asked, 1 of 1",
            "  ✓ Undo ",
            "1 undone",
            "  ✗ Lost ",
            "Lost: failed as asked, 1 of 1",
        ],
    );
    let order: Vec<usize> =
        ["↩ Begin", "✗ Break", "✓ Undo", "✗ Lost"].map(|line| told.find(line).unwrap()).to_vec();
    assert!(order.is_sorted(), "{told}");
}

#[test]
fn a_history_is_a_story_for_people_and_a_line_per_event_for_machines() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "undone", "--id", "u-1", "--wait", "30s"]).with(1);
    let told = world.abide(&["history", "u-1"]).ok();
    has(
        &told,
        &[
            "  00:00:00.000  started undone 1.0.0 with {}\n",
            "    #1 core.echo ← {\"a\":1}\n",
            "attempt 1 failed: Broken: failed as asked, 1 of 1, for good\n",
            "compensation ends: 1 undone, 0 failed\n",
            "failed with Lost: failed as asked, 1 of 1\n",
        ],
    );
    let events = world.abide(&["history", "u-1", "--json"]).json();
    assert!(
        events.iter().enumerate().all(|(place, event)| event["sequence"] == json!(place + 1)),
        "{events:?}"
    );
    assert_eq!(events[1]["eventType"], "ExecutionStarted");
    assert_eq!(world.abide(&["history", "u-1", "--json", "--limit", "3"]).json().len(), 3);
}

#[test]
fn branches_are_drawn_below_the_state_that_made_them() {
    let world = World::new();
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
    world.abide(&["start", "fan", "--id", "f-1"]).ok();
    let told = loop {
        let told = world.abide(&["show", "f-1"]).ok();
        if told.contains("branch 0: succeeded") {
            break told;
        }
    };
    has(
        &told,
        &[
            "  ● Begin  for ",
            "1 of 2 branches have ended\n",
            "    branch 0: succeeded\n      ✓ Left ",
            "      ✓ End ",
            "    branch 1: goes on\n      ● Right  for ",
        ],
    );
}
