//! Trees of runs that start each other: how deep they may become.

use abide_workflow::Outcome;
use serde_json::{Value, json};

use crate::harness::ShardHarness;

/// A workflow that starts itself and completes with its child's output, or with the error that its child raised.
fn starts_itself() -> Value {
    json!({
        "Start": {"type": "workflow", "workflow": "itself", "output": "$.state.below", "next": "End", "onError": "Caught"},
        "End": {"type": "succeed", "output": "$.state.below"},
        "Caught": {"type": "succeed", "output": "$.error"},
    })
}

fn output(harness: &ShardHarness, id: &str) -> Value {
    match harness.run(id).unwrap().instance.outcome() {
        Some(Outcome::Completed(output)) => (**output).clone(),
        other => panic!("{id} has not completed: {other:?}"),
    }
}

#[test]
fn a_workflow_that_starts_itself_ends_at_the_limit_with_an_error_that_it_can_catch() {
    let mut harness = ShardHarness::with(|config| config.run_limits.depth_max = 3);
    harness.publish("itself", &starts_itself());
    harness.start("itself", "a");
    let error = output(&harness, "a");
    assert_eq!((&error["code"], &error["state"]), (&json!("ChildTooDeep"), &json!("Start")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("run a~1.1~1.1~1.1/1") && message.contains("root a/1"), "{message}");
    assert!(message.contains("the limit is 3"), "{message}");
    assert_eq!(harness.status("a~1.1~1.1~1.1"), "Completed");
    assert_eq!(harness.status("a~1.1~1.1~1.1~1.1"), "gone");
    harness.check();
}

#[test]
fn a_limit_of_zero_allows_no_children() {
    let mut harness = ShardHarness::with(|config| config.run_limits.depth_max = 0);
    harness.publish("itself", &starts_itself());
    harness.start("itself", "a");
    assert_eq!(output(&harness, "a")["code"], "ChildTooDeep");
    assert_eq!(harness.status("a~1.1"), "gone");
}

#[test]
fn a_run_keeps_its_depth_over_crashes_and_into_its_next_run() {
    let mut harness = ShardHarness::with(|config| config.run_limits.depth_max = 2);
    let gate = |event: &str, next: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": event, "next": next});
    harness.publish(
        "loop",
        &json!({
            "Start": gate("go", "Which"),
            "Which": {"type": "choice", "choices": [{"when": {"path": "$.input.again", "op": "eq", "value": true}, "next": "Again"}], "default": "Below"},
            "Again": {"type": "continueAsNew", "input": {"again": false}},
            "Below": {"type": "workflow", "workflow": "itself", "output": "$.state.below", "next": "End"},
            "End": {"type": "succeed", "output": "$.state.below"},
        }),
    );
    harness.publish("itself", &starts_itself());
    harness.publish(
        "main",
        &json!({
            "Start": {"type": "workflow", "workflow": "loop", "input": {"again": true}, "output": "$.state.x", "next": "End"},
            "End": {"type": "succeed", "output": "$.state.x"},
        }),
    );
    harness.start("main", "a");
    harness.crash();
    harness.raise("a~1.1", "go");
    harness.crash();
    harness.raise("a~1.1", "go");
    let error = output(&harness, "a");
    assert!(error["message"].as_str().unwrap().contains("run a~1.1~2.1/1"), "depth 2 has no child: {error}");
    let lineage = harness.run("a~1.1").unwrap().row.lineage.unwrap();
    assert_eq!((lineage.root_id.as_str(), lineage.root_run.0, lineage.depth), ("a", 1, 1));
}
