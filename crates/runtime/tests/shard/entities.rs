//! Entities: one operation at a time, each applied once, at a cost that does not grow.

use std::sync::Arc;

use abide_runtime::entity::{
    EntityId, EntityKind, EntityKinds, EntityOperation, EntityReader, OperationContext, OperationError,
    OperationOutcome, OperationReply, OperationRequest,
};
use abide_runtime::{Event, RequestError, ShardReply, ShardRequest};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::idempotency::SCOPE_ENTITY_OPERATION;
use abide_store::tables::{TableId, entities};
use abide_testkit::shard_driver::poll_ready;
use serde_json::{Value, json};

use crate::harness::{ShardHarness, request_idempotency};

fn entity() -> EntityId {
    EntityId::new("device", "dev-1").unwrap()
}

fn request(operation: EntityOperation, id: Option<u8>) -> ShardRequest {
    let repeat = id.map(|id| request_idempotency(id, id));
    ShardRequest::Operate(Box::new(OperationRequest {
        entity: entity(),
        operation,
        idempotency: repeat,
        idempotency_scope: SCOPE_ENTITY_OPERATION,
        session_event: None,
    }))
}

fn record(event: &Value, id: Option<u8>) -> ShardRequest {
    request(EntityOperation::RecordEvent { event: event.clone().into() }, id)
}

fn operated(reply: ShardReply) -> OperationReply {
    match reply {
        ShardReply::Operated(operated) => *operated,
        other => panic!("{other:?}"),
    }
}

fn output(reply: ShardReply) -> Value {
    serde_json::from_str(&operated(reply).output).unwrap()
}

fn events(harness: &ShardHarness) -> Vec<Value> {
    let partition = harness.partition();
    let reader = EntityReader { store: &*harness.store, partition: &partition };
    let Some(view) = poll_ready(reader.view(&entity())).unwrap() else { return Vec::new() };
    let page = poll_ready(reader.events(&view, 0, 1_000)).unwrap();
    page.events.iter().map(|event| serde_json::from_str(event.event.get()).unwrap()).collect()
}

#[test]
fn events_are_kept_in_the_order_they_were_recorded_and_survive_a_crash() {
    let mut harness = ShardHarness::new();
    for number in 0..5 {
        assert_eq!(output(harness.request(record(&json!(number), None))), json!({"position": number}));
    }
    harness.crash();
    assert_eq!(output(harness.request(record(&json!(5), None))), json!({"position": 5}));
    assert_eq!(events(&harness), [0, 1, 2, 3, 4, 5].map(Value::from));
    harness.check();
}

#[test]
fn a_repeated_operation_gets_the_same_reply_and_is_done_once() {
    let mut harness = ShardHarness::new();
    let first = operated(harness.request(record(&json!("a"), Some(1))));
    assert!(!first.is_replay && first.idempotent_until.is_some());
    let again = operated(harness.request(record(&json!("a"), Some(1))));
    assert_eq!((again.is_replay, &again.output), (true, &first.output));
    harness.crash();
    harness.jump_clock(6 * 24 * 3_600_000);
    assert!(operated(harness.request(record(&json!("a"), Some(1)))).is_replay, "after a crash and six days");
    assert_eq!(events(&harness), ["a"]);
}

