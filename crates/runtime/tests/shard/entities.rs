//! Entities: one operation at a time, each with its effect once, at a cost that does not grow.

use std::sync::Arc;

use abide_runtime::entity::{
    EntityId, EntityKind, EntityReader, Kinds, Operate, Operated, Operation, OperationCall, OperationError,
    OperationOutcome,
};
use abide_runtime::{Event, Refused, Repeat, Reply, Request};
use abide_store::rows::{Batch, CommitOutcome};
use abide_store::tables::dedupe::ENTITY_OPERATION;
use abide_store::tables::{Table, entities};
use serde_json::{Value, json};

use crate::world::{World, ready};

fn entity() -> EntityId {
    EntityId::new("device", "dev-1").unwrap()
}

fn request(operation: Operation, id: Option<u8>) -> Request {
    let repeat = id.map(|id| Repeat::new([id; 32], [id; 32]));
    Request::Operate(Box::new(Operate {
        entity: entity(),
        operation,
        repeat,
        scope: ENTITY_OPERATION,
        route: None,
    }))
}

fn record(event: &Value, id: Option<u8>) -> Request {
    request(Operation::RecordEvent { event: event.clone().into() }, id)
}

fn operated(reply: Reply) -> Operated {
    match reply {
        Reply::Operated(operated) => *operated,
        other => panic!("{other:?}"),
    }
}

fn output(reply: Reply) -> Value {
    serde_json::from_str(&operated(reply).output).unwrap()
}

fn events(world: &World) -> Vec<Value> {
    let partition = world.partition();
    let reader = EntityReader { store: &*world.store, partition: &partition };
    let Some(view) = ready(reader.view(&entity())).unwrap() else { return Vec::new() };
    let page = ready(reader.events(&view, 0, 1_000)).unwrap();
    page.events.iter().map(|event| serde_json::from_str(event.event.get()).unwrap()).collect()
}

#[test]
fn events_are_kept_in_the_order_they_were_recorded_and_survive_a_crash() {
    let mut world = World::new();
    for number in 0..5 {
        assert_eq!(output(world.ask(record(&json!(number), None))), json!({"position": number}));
    }
    world.crash();
    assert_eq!(output(world.ask(record(&json!(5), None))), json!({"position": 5}));
    assert_eq!(events(&world), [0, 1, 2, 3, 4, 5].map(Value::from));
    world.check();
}

#[test]
fn an_operation_that_comes_again_is_answered_as_before_and_done_once() {
    let mut world = World::new();
    let first = operated(world.ask(record(&json!("a"), Some(1))));
    assert!(!first.repeated && first.repeats_until.is_some());
    let again = operated(world.ask(record(&json!("a"), Some(1))));
    assert_eq!((again.repeated, &again.output), (true, &first.output));
    world.crash();
    world.jump(6 * 24 * 3_600_000);
    assert!(operated(world.ask(record(&json!("a"), Some(1)))).repeated, "after a crash and six days");
    assert_eq!(events(&world), ["a"]);
}

