//! The parent item of a call: the map or parallel that fanned out into it, or the state that started its run.

use std::collections::BTreeSet;

use abide_dispatch::CallAttempt;
use abide_dispatch::identity::{CallIdentity, FanOutStep};
use abide_ids::Timestamp;
use abide_runtime::run_message::{self, AddressedMessage, ChildStart, RunMessage};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::encode;
use abide_store::tables::inbound::{self, InboundRow};
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, RunNumber};
use serde_json::{Value, json};

use crate::harness::{ShardHarness, instance_id, task_state};

/// A map over two items, each of which runs these states from `Do` on.
fn map(states: &Value, next: &str) -> Value {
    let iterator = json!({"startAt": "Do", "states": states});
    json!({"type": "map", "items": "$.input.items", "iterator": iterator, "next": next})
}

fn one_call() -> Value {
    json!({"Do": task_state("Done"), "Done": {"type": "succeed"}})
}

fn start(harness: &mut ShardHarness, id: &str) {
    harness.start_with("main", id, json!({"id": id, "items": [1, 2]}));
}

/// Completes all attempts, and those that follow, and returns them in order.
fn complete_all(harness: &mut ShardHarness) -> Vec<CallAttempt> {
    let mut calls = Vec::new();
    while !harness.calls.is_empty() {
        calls.push(harness.complete_attempt());
    }
    calls
}

fn parents(calls: &[CallAttempt]) -> Vec<&str> {
    calls.iter().map(|call| call.metadata.parent_item_id.as_deref().unwrap_or("none")).collect()
}

fn key(step: &str, execution_id: &str, lineage: &[FanOutStep]) -> String {
    let work = CallIdentity { pipeline: "main", step, execution_id, visit: 1, redrive: 0, lineage };
    work.idempotency_key().to_string()
}

const FIRST: FanOutStep = FanOutStep { visit: 1, redrive: 0, index: 0 };
const SECOND: FanOutStep = FanOutStep { visit: 1, redrive: 0, index: 1 };

#[test]
fn items_of_one_map_have_one_parent_item_and_those_of_the_next_map_another() {
    let mut harness = ShardHarness::new();
    let states = json!({"Start": map(&one_call(), "Then"), "Then": map(&one_call(), "Last"), "Last": task_state("End"), "End": {"type": "succeed"}});
    harness.publish("main", &states);
    start(&mut harness, "a");
    let calls = complete_all(&mut harness);
    let first = key("Start", "a/1", &[]);
    let second = key("Then", "a/1", &[]);
    assert_eq!(parents(&calls), [&first, &first, &second, &second, "none"]);
    assert_ne!(first, second);
    start(&mut harness, "a");
    assert_eq!(
        parents(&complete_all(&mut harness))[0],
        key("Start", "a/2", &[]),
        "another run has another item"
    );
    assert_eq!(harness.status("a"), "Completed");
}

#[test]
fn branches_of_a_parallel_have_the_parallel_as_their_parent_item() {
    let mut harness = ShardHarness::new();
    let branch = json!({"startAt": "Do", "states": one_call()});
    let fan = json!({"type": "parallel", "branches": [branch, branch], "next": "End"});
    harness.publish("main", &json!({"Start": fan, "End": {"type": "succeed"}}));
    start(&mut harness, "a");
    let parallel = key("Start", "a/1", &[]);
    assert_eq!(parents(&complete_all(&mut harness)), [&parallel, &parallel]);
}

#[test]
fn nested_fan_outs_are_parent_items_of_their_own() {
    let mut harness = ShardHarness::new();
    let inner = |next: &str| map(&one_call(), next);
    let body = json!({"Do": task_state("Left"), "Left": inner("Right"), "Right": inner("Done"), "Done": {"type": "succeed"}});
    harness.publish("main", &json!({"Start": map(&body, "End"), "End": {"type": "succeed"}}));
    start(&mut harness, "a");
    let calls = complete_all(&mut harness);
    let inner = |step: &str, item: FanOutStep| key(&format!("Start/iterator/{step}"), "a/1", &[item]);
    let found: BTreeSet<&str> = parents(&calls).into_iter().collect();
    let expected = [
        key("Start", "a/1", &[]),
        inner("Left", FIRST),
        inner("Left", SECOND),
        inner("Right", FIRST),
        inner("Right", SECOND),
    ];
    assert_eq!(found, expected.iter().map(String::as_str).collect());
    for parent in &expected {
        assert_eq!(parents(&calls).iter().filter(|found| *found == parent).count(), 2);
    }
}

