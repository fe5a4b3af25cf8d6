//! `suspend`, `resume`, `terminate`, `rewind`, `restart`, and `purge` of one instance.

use serde_json::json;

use crate::testbed::{CliTestbed, assert_contains};

#[test]
fn control_operations_reach_the_run_with_their_reason() {
    let world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    assert_eq!(world.abide(&["suspend", "g-1", "--reason", "a look"]).expect_ok(), "suspended g-1\n");
    assert_contains(&world.abide(&["show", "g-1"]).expect_ok(), &["g-1/1 Suspended\n"]);
    assert_eq!(world.abide(&["resume", "g-1"]).expect_ok(), "resumed g-1\n");
    assert_eq!(world.abide(&["terminate", "g-1", "--reason", "enough"]).expect_ok(), "terminated g-1\n");
    assert_contains(
        &world.abide(&["history", "g-1"]).expect_ok(),
        &["suspended: a look\n", "terminated: enough\n"],
    );
    assert_contains(&world.abide(&["show", "g-1"]).expect_ok(), &["g-1/1 Terminated", "  ○ Begin\n"]);
    assert_eq!(world.abide(&["restart", "g-1", "--json"]).json()[0]["executionId"], "g-1/2");
    assert_eq!(world.abide(&["terminate", "g-1", "--json"]).json()[0]["instanceId"], "g-1");
    assert_eq!(world.abide(&["restart", "g-1"]).expect_ok(), "restarted as g-1/3\n");
    assert_eq!(world.abide(&["terminate", "g-1", "--recursive"]).expect_ok(), "terminated g-1\n");
    assert_contains(
        &world.abide(&["history", "g-1", "--run", "1"]).expect_ok(),
        &["suspended: a look\n", "terminated: enough\n"],
    );
    assert_contains(&world.abide(&["history", "g-1", "--run", "4"]).expect_code(1).err, &["g-1", "no run 4"]);
    assert_contains(&world.abide(&["history", "g-1", "--run", "0"]).expect_code(2).err, &["--run"]);
}

#[test]
fn a_rewound_run_continues_where_it_failed() {
    let world = CliTestbed::new();
    let fails = json!({"type": "task", "activity": "core.fail", "input": {"code": "Broken", "message": "no", "retryable": false}, "next": "End"});
    world.publish("fails", "1.0.0", &json!({"Begin": fails, "End": {"type": "succeed"}}));
    world.abide(&["start", "fails", "--id", "f-1", "--wait", "30s"]).expect_code(1);
    assert_eq!(
        world.abide(&["rewind", "f-1"]).expect_ok(),
        "rewound f-1\n  Begin: a new idempotency key, because its outcome is known: it failed\n"
    );
    assert_contains(&world.abide(&["history", "f-1"]).expect_ok(), &["rewound (redrive 1)"]);
}

#[test]
fn a_failed_compensation_is_shown_as_failed_and_can_be_run_again() {
    let world = CliTestbed::new();
    let fails = json!({"code": "Broken", "message": "no", "retryable": false});
    let states = json!({
        "Begin": {"type": "task", "activity": "core.echo", "next": "Bad", "compensateWith": {"activity": "core.fail", "input": fails}},
        "Bad": {"type": "task", "activity": "core.fail", "input": fails, "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "next": "Failed"},
        "Failed": {"type": "fail", "error": "Undone"}, "End": {"type": "succeed"}});
    world.publish("undone", "1.0.0", &states);
    world.abide(&["start", "undone", "--id", "u-1", "--wait", "30s"]).expect_code(1);
    let shown = world.abide(&["show", "u-1"]).expect_ok();
    assert_contains(
        &shown,
        &["✗ Undo", "0 compensated, 1 failed", "✗ 0 done, 1 failed, 0 pending", "abide compensate u-1"],
    );
    let counts = world.abide(&["show", "u-1", "--json"]).json().remove(0)["compensation"].clone();
    assert_eq!(counts, json!({"done": 0, "failed": 1, "pending": 0}));
    assert_eq!(world.abide(&["compensate", "u-1"]).expect_ok(), "compensating again: u-1\n");
    assert_contains(
        &world.abide(&["history", "u-1"]).expect_ok(),
        &["failed compensations run again, steps: 1"],
    );
    let fine = json!({"Begin": {"type": "succeed"}});
    world.publish("fine", "1.0.0", &fine);
    world.abide(&["start", "fine", "--id", "f-2", "--wait", "30s"]).expect_ok();
    let refused = world.abide(&["compensate", "f-2"]).expect_code(1);
    assert_contains(&refused.err, &["no failed compensation step can be run again"]);
}

#[test]
fn nothing_is_purged_without_confirmation() {
    let world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "echo", "--id", "e-1", "--wait", "30s"]).expect_ok();
    let unconfirmed = world.abide(&["purge", "e-1"]).expect_code(2);
    assert_contains(&unconfirmed.err, &["permanently deletes e-1", "pass --yes"]);
    world.abide(&["show", "e-1"]).expect_ok();
    assert_eq!(world.abide(&["purge", "e-1", "--yes"]).expect_ok(), "purged e-1\n");
    assert_contains(&world.abide(&["show", "e-1"]).expect_code(1).err, &["e-1"]);
    assert_contains(&world.abide(&["purge"]).expect_code(2).err, &["give an instance id"]);
    assert_contains(
        &world.abide(&["purge", "e-1", "--status", "Failed"]).expect_code(2).err,
        &["cannot be used with"],
    );
}
