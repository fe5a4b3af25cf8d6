//! External events: recorded in their entity, and delivered to the run of their session or starting it, all or nothing.

use std::collections::VecDeque;

use abide_ids::RunNumber;
use abide_runtime::entity::{EntityId, EntityOperation, OperationRequest, SessionEvent, session_instance_id};
use abide_runtime::fault_injection::{Poison, PoisonEffect};
use abide_runtime::{Event, OperatorEvent, ShardReply, ShardRequest};
use abide_store::rows::Batch;
use abide_store::tables::TableId;
use abide_store::tables::idempotency::SCOPE_CLOUD_EVENT;
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::{Message, Outcome};
use serde_json::{Value, json};

use crate::harness::{ShardHarness, instance_id, request_idempotency};

/// Waits for `go` twice, then ends with the event that started it and those it received.
pub(crate) fn publish(harness: &ShardHarness) {
    let wait = |next: &str, slot: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": slot, "next": next});
    harness.publish(
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

fn session_event(number: u8, starts: bool, raises: Option<&str>) -> ShardRequest {
    let event = json!({"n": number});
    let repeat = request_idempotency(number, 0);
    ShardRequest::Operate(Box::new(OperationRequest {
        entity: EntityId::new("device", "dev-1").unwrap(),
        operation: EntityOperation::RecordEvent { event: event.clone().into() },
        idempotency: Some(repeat),
        idempotency_scope: SCOPE_CLOUD_EVENT,
        session_event: Some(Box::new(SessionEvent {
            instance_id: session_instance_id("dev-1", "onboarding").unwrap(),
            starts_run: starts,
            raised_as: raises.map(str::to_owned),
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

pub(crate) fn start_or_raise(number: u8) -> ShardRequest {
    session_event(number, true, Some("go"))
}

pub(crate) const ID: &str = "dev-1~onboarding";

fn output(harness: &ShardHarness) -> Value {
    match harness.run(ID).unwrap().instance.outcome() {
        Some(Outcome::Completed(output)) => (**output).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_event_starts_a_run_and_the_next_ones_reach_it_in_order() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    for number in 1..=3 {
        assert!(matches!(harness.request(start_or_raise(number)), ShardReply::Operated(_)));
    }
    assert_eq!(output(&harness), json!({"entity": "dev-1", "trigger": 1, "first": 2, "second": 3}));
    assert_eq!(harness.keys(TableId::EntityEvent).len(), 3);
    assert!(matches!(harness.request(start_or_raise(4)), ShardReply::Operated(_)));
    assert_eq!(
        harness.run(ID).unwrap().row.run_number,
        RunNumber(2),
        "an event after the end starts the next run"
    );
    harness.advance_clock(2_000);
    assert_eq!((harness.keys(TableId::Inbox), harness.keys(TableId::Outbox)), (vec![], vec![]));
    harness.check();
}

#[test]
fn an_event_and_what_it_does_to_its_run_are_one_commit() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.request(start_or_raise(1));
    let commits = harness.commits;
    harness.request(start_or_raise(2));
    assert_eq!(harness.commits - commits, 1);
}

#[test]
fn many_events_at_once_are_consumed_in_order_and_duplicates_once() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    let mut events = Vec::new();
    for number in [1, 2, 2, 1, 3, 3] {
        events.push(Event::RequestReceived(harness.next_request_id(), start_or_raise(number)));
    }
    harness.send_events(events);
    assert_eq!(output(&harness), json!({"entity": "dev-1", "trigger": 1, "first": 2, "second": 3}));
    assert_eq!(harness.keys(TableId::EntityEvent).len(), 3);
    harness.crash();
    harness.request(start_or_raise(3));
    assert_eq!(harness.run(ID).unwrap().row.run_number, RunNumber(1), "a duplicate starts nothing");
    harness.check();
}

#[test]
fn a_crash_between_recording_and_the_turn_loses_neither() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    // The definition is looked up when the record is already committed.
    harness.unavailable_plan_lookups = 1;
    harness.request(start_or_raise(1));
    assert!(harness.run(ID).is_none() && harness.keys(TableId::Inbox).len() == 1);
    harness.crash();
    harness.advance_clock(5_000);
    assert_eq!(harness.status(ID), "Running");
    harness.request(start_or_raise(2));
    harness.request(start_or_raise(3));
    assert_eq!(output(&harness)["trigger"], 1);
    harness.check();
}

#[test]
fn a_route_does_only_what_it_says() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.request(session_event(1, false, Some("go")));
    assert!(harness.run(ID).is_none(), "a raise route starts no run");
    harness.request(session_event(2, true, None));
    assert_eq!(harness.status(ID), "Running");
    harness.request(session_event(3, true, None));
    harness.request(start_or_raise(4));
    harness.request(start_or_raise(5));
    assert_eq!(output(&harness), json!({"entity": "dev-1", "trigger": 2, "first": 4, "second": 5}));
    assert_eq!(harness.keys(TableId::EntityEvent).len(), 5, "all are recorded");
    harness.advance_clock(2_000);
    assert_eq!(harness.keys(TableId::Inbox), []);
}

#[test]
fn an_event_whose_workflow_does_not_exist_is_recorded_and_dead_lettered() {
    let mut harness = ShardHarness::new();
    assert!(matches!(harness.request(start_or_raise(1)), ShardReply::Operated(_)));
    harness.advance_clock(2_000);
    let [letter] = &harness.dead_letters()[..] else { panic!("one letter is expected") };
    assert_eq!((letter.engine.as_str(), letter.correlation_id.as_str()), ("ingress", "trace-1"));
    assert_eq!(letter.original_message, r#"{"n":1}"#);
    assert!(letter.error_message.contains("onboarding"), "{}", letter.error_message);
    assert_eq!(harness.keys(TableId::EntityEvent).len(), 1);
    assert_eq!((harness.keys(TableId::Inbox), harness.keys(TableId::Outbox)), (vec![], vec![]));
    harness.check();
}

#[test]
fn a_dead_letter_survives_a_crash_before_it_was_written() {
    let mut harness = ShardHarness::new();
    harness.request(start_or_raise(1));
    assert!(harness.dead_letters().is_empty(), "not yet");
    harness.crash();
    harness.advance_clock(2_000);
    assert_eq!(harness.dead_letters().len(), 1);
}

#[test]
fn a_suspended_run_buffers_the_event_and_a_terminated_one_is_replaced() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.request(start_or_raise(1));
    harness.send_message(ID, Message::Suspend { reason: String::new() });
    harness.request(start_or_raise(2));
    harness.send_message(ID, Message::Resume { reason: String::new() });
    harness.request(start_or_raise(3));
    assert_eq!(output(&harness)["second"], 3);
    harness.request(start_or_raise(4));
    harness.send_message(ID, Message::Terminate { reason: String::new() });
    harness.request(start_or_raise(5));
    assert_eq!(harness.run(ID).unwrap().row.run_number, RunNumber(3));
    harness.check();
}

#[test]
fn an_event_for_a_parked_run_waits_until_the_run_is_resumed_or_terminated() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.request(start_or_raise(1));
    let page = harness.keys(TableId::HistoryPage).remove(0);
    let stored = harness.store.read_now(&harness.partition(), &page).unwrap().unwrap();
    let garbage = Batch::checked().replace(page, stored.version, b"garbage".to_vec());
    harness.store.commit_now(&harness.partition(), &garbage);
    harness.crash();
    assert!(matches!(harness.request(start_or_raise(2)), ShardReply::Operated(_)), "recorded all the same");
    assert!(matches!(
        harness.operator_events.last(),
        Some(OperatorEvent::Parked { .. } | OperatorEvent::EntityChanged)
    ));
    harness.send_message(ID, Message::Terminate { reason: String::new() });
    harness.advance_clock(2_000);
    let run = harness.run(ID).unwrap();
    assert_eq!(
        (run.row.run_number, harness.status(ID).as_str()),
        (RunNumber(2), "Running"),
        "it starts the next run"
    );
    assert_eq!(harness.keys(TableId::Inbox), []);
}

#[test]
fn a_run_replaced_by_an_event_right_after_a_crash_is_indexed_and_found_until_its_retention_ends() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    publish(&harness);
    for number in 1..4 {
        harness.request(start_or_raise(number));
    }
    assert_eq!(harness.status(ID), "Completed");
    // The event is accepted; its run cannot start before the crash, and nothing is in the index yet.
    harness.unavailable_plan_lookups = 1;
    harness.request(start_or_raise(4));
    harness.crash();
    harness.advance_clock(2_000);
    assert_eq!(
        (harness.status(ID).as_str(), harness.run(ID).unwrap().row.run_number),
        ("Running", RunNumber(2))
    );
    let status = |harness: &ShardHarness| {
        let key = abide_store::tables::public_instances::key(ID, RunNumber(1));
        let schema = &abide_store::tables::public_instances::SCHEMA;
        let row = poll_ready(abide_store::public::PublicTables::get(&*harness.store, schema, &key));
        row.unwrap().and_then(|row| row.text("Status").map(str::to_owned))
    };
    assert_eq!(
        (status(&harness).as_deref(), harness.keys(TableId::EarlierRun).len()),
        (Some("Completed"), 1)
    );
    harness.advance_clock(3_700_000);
    assert_eq!((status(&harness), harness.keys(TableId::EarlierRun)), (None, vec![]));
    harness.check();
}

#[test]
fn an_event_whose_plan_cannot_be_read_does_not_revive_a_run_whose_end_is_not_durable() {
    let mut harness = ShardHarness::new();
    publish(&harness);
    harness.request(start_or_raise(1));
    harness.request(start_or_raise(2));
    // The commit with the end of the run is under way when the next event asks for the plan of the next run.
    harness.held_commits = Some(VecDeque::new());
    harness.request_without_waiting(start_or_raise(3));
    harness.unavailable_plan_lookups = 1;
    harness.request_without_waiting(start_or_raise(4));
    harness.advance_clock(3_000);
    harness.release_commits();
    harness.advance_clock(3_000);
    let run = harness.run(ID).unwrap();
    assert_eq!((run.row.run_number, harness.status(ID).as_str()), (RunNumber(2), "Running"));
    harness.check();
}

#[test]
fn an_event_whose_input_check_panics_is_acknowledged_and_dead_lettered() {
    let poison = Poison { instance_id: instance_id(ID), effect: PoisonEffect::Panic };
    let mut harness = ShardHarness::with(|config| config.poison = Some(poison));
    publish(&harness);
    assert!(matches!(harness.request(start_or_raise(1)), ShardReply::Operated(_)));
    assert!(harness.run(ID).is_none());
    harness.advance_clock(2_000);
    let reasons: Vec<_> = harness.dead_letters().iter().map(|letter| letter.error_message.clone()).collect();
    assert!(reasons.iter().all(|reason| reason.contains("panicked")) && reasons.len() == 1, "{reasons:?}");
    assert_eq!(harness.keys(TableId::Inbox), vec![]);
    harness.check();
}
