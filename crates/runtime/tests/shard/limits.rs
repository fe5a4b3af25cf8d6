//! What does not fit into a commit: one run is set aside, never a shard; and what the limits allow does fit.

use abide_dispatch::Answer;
use abide_runtime::{Refused, Reply, Request};
use abide_store::rows::{CommitOutcome, Limits};
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::world::{World, failure, name, task};

const MIB: usize = 1024 * 1024;

fn order(reason: &str) -> Message {
    Message::Terminate { reason: reason.to_owned() }
}

/// A run that goes on as another when it is told to, with whatever was raised before.
fn publish_carrier(world: &World) {
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Again"});
    let again = json!({"type": "continueAsNew", "input": "$.input"});
    world.publish("carrier", &json!({"Start": gate, "Again": again}));
    world.publish("one", &json!({"Start": task("End"), "End": {"type": "succeed"}}));
}

/// More is buffered than a commit holds: only a store that was given other limits can have such a run.
fn overloaded() -> World {
    let mut world = World::with(|config| config.run.buffered_bytes_max = 64 * MIB as u64);
    publish_carrier(&world);
    world.start_with("carrier", "a", json!({"x": "x".repeat(100_000)}));
    for _ in 0..17 {
        assert!(matches!(world.raise_large("a", "item", MIB - 8_192), Reply::Accepted));
    }
    world
}

#[test]
fn a_turn_that_no_commit_can_hold_sets_its_run_aside_and_nobody_else() {
    let mut world = overloaded();
    let reply = world.raise("a", "go");
    assert!(matches!(&reply, Reply::Refused(Refused::Parked { .. })), "{reply:?}");
    for _ in 0..2 {
        assert_eq!(world.stopped, None);
        let reason = world.parked("a").unwrap();
        assert!(reason.contains("no commit"), "{reason}");
        assert_eq!(world.run("a").unwrap().instance.untaken_events(), ["item"], "nothing of it is lost");
        world.check();
        world.crash();
    }
    world.start("one", "b");
    world.complete();
    assert_eq!(world.status("b"), "Completed");
    assert!(matches!(world.order("a", order("enough")), Reply::Accepted));
    assert_eq!(world.status("a"), "Terminated");
    world.start("one", "a");
    world.pass(2_000);
    world.check();
}

#[test]
fn a_client_is_not_told_that_a_run_is_set_aside_before_its_row_says_so() {
    let mut world = overloaded();
    let away = || Some(CommitOutcome::Unavailable { reason: "away".to_owned() });
    world.outcomes.extend([away(), away()]);
    let message = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
    let first = world.ask_later(Request::Deliver { instance_id: name("a"), message });
    let awaiting = world.ask_later(Request::AwaitEnd { instance_id: name("a"), run: None });
    let message = Message::EventRaised { name: "item".to_owned(), payload: json!(1).into() };
    let second = world.ask_later(Request::Deliver { instance_id: name("a"), message });
    let message = Message::Resume { reason: String::new() };
    let third = world.ask_later(Request::Deliver { instance_id: name("a"), message });
    assert_eq!((world.parked("a"), world.replies.len()), (None, 0));
    world.pass(1_000);
    for ticket in [first, awaiting, second] {
        let reply = world.reply_to(ticket);
        assert!(matches!(&reply, Some(Reply::Refused(Refused::Parked { .. }))), "{reply:?}");
    }
    assert!(
        matches!(world.reply_to(third), Some(Reply::Accepted)),
        "without the event that was refused it goes on"
    );
    assert_eq!((world.parked("a"), world.status("a").as_str()), (None, "Running"));
    assert_eq!(world.run("a").unwrap().instance.untaken_events(), ["item"]);
    world.check();
}

#[test]
fn a_first_turn_that_no_commit_can_hold_leaves_a_run_that_says_so() {
    // A wide map of large inputs, begun under limits that allow too much of it at once.
    let mut world = World::with(|config| {
        config.run.turn.bytes_max = 64 * MIB as u64;
    });
    let each = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "work", "input": {"x": "$.input.x", "i": "$.item"}, "next": "Done"},
        "Done": {"type": "succeed"}}});
    let map = json!({"type": "map", "items": "$.input.items", "iterator": each, "next": "End"});
    world.publish("wide", &json!({"Start": map, "End": {"type": "succeed"}}));
    let items: Vec<u32> = (0..40).collect();
    world.start_with("wide", "a", json!({"items": items, "x": "x".repeat(900_000)}));
    assert!(world.parked("a").is_some());
    assert_eq!((&world.stopped, world.status("a").as_str()), (&None, "Pending"));
    world.check();
    world.crash();
    assert!(world.parked("a").is_some() && world.calls.is_empty());
    assert!(matches!(world.order("a", order("enough")), Reply::Accepted));
    assert_eq!(world.status("a"), "Terminated");
    world.check();
}

