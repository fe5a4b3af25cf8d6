//! Events from outside: recorded in their entity, and told to the run of their session or starting it, all or nothing.

use abide_runtime::entity::{EntityId, Operate, Operation, Routed, session_instance};
use abide_runtime::{Event, Notice, Repeat, Reply, Request};
use abide_store::rows::Batch;
use abide_store::tables::Table;
use abide_store::tables::dedupe::CLOUD_EVENT;
use abide_workflow::{Message, Outcome};
use serde_json::{Value, json};

use crate::world::World;

/// Waits for `go` twice, then ends with what it was started by and what it was told.
fn publish(world: &World) {
    let wait = |next: &str, slot: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": slot, "next": next});
    world.publish(
        "onboarding",
        &json!({
            "Start": wait("Second", "$.state.first"),
            "Second": wait("Done", "$.state.second"),
            "Done": {"type": "succeed", "output": {
                "entity": "$.input.entityId", "trigger": "$.input.event.n",
                "first": "$.state.first.n", "second": "$.state.second.n"}},
        }),
    );
}

fn routed(number: u8, starts: bool, raises: Option<&str>) -> Request {
    let event = json!({"n": number});
    let repeat = Repeat::new([number; 32], [0; 32]);
    Request::Operate(Box::new(Operate {
        entity: EntityId::new("device", "dev-1").unwrap(),
        operation: Operation::RecordEvent { event: event.clone().into() },
        repeat: Some(repeat),
        scope: CLOUD_EVENT,
        route: Some(Box::new(Routed {
            instance_id: session_instance("dev-1", "onboarding").unwrap(),
            starts,
            raises: raises.map(str::to_owned),
            workflow: "onboarding".to_owned(),
            version: None,
            entity_type: "device".to_owned(),
            entity_key: "dev-1".to_owned(),
            event: event.to_string(),
            correlation_id: "trace-1".to_owned(),
            message_id: format!("m-{number}"),
        })),
    }))
}

fn start_or_raise(number: u8) -> Request {
    routed(number, true, Some("go"))
}

const ID: &str = "dev-1~onboarding";

