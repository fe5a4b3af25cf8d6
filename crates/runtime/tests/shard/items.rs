//! The item a call belongs to: the map or parallel that fanned out into it, or the state that started its run.

use std::collections::BTreeSet;

use abide_dispatch::Call;
use abide_dispatch::identity::{FanOut, IdempotencyKey, WorkIdentity};
use abide_runtime::post::{self, ChildStart, Letter, Post};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::arrivals::{self, Arrival};
use abide_store::tables::encode;
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, RunNumber};
use serde_json::{Value, json};

use crate::world::{World, name, task};

/// A map over two items that each go through these states, from `Do` on.
fn map(states: &Value, next: &str) -> Value {
    let iterator = json!({"startAt": "Do", "states": states});
    json!({"type": "map", "items": "$.input.items", "iterator": iterator, "next": next})
}

fn one_call() -> Value {
    json!({"Do": task("Done"), "Done": {"type": "succeed"}})
}

fn start(world: &mut World, id: &str) {
    world.start_with("main", id, json!({"id": id, "items": [1, 2]}));
}

/// Answers every call that is out, and those that follow; as they came.
fn complete_all(world: &mut World) -> Vec<Call> {
    let mut calls = Vec::new();
    while !world.calls.is_empty() {
        calls.push(world.complete());
    }
    calls
}

fn parents(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.metadata.parent_item_id.as_deref().unwrap_or("none")).collect()
}

fn key(step: &str, execution_id: &str, lineage: &[FanOut]) -> String {
    let work = WorkIdentity { pipeline: "main", step, execution_id, visit: 1, redrive: 0, lineage };
    IdempotencyKey::of(&work).to_string()
}

const FIRST: FanOut = FanOut { visit: 1, redrive: 0, index: 0 };
const SECOND: FanOut = FanOut { visit: 1, redrive: 0, index: 1 };

#[test]
fn items_of_one_map_have_one_parent_item_and_those_of_the_next_map_another() {
    let mut world = World::new();
    let states = json!({"Start": map(&one_call(), "Then"), "Then": map(&one_call(), "Last"), "Last": task("End"), "End": {"type": "succeed"}});
    world.publish("main", &states);
    start(&mut world, "a");
    let calls = complete_all(&mut world);
    let (first, second) = (key("Start", "a/1", &[]), key("Then", "a/1", &[]));
    assert_eq!(parents(&calls), [&first, &first, &second, &second, "none"]);
    assert_ne!(first, second);
    start(&mut world, "a");
    assert_eq!(parents(&complete_all(&mut world))[0], key("Start", "a/2", &[]), "another run's is another");
    assert_eq!(world.status("a"), "Completed");
}

#[test]
fn branches_of_a_parallel_have_the_parallel_for_a_parent_item() {
    let mut world = World::new();
    let branch = json!({"startAt": "Do", "states": one_call()});
    let fan = json!({"type": "parallel", "branches": [branch, branch], "next": "End"});
    world.publish("main", &json!({"Start": fan, "End": {"type": "succeed"}}));
    start(&mut world, "a");
    let parallel = key("Start", "a/1", &[]);
    assert_eq!(parents(&complete_all(&mut world)), [&parallel, &parallel]);
}

#[test]
fn nested_fan_outs_are_parent_items_of_their_own() {
    let mut world = World::new();
    let inner = |next: &str| map(&one_call(), next);
    let body = json!({"Do": task("Left"), "Left": inner("Right"), "Right": inner("Done"), "Done": {"type": "succeed"}});
    world.publish("main", &json!({"Start": map(&body, "End"), "End": {"type": "succeed"}}));
    start(&mut world, "a");
    let calls = complete_all(&mut world);
    let inner = |step: &str, item: FanOut| key(&format!("Start/iterator/{step}"), "a/1", &[item]);
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
fn a_map_that_is_come_to_again_is_another_parent_item() {
    let mut world = World::new();
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "again", "timeout": "PT5H",
        "timeoutNext": "End", "next": "Start"});
    let states = json!({"Start": map(&one_call(), "Gate"), "Gate": gate, "End": {"type": "succeed"}});
    world.publish("main", &states);
    start(&mut world, "a");
    let first = complete_all(&mut world);
    world.raise("a", "again");
    let second = complete_all(&mut world);
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(parents(&second).iter().all(|parent| *parent != parents(&first)[0]));
}

