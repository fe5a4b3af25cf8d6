//! The item a call belongs to: the map or parallel that fanned out into it, or the state that started its run.

use std::collections::BTreeSet;

use abide_dispatch::Call;
use abide_dispatch::identity::{FanOut, IdempotencyKey, WorkIdentity};
use serde_json::{Value, json};

use crate::world::{World, task};

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