/// Everything as large as it may be, on a store of any kind.
fn largest(world: &World) -> usize {
    usize::try_from(world.config.run.payload_bytes_max).unwrap() - 64
}

fn assert_fits(world: &World, id: &str) {
    assert_eq!((&world.stopped, world.parked(id)), (&None, None));
    world.check();
}

const STORES: [Limits; 3] = [Limits::LEAST, Limits::AZURE, Limits::LOCAL];

#[test]
fn a_full_buffer_is_carried_over_with_the_largest_input() {
    for limits in STORES {
        let mut world = World::on(limits, |_| {});
        publish_carrier(&world);
        let bytes = largest(&world);
        world.start_with("carrier", "a", json!("x".repeat(bytes)));
        for _ in 0..1_000 {
            assert!(matches!(world.raise_large("a", "item", 1), Reply::Accepted));
        }
        let mut buffered = 0;
        while matches!(world.raise_large("a", "item", bytes), Reply::Accepted) {
            buffered += 1;
        }
        assert!(buffered >= 3, "{buffered}");
        assert!(matches!(world.raise("a", "go"), Reply::Accepted));
        assert_fits(&world, "a");
        let run = world.run("a").unwrap();
        assert_eq!((run.row.run_number, run.instance.untaken_events()), (2, vec!["item".to_owned()]));
    }
}

#[test]
fn the_largest_calls_fail_all_at_once_and_again_while_suspended() {
    let each = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "work", "input": "$.input.x", "output": "$.state.y",
            "retryPolicy": {"maxAttempts": 3, "initialInterval": "PT1S"},
            "compensateWith": {"activity": "undo"}, "next": "Done"},
        "Done": {"type": "succeed", "output": 1}}});
    let map = json!({"type": "map", "items": "$.input.items", "iterator": each, "next": "End"});
    let states = json!({"Start": map, "End": {"type": "succeed"}});
    for (limits, results_are_large) in [(Limits::LEAST, true), (Limits::LEAST, false), (Limits::AZURE, true)]
    {
        let mut world = World::on(limits, |_| {});
        world.publish("wide", &states);
        let items: Vec<u32> = (0..30).collect();
        let bytes = largest(&world) - 1_024;
        world.start_with("wide", "a", json!({"items": items, "x": "x".repeat(bytes)}));
        answer_all(&mut world, &failure(true));
        world.order("a", Message::Suspend { reason: String::new() });
        world.pass(10_000);
        answer_all(&mut world, &failure(true));
        world.crash();
        assert_fits(&world, "a");
        world.order("a", Message::Resume { reason: String::new() });
        world.pass(20_000);
        assert_fits(&world, "a");
        world.order("a", Message::Suspend { reason: String::new() });
        let result: Value = json!("y".repeat(if results_are_large { bytes } else { 1 }));
        answer_all(&mut world, &Answer::Completed(result.into()));
        world.order("a", Message::Resume { reason: String::new() });
        world.pass(20_000);
        assert_fits(&world, "a");
        assert_ne!(world.status("a"), "Running", "it has ended, well or with its data at the limit");
    }
}

/// All at once, as calls that ran into the same outage do.
fn answer_all(world: &mut World, answer: &Answer) {
    assert!(!world.calls.is_empty());
    let answers: Vec<_> = std::mem::take(&mut world.calls).into_iter().map(|(id, _)| id).collect();
    world.tell_all(answers.into_iter().map(|id| abide_runtime::Event::Answered(id, answer.clone())));
}

#[test]
fn what_is_left_of_a_long_run_is_deleted_where_a_commit_has_few_rows() {
    let mut world = World::on(Limits::LEAST, |config| config.retention = abide_workflow::Duration::hours(1));
    let states = json!({"Start": task("Again"), "Again": {"type": "choice", "default": "Start",
        "choices": [{"when": {"path": "$.state.x.last", "op": "eq", "value": true}, "next": "End"}]},
        "End": {"type": "succeed"}});
    world.publish_with("long", &json!({"maxTransitions": 10_000}), &states);
    world.start("long", "a");
    for _ in 0..150 {
        world.complete();
    }
    world.answer(Answer::Completed(json!({"last": true}).into()));
    assert_eq!(world.status("a"), "Completed");
    world.pass(8_000_000);
    assert_eq!(world.stopped, None);
    assert!(world.keys(abide_store::tables::Table::Page).is_empty());
    world.check();
}