#[test]
fn copies_that_come_while_the_first_is_not_durable_yet_are_one_operation() {
    let mut world = World::new();
    world.ask(record(&json!("before"), None));
    let copies: Vec<_> = (0..64).map(|_| (world.next_ticket(), record(&json!("a"), Some(1)))).collect();
    let tickets: Vec<_> = copies.iter().map(|(ticket, _)| *ticket).collect();
    world.tell_all(copies.into_iter().map(|(ticket, request)| Event::Asked(ticket, request)));
    let answers: Vec<Operated> =
        tickets.iter().map(|ticket| operated(world.reply_to(*ticket).unwrap())).collect();
    assert!(answers.iter().all(|answer| answer.output == r#"{"position":1}"#));
    assert_eq!(answers.iter().filter(|answer| !answer.repeated).count(), 1);
    assert_eq!(events(&world), ["before", "a"]);
}

#[test]
fn the_same_id_with_something_else_is_a_mistake() {
    let mut world = World::new();
    world.ask(record(&json!("a"), Some(1)));
    let Request::Operate(mut other) = record(&json!("b"), Some(1)) else { unreachable!() };
    other.repeat = Some(Repeat::new([1; 32], [2; 32]));
    assert!(matches!(world.ask(Request::Operate(other)), Reply::Refused(Refused::KeyReused)));
    assert_eq!(events(&world), ["a"]);
}

#[test]
fn an_operation_of_unknown_outcome_is_asked_for_and_not_done_twice() {
    for applied in [true, false] {
        let mut world = World::new();
        world.ask(record(&json!("a"), None));
        world.store.make_next_commit_unknown(applied);
        let ticket = world.ask_later(record(&json!("b"), Some(1)));
        world.pass(5_000);
        assert_eq!(output(world.reply_to(ticket).unwrap()), json!({"position": 1}), "applied: {applied}");
        assert_eq!(events(&world), ["a", "b"], "applied: {applied}");
    }
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let mut world = World::new();
    world.outcomes.push_back(Some(CommitOutcome::Unavailable { reason: "test".to_owned() }));
    let ticket = world.ask_later(record(&json!("a"), Some(1)));
    assert!(world.reply_to(ticket).is_none());
    world.pass(5_000);
    assert_eq!(output(world.reply_to(ticket).unwrap()), json!({"position": 0}));
}

#[test]
fn a_clear_forgets_at_once_what_was_there_and_keeps_what_came_after_its_position() {
    let mut world = World::new();
    for number in 0..300 {
        world.ask(record(&json!(number), None));
    }
    let (commits, rows) = (world.commits, world.rows);
    let some = request(Operation::Clear { up_to: Some(296) }, None);
    assert_eq!(output(world.ask(some)), json!({"cleared": 297, "firstPosition": 297}));
    assert!(world.commits - commits == 1 && world.rows - rows <= 4, "{} rows", world.rows - rows);
    assert_eq!(events(&world), [297, 298, 299].map(Value::from));
    world.ask(record(&json!("new"), None));
    let all = request(Operation::Clear { up_to: None }, None);
    assert_eq!(output(world.ask(all)), json!({"cleared": 4, "firstPosition": 301}));
    assert_eq!(events(&world), Vec::<Value>::new());
    assert_eq!(output(world.ask(record(&json!("next"), None))), json!({"position": 301}));
    world.pass(300_000);
    assert_eq!(world.keys(Table::EntityEvent).len(), 1, "the rest is swept");
    assert_eq!(world.keys(Table::Expiry), []);
    assert_eq!(events(&world), ["next"]);
    world.check();
}

#[test]
fn recording_costs_the_same_however_many_events_there_are() {
    let mut world = World::new();
    let mut costs = Vec::new();
    for number in 0..2_000 {
        let (rows, bytes) = (world.rows, world.bytes);
        world.ask(record(&json!("x"), None));
        if [10, 1_990].contains(&number) {
            costs.push((world.rows - rows, world.bytes - bytes));
        }
    }
    let [(few, few_bytes), (many, many_bytes)] = costs[..] else { unreachable!() };
    assert_eq!(few, many);
    assert!(many_bytes <= few_bytes + 8, "{few_bytes} and {many_bytes} bytes");
}

#[test]
fn an_entity_takes_no_more_events_than_it_may_hold() {
    let mut world = World::with(|config| config.entity_events_max = 2);
    world.ask(record(&json!(1), None));
    world.ask(record(&json!(2), None));
    let refused = world.ask(record(&json!(3), None));
    assert!(matches!(refused, Reply::Refused(Refused::EntityFull { events: 2, .. })), "{refused:?}");
    world.ask(request(Operation::Clear { up_to: Some(0) }, None));
    assert_eq!(output(world.ask(record(&json!(3), None))), json!({"position": 2}));
}

#[test]
fn answers_are_forgotten_after_their_window_and_leave_nothing_behind() {
    let mut world = World::new();
    for id in 0..200 {
        world.ask(record(&json!(id), Some(id)));
    }
    assert_eq!(world.keys(Table::Dedupe).len(), 200);
    world.jump(7 * 24 * 3_600_000 + 61_000);
    world.pass(600_000);
    assert_eq!((world.keys(Table::Dedupe), world.keys(Table::Expiry)), (vec![], vec![]));
    assert!(!operated(world.ask(record(&json!(7), Some(7)))).repeated);
    world.check();
}

#[test]
fn a_damaged_entity_is_refused_and_others_go_on() {
    let mut world = World::new();
    world.ask(record(&json!(1), None));
    let partition = world.partition();
    let key = entities::key("device", "dev-1");
    let row = world.store.read_now(&partition, &key).unwrap().unwrap();
    world.store.commit_now(&partition, &Batch::checked().replace(key, row.version, b"garbage".to_vec()));
    world.crash();
    let refused = world.ask(record(&json!(2), Some(1)));
    assert!(matches!(refused, Reply::Refused(Refused::EntityDamaged { .. })), "{refused:?}");
    let Request::Operate(mut other) = record(&json!(2), Some(2)) else { unreachable!() };
    other.entity = EntityId::new("device", "dev-2").unwrap();
    assert_eq!(output(world.ask(Request::Operate(other))), json!({"position": 0}));
}

/// Counts, and refuses to go below zero.
struct Counter;

impl EntityKind for Counter {
    fn operate(&self, call: &OperationCall<'_>) -> Result<OperationOutcome, OperationError> {
        let count = call.state.and_then(|state| state.as_i64()).unwrap_or(0);
        match call.operation {
            "add" => {
                let by = call.input.as_i64();
                let by =
                    by.ok_or_else(|| OperationError::Input { reason: "a number is expected".to_owned() })?;
                if count + by < 0 {
                    let (code, reason) = ("Negative".to_owned(), "it would be negative".to_owned());
                    return Err(OperationError::Refused { code, reason });
                }
                let state = Arc::new(Value::from(count + by));
                Ok(OperationOutcome { state: Some(Arc::clone(&state)), output: state })
            }
            "explode" => panic!("as asked"),
            "get" => Ok(OperationOutcome { state: None, output: Arc::new(count.into()) }),
            other => Err(OperationError::Unknown { name: other.to_owned() }),
        }
    }
}

#[test]
fn a_kind_written_in_rust_has_a_state_that_only_whole_operations_change() {
    let mut world = World::with(|config| config.kinds = Kinds::default().with("Device", Counter));
    let add =
        |by: Value, id| request(Operation::Custom { name: "add".to_owned(), input: by.into() }, Some(id));
    let get = || request(Operation::Custom { name: "get".to_owned(), input: Value::Null.into() }, None);
    assert_eq!(output(world.ask(add(json!(5), 1))), 5);
    assert_eq!(output(world.ask(add(json!(2), 2))), 7);
    assert_eq!(output(world.ask(add(json!(2), 2))), 7, "once");
    let refused = world.ask(add(json!(-8), 3));
    assert!(matches!(refused, Reply::Refused(Refused::Operation(OperationError::Refused { .. }))));
    assert!(matches!(
        world.ask(add(json!("x"), 4)),
        Reply::Refused(Refused::Operation(OperationError::Input { .. }))
    ));
    let commits = world.commits;
    assert_eq!(output(world.ask(get())), 7);
    assert_eq!(world.commits, commits, "looking writes nothing");
    world.crash();
    assert_eq!(output(world.ask(get())), 7);
    assert_eq!(
        output(world.ask(add(json!(-7), 3))),
        0,
        "what was refused was not done, so it may come again"
    );
}

#[test]
fn an_operation_that_panics_is_refused_and_changes_nothing() {
    let mut world = World::with(|config| config.kinds = Kinds::default().with("device", Counter));
    let ask = |name: &str, input: Value| {
        request(Operation::Custom { name: name.to_owned(), input: input.into() }, None)
    };
    assert_eq!(output(world.ask(ask("add", json!(5)))), 5);
    match world.ask(ask("explode", Value::Null)) {
        Reply::Refused(Refused::Operation(error)) => {
            assert_eq!((error.code(), error.to_string().contains("as asked")), ("OperationPanicked", true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(output(world.ask(ask("get", Value::Null))), 5);
    world.check();
}
