//! Deadlines: before it is sent, at the receiver, and none.

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::journal::FinalReason;
use abide_dispatch::{IdempotencyKey, Metadata};
use abide_runtime::run::CallState;
use serde_json::{Value, json};

use super::{again, call_of, error, once, status, told};
use crate::over::Over;
use crate::process::one_task;
use crate::store::Death;
use crate::world::{World, is_recorded_as_sent, now};

const AN_HOUR: Duration = Duration::from_secs(3_600);

fn limited(timeout: &str, attempts: u32) -> Value {
    let mut definition = one_task(&json!({"step": "charge"}), attempts);
    definition["states"]["Begin"]["timeout"] = json!(timeout);
    definition
}

pub(crate) fn what_is_too_late_is_not_sent(over: Over) {
    let world = World::new(over);
    // The call is recorded, and the process dies before it is sent. When the next one begins it is too late.
    let definition = limited("PT0.05S", 5);
    let rows = Arc::clone(&world.rows);
    let recorded = move |_| is_recorded_as_sent(&rows);
    let dying = world.mortal(&definition, Some(Death::After(Box::new(recorded))));
    assert!(dying.run("a", json!({})).is_none(), "it dies");
    drop(dying);
    let late = now() + 50;
    world.until("the deadline", || now() > late);
    let process = world.process(&definition);
    let view = process.ended("a");
    assert_eq!((status(&view), error(&view)), ("Failed", ("Timeout", false)));
    let calls = process.calls("a");
    assert_eq!(calls[0].state, CallState::FailedFinal(FinalReason::DeadlineExpired));
    let letters = process.letters("a");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].1["terminalReason"], "deadline_expired");
    // Nor does a transport send it that is given it all the same.
    let (at, key) = (now(), IdempotencyKey(calls[0].idempotency_key).to_string());
    let metadata = Metadata {
        correlation_id: "order-7".to_owned(),
        execution_id: "a/1".to_owned(),
        idempotency_key: key,
        retry_attempt: 1,
        deadline_epoch_ms: Some(at),
        dispatched_at_epoch_ms: at,
        parent_item_id: None,
    };
    let call = call_of(metadata, &json!({"step": "charge"}));
    assert_eq!(told(&process.deliver(call).unwrap_err()), ("DeadlineExceeded", false));
    assert_eq!((world.arrivals(), world.book().ran()), (vec![], vec![]), "nothing was sent");
}

pub(crate) fn what_arrives_too_late_is_not_run(over: Over) {
    let world = World::new(over);
    let process = world.process(&limited("PT1H", 2));
    world.set_ahead(AN_HOUR * 2);
    let view = process.run("a", json!({})).unwrap();
    assert_eq!(
        (status(&view), error(&view)),
        ("Failed", ("DEADLINE_EXPIRED", true)),
        "retried, and given up"
    );
    let arrivals = world.arrivals();
    assert!(arrivals.iter().all(|arrival| arrival.has_deadline()));
    assert_eq!(arrivals.iter().map(|arrival| arrival.attempt()).collect::<Vec<_>>(), [0, 1]);
    let letters = process.letters("a");
    assert_eq!(letters[0].1["lastStatus"], "504 DEADLINE_EXCEEDED");
    assert_eq!(world.book().ran(), [], "it was not run");
    world.set_ahead(Duration::ZERO);
    let charge = json!({"step": "charge"});
    assert_eq!(process.deliver(again(&arrivals[0], &charge)).unwrap(), once(&charge["step"]), "nor recorded");
}

pub(crate) fn without_a_deadline_nothing_is_too_late(over: Over) {
    let world = World::new(over);
    let process = world.process(&one_task(&json!({"step": "charge"}), 1));
    world.set_ahead(AN_HOUR * 24 * 365);
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    let arrivals = world.arrivals();
    assert_eq!(arrivals.len(), 1);
    assert!(!arrivals[0].has_deadline(), "{:?}", arrivals[0]);
    assert_eq!(world.book().ran()[0].deadline_epoch_ms, None);
}