#[test]
fn a_second_visit_of_a_map_is_another_parent_item() {
    let mut harness = ShardHarness::new();
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "again", "timeout": "PT5H",
        "timeoutNext": "End", "next": "Start"});
    let states = json!({"Start": map(&one_call(), "Gate"), "Gate": gate, "End": {"type": "succeed"}});
    harness.publish("main", &states);
    start(&mut harness, "a");
    let first = complete_all(&mut harness);
    harness.raise("a", "again");
    let second = complete_all(&mut harness);
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(parents(&second).iter().all(|parent| *parent != parents(&first)[0]));
}

fn child(next: &str) -> Value {
    json!({"type": "workflow", "workflow": "child", "input": {"id": 1, "items": "$.input.items"}, "next": next})
}

#[test]
fn calls_of_a_child_have_the_state_that_started_it_as_their_parent_item() {
    let mut harness = ShardHarness::new();
    let states =
        json!({"Start": task_state("Each"), "Each": map(&one_call(), "End"), "End": {"type": "succeed"}});
    harness.publish("child", &states);
    let body = json!({"Do": child("Done"), "Done": {"type": "succeed"}});
    harness.publish(
        "main",
        &json!({"Start": child("Fan"), "Fan": map(&body, "Last"), "Last": task_state("End"), "End": {"type": "succeed"}}),
    );
    start(&mut harness, "a");
    let calls = complete_all(&mut harness);
    assert_eq!((harness.status("a").as_str(), calls.len()), ("Completed", 3 * 3 + 1));
    let of_child = |step: &str| -> Vec<&str> {
        let own = calls.iter().filter(|call| call.metadata.execution_id.starts_with(step));
        own.map(|call| call.metadata.parent_item_id.as_deref().unwrap_or("none")).collect()
    };
    let alone = of_child("a~1.1/");
    assert_eq!(alone[0], key("Start", "a/1", &[]));
    assert_eq!(alone[1], alone[2]);
    assert_ne!(alone[1], alone[0], "its own map is the innermost");
    let items = [of_child("a~1.2/")[0], of_child("a~1.3/")[0]];
    assert_eq!(items, [FIRST, SECOND].map(|item| key("Fan/iterator/Do", "a/1", &[item])));
    assert_eq!(of_child("a/"), ["none"]);
    harness.check();
}

#[test]
fn a_child_keeps_its_parent_item_over_crashes_and_into_its_next_run() {
    let mut harness = ShardHarness::new();
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Do"});
    harness.publish(
        "child",
        &json!({"Start": gate, "Do": task_state("Again"), "Again": {"type": "continueAsNew", "input": {"id": 2}}}),
    );
    harness.publish("main", &json!({"Start": child("End"), "End": {"type": "succeed"}}));
    start(&mut harness, "a");
    for run in ["a~1.1/1", "a~1.1/2", "a~1.1/3"] {
        harness.crash();
        harness.raise("a~1.1", "go");
        let call = harness.complete_attempt();
        assert_eq!(call.metadata.execution_id, run);
        assert_eq!(parents(&[call]), [key("Start", "a/1", &[])]);
    }
}

#[test]
fn a_child_requested_without_an_item_starts_and_its_calls_have_none() {
    let mut harness = ShardHarness::new();
    harness.publish("child", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    let parent =
        ParentLink { instance_id: instance_id("elsewhere"), run: RunNumber(1), command: CommandId(1) };
    let start = ChildStart {
        parent,
        workflow: "child".to_owned(),
        version: None,
        input: json!({"id": 1}).to_string(),
        correlation_id: "c".to_owned(),
        entity_id: None,
    };
    let message = run_message::encode(&AddressedMessage {
        instance_id: instance_id("c"),
        message: RunMessage::LegacyStartChild(start),
    });
    let arrival = InboundRow { instance_id: "c".to_owned(), message, sent_at: Timestamp(0) };
    let batch = Batch::checked().create(inbound::key("shard/9", abide_ids::Sequence(1)), encode(&arrival));
    let inbox = harness.shard.id().inbound_partition().unwrap();
    assert!(matches!(harness.store.commit_now(&inbox, &batch), CommitOutcome::Committed(_)));
    harness.send_event(abide_runtime::Event::InboundHinted);
    assert_eq!(parents(&complete_all(&mut harness)), ["none"]);
    assert_eq!(harness.status("c"), "Completed");
}