#[test]
fn copies_that_arrive_before_the_first_is_durable_are_one_operation() {
    let mut harness = ShardHarness::new();
    harness.request(record(&json!("before"), None));
    let copies: Vec<_> = (0..64).map(|_| (harness.next_request_id(), record(&json!("a"), Some(1)))).collect();
    let request_ids: Vec<_> = copies.iter().map(|(request_id, _)| *request_id).collect();
    harness.send_events(
        copies.into_iter().map(|(request_id, request)| Event::RequestReceived(request_id, request)),
    );
    let replies: Vec<OperationReply> =
        request_ids.iter().map(|request_id| operated(harness.reply_to(*request_id).unwrap())).collect();
    assert!(replies.iter().all(|reply| reply.output == r#"{"position":1}"#));
    assert_eq!(replies.iter().filter(|reply| !reply.is_replay).count(), 1);
    assert_eq!(events(&harness), ["before", "a"]);
}

#[test]
fn the_same_id_with_a_different_operation_is_refused() {
    let mut harness = ShardHarness::new();
    harness.request(record(&json!("a"), Some(1)));
    let ShardRequest::Operate(mut other) = record(&json!("b"), Some(1)) else { unreachable!() };
    other.idempotency = Some(request_idempotency(1, 2));
    assert!(matches!(
        harness.request(ShardRequest::Operate(other)),
        ShardReply::Refused(RequestError::KeyReused)
    ));
    assert_eq!(events(&harness), ["a"]);
}

#[test]
fn an_operation_of_unknown_outcome_is_resolved_and_not_done_twice() {
    for applied in [true, false] {
        let mut harness = ShardHarness::new();
        harness.request(record(&json!("a"), None));
        harness.store.make_next_commit_unknown(applied);
        let request_id = harness.request_without_waiting(record(&json!("b"), Some(1)));
        harness.advance_clock(5_000);
        assert_eq!(
            output(harness.reply_to(request_id).unwrap()),
            json!({"position": 1}),
            "applied: {applied}"
        );
        assert_eq!(events(&harness), ["a", "b"], "applied: {applied}");
    }
}

#[test]
fn no_reply_is_sent_before_the_operation_is_durable() {
    let mut harness = ShardHarness::new();
    harness.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "test".to_owned() }));
    let request_id = harness.request_without_waiting(record(&json!("a"), Some(1)));
    assert!(harness.reply_to(request_id).is_none());
    harness.advance_clock(5_000);
    assert_eq!(output(harness.reply_to(request_id).unwrap()), json!({"position": 0}));
}

#[test]
fn a_clear_removes_events_at_once_and_keeps_those_after_its_position() {
    let mut harness = ShardHarness::new();
    for number in 0..300 {
        harness.request(record(&json!(number), None));
    }
    let commits = harness.commits;
    let rows = harness.rows;
    let some = request(EntityOperation::Clear { up_to: Some(296) }, None);
    assert_eq!(output(harness.request(some)), json!({"cleared": 297, "firstPosition": 297}));
    assert!(harness.commits - commits == 1 && harness.rows - rows <= 4, "{} rows", harness.rows - rows);
    assert_eq!(events(&harness), [297, 298, 299].map(Value::from));
    harness.request(record(&json!("new"), None));
    let all = request(EntityOperation::Clear { up_to: None }, None);
    assert_eq!(output(harness.request(all)), json!({"cleared": 4, "firstPosition": 301}));
    assert_eq!(events(&harness), Vec::<Value>::new());
    assert_eq!(output(harness.request(record(&json!("next"), None))), json!({"position": 301}));
    harness.advance_clock(300_000);
    assert_eq!(harness.keys(TableId::EntityEvent).len(), 1, "the old events are collected");
    assert_eq!(harness.keys(TableId::Expiry), []);
    assert_eq!(events(&harness), ["next"]);
    harness.check();
}

#[test]
fn recording_costs_the_same_however_many_events_there_are() {
    let mut harness = ShardHarness::new();
    let mut costs = Vec::new();
    for number in 0..2_000 {
        let rows = harness.rows;
        let bytes = harness.bytes;
        harness.request(record(&json!("x"), None));
        if [10, 1_990].contains(&number) {
            costs.push((harness.rows - rows, harness.bytes - bytes));
        }
    }
    let [(few, few_bytes), (many, many_bytes)] = costs[..] else { unreachable!() };
    assert_eq!(few, many);
    assert!(many_bytes <= few_bytes + 8, "{few_bytes} and {many_bytes} bytes");
}

#[test]
fn an_entity_refuses_events_over_its_limit() {
    let mut harness = ShardHarness::with(|config| config.entity_events_max = 2);
    harness.request(record(&json!(1), None));
    harness.request(record(&json!(2), None));
    let refused = harness.request(record(&json!(3), None));
    assert!(
        matches!(refused, ShardReply::Refused(RequestError::EntityFull { events: 2, .. })),
        "{refused:?}"
    );
    harness.request(request(EntityOperation::Clear { up_to: Some(0) }, None));
    assert_eq!(output(harness.request(record(&json!(3), None))), json!({"position": 2}));
}

#[test]
fn stored_replies_expire_after_their_window_and_leave_nothing_behind() {
    let mut harness = ShardHarness::new();
    for id in 0..200 {
        harness.request(record(&json!(id), Some(id)));
    }
    assert_eq!(harness.keys(TableId::Idempotency).len(), 200);
    harness.jump_clock(7 * 24 * 3_600_000 + 61_000);
    harness.advance_clock(600_000);
    assert_eq!((harness.keys(TableId::Idempotency), harness.keys(TableId::Expiry)), (vec![], vec![]));
    assert!(!operated(harness.request(record(&json!(7), Some(7)))).is_replay);
    harness.check();
}

