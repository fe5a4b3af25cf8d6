//! `dispatches`: calls as people and machines read them.

use serde_json::{Value, json};

use crate::world::{World, has};

fn publish(world: &World) {
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
fn calls_are_listed_by_filter_and_shown_with_their_deliveries() {
    let world = World::new();
    assert_eq!(world.abide(&["dispatches", "list"]).ok(), "no calls\n");
    publish(&world);
    world.abide(&["start", "shaky", "--id", "r-1", "--wait", "30s"]).ok();
    world.abide(&["start", "broken", "--id", "b-1", "--wait", "30s"]).with(1);
    world.abide(&["start", "slow", "--id", "s-1"]).ok();
    let open = world.list_until(&["dispatches", "list", "--state", "SENT", "--json"], 1);
    assert_eq!((&open[0]["executionId"], &open[0]["activity"]), (&json!("s-1/1"), &json!("core.delay")));

    let told = world.abide(&["dispatches", "list"]).ok();
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["RUN", "STEP", "ACTIVITY", "STATE", "ATTEMPT", "AGE", "KEY", "ERROR"]);
    assert_eq!(rows[1][..5], ["s-1/1", "Begin", "core.delay", "SENT", "0"]);

    let given_up = world.list_until(&["dispatches", "list", "--state", "FAILED_FINAL", "--json"], 1);
    assert_eq!(given_up[0]["terminalReason"], "non_retryable");
    let key = given_up[0]["idempotencyKey"].as_str().unwrap();
    let shown = world.abide(&["dispatches", "show", "b-1/1", key]).ok();
    has(
        &shown,
        &[
            "core.fail FAILED_FINAL",
            "given up       non_retryable",
            "attempt 0 failed: Broken: failed as asked",
            "delivery 0 failed, 20",
        ],
    );

    let settled = world.abide(&["dispatches", "list", "--run", "r-1", "--json"]).json();
    let key = settled[0]["idempotencyKey"].as_str().unwrap();
    let shown = world.abide(&["dispatches", "show", "r-1/1", key]).ok();
    has(
        &shown,
        &[
            "core.fail ACKED",
            "asked for\n",
            "attempt 0 failed: Shaky: ",
            "; again at 20",
            "answered\n",
            "delivery 0 failed, 20",
            "delivery 1 succeeded, 20",
        ],
    );
    let json = world.abide(&["dispatches", "show", "r-1/1", key, "--json"]).json();
    assert_eq!(json[0]["attempts"].as_array().unwrap().len(), 3);

    for args in
        [["--older-than", "1h"], ["--activity", "core.echo"], ["--run", "s-1/2"], ["--state", "PENDING"]]
    {
        assert_eq!(world.abide(&["dispatches", "list", args[0], args[1]]).ok(), "no calls\n", "{args:?}");
    }
    has(&world.abide(&["dispatches", "list", "--state", "Lost"]).with(1).err, &["look at state"]);
    has(&world.abide(&["dispatches", "show", "r-1", key]).with(2).err, &["is not a run such as order-7/1"]);
    has(&world.abide(&["dispatches", "show", "r-1/1", "x"]).with(1).err, &["look at idempotencyKey"]);
    let missing = world.abide(&["dispatches", "show", "r-2/1", key]).with(1).err;
    has(&missing, &["there is no such call", "`abide dispatches list` shows which calls there are"]);
}