fn child(next: &str) -> Value {
    json!({"type": "workflow", "workflow": "child", "input": {"id": 1, "items": "$.input.items"}, "next": next})
}

#[test]
fn calls_of_a_child_have_the_state_that_started_it_for_a_parent_item() {
    let mut world = World::new();
    let states = json!({"Start": task("Each"), "Each": map(&one_call(), "End"), "End": {"type": "succeed"}});
    world.publish("child", &states);
    let body = json!({"Do": child("Done"), "Done": {"type": "succeed"}});
    world.publish(
        "main",
        &json!({"Start": child("Fan"), "Fan": map(&body, "Last"), "Last": task("End"), "End": {"type": "succeed"}}),
    );
    start(&mut world, "a");
    let calls = complete_all(&mut world);
    assert_eq!((world.status("a").as_str(), calls.len()), ("Completed", 3 * 3 + 1));
    let of_child = |step: &str| -> Vec<&str> {
        let own = calls.iter().filter(|call| call.metadata.execution_id.starts_with(step));
        own.map(|call| call.metadata.parent_item_id.as_deref().unwrap_or("none")).collect()
    };
    let alone = of_child("a~1.1/");
    assert_eq!(alone[0], key("Start", "a/1", &[]));
    assert_eq!(alone[1], alone[2]);
    assert_ne!(alone[1], alone[0], "its own map is nearer");
    let items = [of_child("a~1.2/")[0], of_child("a~1.3/")[0]];
    assert_eq!(items, [FIRST, SECOND].map(|item| key("Fan/iterator/Do", "a/1", &[item])));
    assert_eq!(of_child("a/"), ["none"]);
    world.check();
}

#[test]
fn a_child_keeps_its_parent_item_over_crashes_and_into_its_next_run() {
    let mut world = World::new();
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Do"});
    world.publish(
        "child",
        &json!({"Start": gate, "Do": task("Again"), "Again": {"type": "continueAsNew", "input": {"id": 2}}}),
    );
    world.publish("main", &json!({"Start": child("End"), "End": {"type": "succeed"}}));
    start(&mut world, "a");
    for run in ["a~1.1/1", "a~1.1/2", "a~1.1/3"] {
        world.crash();
        world.raise("a~1.1", "go");
        let call = world.complete();
        assert_eq!(call.metadata.execution_id, run);
        assert_eq!(parents(&[call]), [key("Start", "a/1", &[])]);
    }
}

#[test]
fn a_child_that_was_asked_for_without_an_item_begins_and_its_calls_have_none() {
    let mut world = World::new();
    world.publish("child", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
    let parent = ParentLink { instance_id: name("elsewhere"), run: RunNumber(1), command: CommandId(1) };
    let start = ChildStart {
        parent,
        workflow: "child".to_owned(),
        version: None,
        input: json!({"id": 1}).to_string(),
        correlation_id: "c".to_owned(),
        entity_id: None,
    };
    let message = post::encode(&Letter { instance_id: name("c"), post: Post::StartChild(start) });
    let arrival = Arrival { instance_id: "c".to_owned(), message, sent_at: 0 };
    let batch = Batch::checked().create(arrivals::key("shard/9", 1), encode(&arrival));
    let inbox = world.shard.id().inbox().unwrap();
    assert!(matches!(world.store.commit_now(&inbox, &batch), CommitOutcome::Committed(_)));
    world.tell(abide_runtime::Event::ArrivalsHinted);
    assert_eq!(parents(&complete_all(&mut world)), ["none"]);
    assert_eq!(world.status("c"), "Completed");
}
