//! Trees of runs that start each other: how deep they may become, and how an order ends all of a tree.

use abide_runtime::fault_injection::{Poison, PoisonEffect};
use abide_runtime::{RequestError, ShardReply};
use abide_workflow::{Message, MessageRefusal, Outcome, Status};
use serde_json::{Value, json};

use crate::harness::{ShardHarness, failure, instance_id};

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

/// A workflow that starts itself as deep as allowed and abandons its child after an hour; the last one waits for ever.
fn abandons_itself() -> Value {
    json!({
        "Start": {"type": "workflow", "workflow": "itself", "onParentClose": "abandon", "timeout": "PT1H",
                  "timeoutNext": "Gone", "onError": "Never", "next": "Gone"},
        "Never": {"type": "wait", "waitType": "externalEvent", "eventName": "never", "next": "Gone"},
        "Gone": {"type": "succeed"},
    })
}

fn order() -> Message {
    Message::TerminateTree { reason: "enough".to_owned() }
}

const CHAIN: [&str; 4] = ["a", "a~1.1", "a~1.1~1.1", "a~1.1~1.1~1.1"];

/// Runs that start each other in a chain, the last of which waits for ever.
fn chain() -> ShardHarness {
    let mut harness = ShardHarness::with(|config| config.run_limits.depth_max = 3);
    harness.publish("itself", &abandons_itself());
    harness.start("itself", "a");
    assert_eq!(CHAIN.map(|id| harness.status(id)), ["Running"; 4]);
    harness
}

#[test]
fn an_order_for_a_tree_ends_abandoned_descendants_too() {
    let mut harness = chain();
    assert!(matches!(harness.send_message("a", order()), ShardReply::Accepted));
    assert_eq!(CHAIN.map(|id| harness.status(id)), ["Terminated"; 4]);
    for id in CHAIN {
        let run = harness.run(id).unwrap();
        assert_eq!(run.instance.outcome(), Some(&Outcome::Terminated("enough".to_owned())), "{id}");
        assert!(run.bookkeeping.children.is_empty(), "{id}");
    }
    harness.check();
    let mut alone = chain();
    alone.send_message("a", Message::Terminate { reason: "enough".to_owned() });
    assert_eq!(CHAIN.map(|id| alone.status(id)), ["Terminated", "Running", "Running", "Running"]);
}

#[test]
fn an_order_for_a_run_that_has_ended_ends_the_children_that_are_left() {
    let mut harness = chain();
    harness.advance_clock(3_600_001);
    let ended = ["Completed", "Completed", "Completed", "Running"];
    assert_eq!(CHAIN.map(|id| harness.status(id)), ended);
    assert!(matches!(harness.send_message(CHAIN[2], order()), ShardReply::Accepted));
    assert_eq!(harness.status(CHAIN[3]), "Terminated");
    let again = harness.send_message(CHAIN[2], order());
    let refused = MessageRefusal::RunEnded { status: Status::Completed };
    assert!(
        matches!(&again, ShardReply::Refused(RequestError::Message(why)) if *why == refused),
        "{again:?}"
    );
}

#[test]
fn an_order_for_a_tree_survives_a_crash_between_two_hops() {
    let mut harness = chain();
    harness.crash();
    harness.unavailable_instances = vec![instance_id(CHAIN[1])];
    assert!(matches!(harness.send_message("a", order()), ShardReply::Accepted));
    assert_eq!(CHAIN.map(|id| harness.status(id)), ["Terminated", "Running", "Running", "Running"]);
    harness.unavailable_instances.clear();
    harness.crash();
    harness.advance_clock(10_000);
    assert_eq!(CHAIN.map(|id| harness.status(id)), ["Terminated"; 4]);
    harness.check();
}

#[test]
fn an_order_for_a_tree_outlives_the_run_that_passes_it_on() {
    let mut harness = chain();
    harness.crash();
    harness.unavailable_instances = vec![instance_id(CHAIN[1])];
    harness.send_message("a", order());
    let purge = abide_runtime::ShardRequest::Purge { instance_id: instance_id("a"), run_number: None };
    assert!(matches!(harness.request(purge), ShardReply::Purged));
    harness.unavailable_instances.clear();
    harness.advance_clock(10_000);
    assert_eq!(harness.status(CHAIN[3]), "Terminated");
}

#[test]
fn an_order_for_a_tree_ends_a_parked_child_and_passes_through_it() {
    let mut harness = chain();
    harness.config.poison = Some(Poison { instance_id: instance_id(CHAIN[1]), effect: PoisonEffect::Panic });
    harness.crash();
    harness.raise(CHAIN[1], "anything");
    assert!(harness.park_reason(CHAIN[1]).is_some());
    harness.config.poison = None;
    harness.crash();
    assert!(harness.park_reason(CHAIN[1]).is_some());
    harness.send_message("a", order());
    assert_eq!(CHAIN.map(|id| harness.status(id)), ["Terminated"; 4]);
    harness.check();
}

#[test]
fn a_run_that_is_rewound_after_an_order_for_its_tree_may_abandon_children_again() {
    let mut harness = ShardHarness::new();
    let abandoned = |next: &str| {
        json!({"type": "workflow", "workflow": "leaf", "onParentClose": "abandon", "timeout": "PT1H",
               "timeoutNext": next, "next": next})
    };
    let never = json!({"type": "wait", "waitType": "externalEvent", "eventName": "never", "next": "End"});
    harness.publish("leaf", &json!({"Start": never, "End": {"type": "succeed"}}));
    harness.publish(
        "parent",
        &json!({
            "Start": abandoned("Work"), "Work": {"type": "task", "activity": "work", "next": "Again"},
            "Again": abandoned("End"), "End": {"type": "succeed"},
        }),
    );
    let children = |harness: &ShardHarness| -> Vec<String> {
        let ids = (1..20).map(|number| format!("a~1.{number}"));
        ids.filter(|id| harness.run(id).is_some()).map(|id| harness.status(&id)).collect()
    };
    harness.start("parent", "a");
    harness.advance_clock(3_600_001);
    harness.finish_attempt(failure(false));
    assert!(matches!(harness.send_message("a", order()), ShardReply::Accepted));
    assert_eq!((harness.status("a").as_str(), children(&harness)), ("Failed", vec!["Terminated".to_owned()]));
    harness.send_message("a", Message::Rewind { reason: "mended".to_owned() });
    harness.crash();
    harness.complete_attempt();
    harness.advance_clock(3_600_001);
    assert_eq!(harness.status("a"), "Completed");
    assert_eq!(children(&harness), ["Terminated", "Running"]);
    harness.check();
}
