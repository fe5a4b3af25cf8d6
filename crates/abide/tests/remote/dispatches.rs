//! `dispatches`: calls of activities as text and as JSON.

use serde_json::{Value, json};

use crate::testbed::{CliTestbed, assert_contains};

fn publish(world: &CliTestbed) {
    let task = |activity: &str, input: Value| {
        let retry = json!({"maxAttempts": 3, "initialInterval": "PT0.001S"});
        json!({
            "Begin": {"type": "task", "activity": activity, "input": input, "retryPolicy": retry, "next": "End"},
            "End": {"type": "succeed"},
        })
    };
    world.publish("slow", "1.0.0", &task("core.delay", json!({"duration": "PT1H"})));
    world.publish("shaky", "1.0.0", &task("core.fail", json!({"times": 1, "code": "Shaky"})));
    world.publish("broken", "1.0.0", &task("core.fail", json!({"code": "Broken", "retryable": false})));
}

#[test]
fn calls_are_listed_by_filter_and_shown_with_their_attempts() {
    let world = CliTestbed::new();
    assert_eq!(world.abide(&["dispatches", "list"]).expect_ok(), "no calls\n");
    publish(&world);
    world.abide(&["start", "shaky", "--id", "r-1", "--wait", "30s"]).expect_ok();
    world.abide(&["start", "broken", "--id", "b-1", "--wait", "30s"]).expect_code(1);
    world.abide(&["start", "slow", "--id", "s-1"]).expect_ok();
    let open = world.list_until(&["dispatches", "list", "--state", "SENT", "--json"], 1);
    assert_eq!((&open[0]["executionId"], &open[0]["activity"]), (&json!("s-1/1"), &json!("core.delay")));

    let output = world.abide(&["dispatches", "list"]).expect_ok();
    let rows: Vec<Vec<&str>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["RUN", "STEP", "ACTIVITY", "STATE", "ATTEMPT", "AGE", "KEY", "ERROR"]);
    assert_eq!(rows[1][..5], ["s-1/1", "Begin", "core.delay", "SENT", "0"]);

    let failed = world.list_until(&["dispatches", "list", "--state", "FAILED_FINAL", "--json"], 1);
    assert_eq!(failed[0]["terminalReason"], "non_retryable");
    let key = failed[0]["idempotencyKey"].as_str().unwrap();
    let shown = world.abide(&["dispatches", "show", "b-1/1", key]).expect_ok();
    assert_contains(
        &shown,
        &[
            "core.fail FAILED_FINAL",
            "terminal reason non_retryable",
            "attempt 0 failed: Broken: failed as asked",
            "attempt 0 failed, 20",
        ],
    );

    let settled = world.abide(&["dispatches", "list", "--run", "r-1", "--json"]).json();
    let key = settled[0]["idempotencyKey"].as_str().unwrap();
    let shown = world.abide(&["dispatches", "show", "r-1/1", key]).expect_ok();
    assert_contains(
        &shown,
        &[
            "core.fail ACKED",
            "scheduled\n",
            "attempt 0 failed: Shaky: ",
            "; next attempt at 20",
            "completed\n",
            "attempt 0 failed, 20",
            "attempt 1 succeeded, 20",
        ],
    );
    let json = world.abide(&["dispatches", "show", "r-1/1", key, "--json"]).json();
    assert_eq!(json[0]["attempts"].as_array().unwrap().len(), 3);

    for args in
        [["--older-than", "1h"], ["--activity", "core.echo"], ["--run", "s-1/2"], ["--state", "PENDING"]]
    {
        assert_eq!(
            world.abide(&["dispatches", "list", args[0], args[1]]).expect_ok(),
            "no calls\n",
            "{args:?}"
        );
    }
    assert_contains(
        &world.abide(&["dispatches", "list", "--state", "Lost"]).expect_code(1).err,
        &["check state"],
    );
    assert_contains(
        &world.abide(&["dispatches", "show", "r-1", key]).expect_code(2).err,
        &["is not a run such as order-7/1"],
    );
    assert_contains(
        &world.abide(&["dispatches", "show", "r-1/1", "x"]).expect_code(1).err,
        &["check idempotencyKey"],
    );
    let missing = world.abide(&["dispatches", "show", "r-2/1", key]).expect_code(1).err;
    assert_contains(&missing, &["call not found", "`abide dispatches list` lists the calls"]);
}