fn output(world: &World) -> Value {
    match world.run(ID).unwrap().instance.outcome() {
        Some(Outcome::Completed(output)) => (**output).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_event_starts_a_run_and_the_next_ones_reach_it_in_order() {
    let mut world = World::new();
    publish(&world);
    for number in 1..=3 {
        assert!(matches!(world.ask(start_or_raise(number)), Reply::Operated(_)));
    }
    assert_eq!(output(&world), json!({"entity": "dev-1", "trigger": 1, "first": 2, "second": 3}));
    assert_eq!(world.keys(Table::EntityEvent).len(), 3);
    assert!(matches!(world.ask(start_or_raise(4)), Reply::Operated(_)));
    assert_eq!(world.run(ID).unwrap().row.run_number, 2, "an event after the end starts the next run");
    world.pass(2_000);
    assert_eq!((world.keys(Table::Inbox), world.keys(Table::Outbox)), (vec![], vec![]));
    world.check();
}

#[test]
fn an_event_and_what_it_does_to_its_run_are_one_commit() {
    let mut world = World::new();
    publish(&world);
    world.ask(start_or_raise(1));
    let commits = world.commits;
    world.ask(start_or_raise(2));
    assert_eq!(world.commits - commits, 1);
}

#[test]
fn many_events_at_once_are_taken_in_their_order_and_duplicates_once() {
    let mut world = World::new();
    publish(&world);
    let mut events = Vec::new();
    for number in [1, 2, 2, 1, 3, 3] {
        events.push(Event::Asked(world.next_ticket(), start_or_raise(number)));
    }
    world.tell_all(events);
    assert_eq!(output(&world), json!({"entity": "dev-1", "trigger": 1, "first": 2, "second": 3}));
    assert_eq!(world.keys(Table::EntityEvent).len(), 3);
    world.crash();
    world.ask(start_or_raise(3));
    assert_eq!(world.run(ID).unwrap().row.run_number, 1, "a duplicate starts nothing");
    world.check();
}

#[test]
fn a_crash_between_recording_and_the_runs_turn_loses_neither() {
    let mut world = World::new();
    publish(&world);
    // The definition is looked for while the record is committed already.
    world.plans_refused = 1;
    world.ask(start_or_raise(1));
    assert!(world.run(ID).is_none() && world.keys(Table::Inbox).len() == 1);
    world.crash();
    world.pass(5_000);
    assert_eq!(world.status(ID), "Running");
    world.ask(start_or_raise(2));
    world.ask(start_or_raise(3));
    assert_eq!(output(&world)["trigger"], 1);
    world.check();
}

#[test]
fn what_a_route_does_not_do_is_not_done() {
    let mut world = World::new();
    publish(&world);
    world.ask(routed(1, false, Some("go")));
    assert!(world.run(ID).is_none(), "raise starts none");
    world.ask(routed(2, true, None));
    assert_eq!(world.status(ID), "Running");
    world.ask(routed(3, true, None));
    world.ask(start_or_raise(4));
    world.ask(start_or_raise(5));
    assert_eq!(output(&world), json!({"entity": "dev-1", "trigger": 2, "first": 4, "second": 5}));
    assert_eq!(world.keys(Table::EntityEvent).len(), 5, "all are recorded");
    world.pass(2_000);
    assert_eq!(world.keys(Table::Inbox), []);
}

#[test]
fn an_event_whose_workflow_is_not_there_is_recorded_and_dead_lettered() {
    let mut world = World::new();
    assert!(matches!(world.ask(start_or_raise(1)), Reply::Operated(_)));
    world.pass(2_000);
    let [letter] = &world.dead_letters()[..] else { panic!("one letter is expected") };
    assert_eq!((letter.engine.as_str(), letter.correlation_id.as_str()), ("ingress", "trace-1"));
    assert_eq!(letter.original_message, r#"{"n":1}"#);
    assert!(letter.error_message.contains("onboarding"), "{}", letter.error_message);
    assert_eq!(world.keys(Table::EntityEvent).len(), 1);
    assert_eq!((world.keys(Table::Inbox), world.keys(Table::Outbox)), (vec![], vec![]));
    world.check();
}

#[test]
fn a_dead_letter_survives_a_crash_before_it_was_written() {
    let mut world = World::new();
    world.ask(start_or_raise(1));
    assert!(world.dead_letters().is_empty(), "not yet");
    world.crash();
    world.pass(2_000);
    assert_eq!(world.dead_letters().len(), 1);
}

#[test]
fn a_suspended_run_keeps_the_event_and_a_terminated_one_makes_way_for_the_next() {
    let mut world = World::new();
    publish(&world);
    world.ask(start_or_raise(1));
    world.order(ID, Message::Suspend { reason: String::new() });
    world.ask(start_or_raise(2));
    world.order(ID, Message::Resume { reason: String::new() });
    world.ask(start_or_raise(3));
    assert_eq!(output(&world)["second"], 3);
    world.ask(start_or_raise(4));
    world.order(ID, Message::Terminate { reason: String::new() });
    world.ask(start_or_raise(5));
    assert_eq!(world.run(ID).unwrap().row.run_number, 3);
    world.check();
}

#[test]
fn an_event_for_a_parked_run_waits_until_somebody_has_dealt_with_it() {
    let mut world = World::new();
    publish(&world);
    world.ask(start_or_raise(1));
    let page = world.keys(Table::Page).remove(0);
    let stored = world.store.read_now(&world.partition(), &page).unwrap().unwrap();
    let garbage = Batch::checked().replace(page, stored.version, b"garbage".to_vec());
    world.store.commit_now(&world.partition(), &garbage);
    world.crash();
    assert!(matches!(world.ask(start_or_raise(2)), Reply::Operated(_)), "recorded all the same");
    assert!(matches!(world.notices.last(), Some(Notice::Parked { .. } | Notice::Operated)));
    world.order(ID, Message::Terminate { reason: String::new() });
    world.pass(2_000);
    let run = world.run(ID).unwrap();
    assert_eq!((run.row.run_number, world.status(ID).as_str()), (2, "Running"), "it starts the next run");
    assert_eq!(world.keys(Table::Inbox), []);
}

#[test]
fn a_run_that_an_event_replaces_right_after_a_crash_is_shown_and_found_until_it_has_been_kept() {
    let mut world = World::with(|config| config.retention = abide_workflow::Duration::hours(1));
    publish(&world);
    for number in 1..4 {
        world.ask(start_or_raise(number));
    }
    assert_eq!(world.status(ID), "Completed");
    // The event is taken; its run cannot begin before the crash, and nothing is in public yet.
    world.plans_refused = 1;
    world.ask(start_or_raise(4));
    world.crash();
    world.pass(2_000);
    assert_eq!((world.status(ID).as_str(), world.run(ID).unwrap().row.run_number), ("Running", 2));
    let status = |world: &World| {
        let key = abide_store::tables::public_instances::key(ID, 1);
        let schema = &abide_store::tables::public_instances::SCHEMA;
        let row = crate::world::ready(abide_store::public::PublicTables::get(&*world.store, schema, &key));
        row.unwrap().and_then(|row| row.text("Status").map(str::to_owned))
    };
    assert_eq!((status(&world).as_deref(), world.keys(Table::EarlierRun).len()), (Some("Completed"), 1));
    world.pass(3_700_000);
    assert_eq!((status(&world), world.keys(Table::EarlierRun)), (None, vec![]));
    world.check();
}