#[test]
fn operations_on_a_damaged_entity_are_refused_and_others_go_on() {
    let mut harness = ShardHarness::new();
    harness.request(record(&json!(1), None));
    let partition = harness.partition();
    let key = entities::key("device", "dev-1");
    let row = harness.store.read_now(&partition, &key).unwrap().unwrap();
    harness.store.commit_now(&partition, &Batch::checked().replace(key, row.version, b"garbage".to_vec()));
    harness.crash();
    let refused = harness.request(record(&json!(2), Some(1)));
    assert!(matches!(refused, ShardReply::Refused(RequestError::EntityDamaged { .. })), "{refused:?}");
    let ShardRequest::Operate(mut other) = record(&json!(2), Some(2)) else { unreachable!() };
    other.entity = EntityId::new("device", "dev-2").unwrap();
    assert_eq!(output(harness.request(ShardRequest::Operate(other))), json!({"position": 0}));
}

/// Counts, and refuses to go below zero.
struct Counter;

impl EntityKind for Counter {
    fn operate(&self, call: &OperationContext<'_>) -> Result<OperationOutcome, OperationError> {
        let count = call.state.and_then(|state| state.as_i64()).unwrap_or(0);
        match call.operation {
            "add" => {
                let by = call.input.as_i64();
                let by = by.ok_or_else(|| OperationError::InvalidInput {
                    reason: "a number is expected".to_owned(),
                })?;
                if count + by < 0 {
                    let code = "Negative".to_owned();
                    let reason = "it would be negative".to_owned();
                    return Err(OperationError::Refused { code, reason });
                }
                let state = Arc::new(Value::from(count + by));
                Ok(OperationOutcome { state: Some(Arc::clone(&state)), output: state })
            }
            "explode" => panic!("as asked"),
            "get" => Ok(OperationOutcome { state: None, output: Arc::new(count.into()) }),
            other => Err(OperationError::UnknownOperation { name: other.to_owned() }),
        }
    }
}

#[test]
fn the_state_of_a_rust_entity_is_changed_only_by_complete_operations() {
    let mut harness =
        ShardHarness::with(|config| config.entity_kinds = EntityKinds::default().with("Device", Counter));
    let add = |by: Value, id| {
        request(EntityOperation::Custom { name: "add".to_owned(), input: by.into() }, Some(id))
    };
    let get = || request(EntityOperation::Custom { name: "get".to_owned(), input: Value::Null.into() }, None);
    assert_eq!(output(harness.request(add(json!(5), 1))), 5);
    assert_eq!(output(harness.request(add(json!(2), 2))), 7);
    assert_eq!(output(harness.request(add(json!(2), 2))), 7, "once");
    let refused = harness.request(add(json!(-8), 3));
    assert!(matches!(refused, ShardReply::Refused(RequestError::Operation(OperationError::Refused { .. }))));
    assert!(matches!(
        harness.request(add(json!("x"), 4)),
        ShardReply::Refused(RequestError::Operation(OperationError::InvalidInput { .. }))
    ));
    let commits = harness.commits;
    assert_eq!(output(harness.request(get())), 7);
    assert_eq!(harness.commits, commits, "reading writes nothing");
    harness.crash();
    assert_eq!(output(harness.request(get())), 7);
    assert_eq!(
        output(harness.request(add(json!(-7), 3))),
        0,
        "a refused operation was not done, so it may be repeated"
    );
}

#[test]
fn an_operation_that_panics_is_refused_and_changes_nothing() {
    let mut harness =
        ShardHarness::with(|config| config.entity_kinds = EntityKinds::default().with("device", Counter));
    let ask = |name: &str, input: Value| {
        request(EntityOperation::Custom { name: name.to_owned(), input: input.into() }, None)
    };
    assert_eq!(output(harness.request(ask("add", json!(5)))), 5);
    match harness.request(ask("explode", Value::Null)) {
        ShardReply::Refused(RequestError::Operation(error)) => {
            assert_eq!((error.code(), error.to_string().contains("as asked")), ("OperationPanicked", true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(output(harness.request(ask("get", Value::Null))), 5);
    harness.check();
}
