//! Deadlines: passed before the call is sent, passed at the receiver, and absent.

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::Metadata;
use abide_dispatch::call_journal::FinalReason;
use abide_ids::Timestamp;
use abide_runtime::run::CallState;
use serde_json::{Value, json};

use super::{again, call_of, error, once, status, told};
use crate::crashing_store::CrashPoint;
use crate::fixture::{ParityFixture, is_recorded_as_sent, now};
use crate::node_process::one_task;
use crate::transport::ParityTransport;

const AN_HOUR: Duration = Duration::from_secs(3_600);

fn limited(timeout: &str, attempts: u32) -> Value {
    let mut definition = one_task(&json!({"step": "charge"}), attempts);
    definition["states"]["Begin"]["timeout"] = json!(timeout);
    definition
}

pub(crate) fn a_late_call_is_not_sent(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    // The call is recorded, and the process crashes before sending it. When the next process starts, it is too late.
    let definition = limited("PT0.05S", 5);
    let rows = Arc::clone(&fixture.rows);
    let recorded = move |_| is_recorded_as_sent(&rows);
    let dying = fixture.start_until_crash(&definition, Some(CrashPoint::After(Box::new(recorded))));
    assert!(dying.run("a", json!({})).is_none(), "the process should crash");
    drop(dying);
    let late = now() + 50;
    fixture.wait_until("the deadline", || now() > late);
    let process = fixture.process(&definition);
    let view = process.wait_for_end("a");
    assert_eq!((status(&view), error(&view)), ("Failed", ("Timeout", false)));
    let calls = process.calls("a");
    assert_eq!(calls[0].state, CallState::FailedFinal(FinalReason::DeadlineExpired));
    let letters = process.dead_letters("a");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].1["terminalReason"], "deadline_expired");
    // A transport that gets the call nevertheless does not send it either.
    let at = now();
    let key = calls[0].idempotency_key.to_string();
    let metadata = Metadata {
        correlation_id: "order-7".to_owned(),
        execution_id: "a/1".to_owned(),
        idempotency_key: key,
        retry_attempt: 1,
        deadline: Some(Timestamp(at)),
        dispatched_at: Timestamp(at),
        parent_item_id: None,
    };
    let call = call_of(metadata, &json!({"step": "charge"}));
    assert_eq!(told(&process.invoke(call).unwrap_err()), ("DeadlineExceeded", false));
    assert_eq!((fixture.requests(), fixture.activity_log().handled()), (vec![], vec![]), "nothing was sent");
}

pub(crate) fn a_call_that_arrives_late_is_not_run(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let process = fixture.process(&limited("PT1H", 2));
    fixture.set_ahead(AN_HOUR * 2);
    let view = process.run("a", json!({})).unwrap();
    assert_eq!(
        (status(&view), error(&view)),
        ("Failed", ("DEADLINE_EXPIRED", true)),
        "retried, then dead-lettered"
    );
    let requests = fixture.requests();
    assert!(requests.iter().all(|request| request.has_deadline()));
    assert_eq!(requests.iter().map(|request| request.attempt()).collect::<Vec<_>>(), [0, 1]);
    let letters = process.dead_letters("a");
    assert_eq!(letters[0].1["lastStatus"], "504 DEADLINE_EXCEEDED");
    assert_eq!(fixture.activity_log().handled(), [], "the handler did not run");
    fixture.set_ahead(Duration::ZERO);
    let charge = json!({"step": "charge"});
    assert_eq!(
        process.invoke(again(&requests[0], &charge)).unwrap(),
        once(&charge["step"]),
        "the failure was not recorded"
    );
}

pub(crate) fn without_a_deadline_no_call_is_late(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let process = fixture.process(&one_task(&json!({"step": "charge"}), 1));
    fixture.set_ahead(AN_HOUR * 24 * 365);
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    let requests = fixture.requests();
    assert_eq!(requests.len(), 1);
    assert!(!requests[0].has_deadline(), "{:?}", requests[0]);
    assert_eq!(fixture.activity_log().handled()[0].deadline, None);
}

/// The attempt ends after its timeout, with or without a deadline. The handler goes on, and has its effect.
pub(crate) fn a_slow_handler_is_not_waited_for_and_not_cut_short(over: ParityTransport) {
    for timeout in [None, Some("PT1H")] {
        let fixture = ParityFixture::new(over);
        let mut definition = one_task(&json!({"do": "wait", "step": "charge"}), 1);
        definition["states"]["Begin"]["attemptTimeout"] = json!("PT0.1S");
        if let Some(timeout) = timeout {
            definition["states"]["Begin"]["timeout"] = json!(timeout);
        }
        let process = fixture.process(&definition);
        let view = process.run("a", json!({})).unwrap();
        assert_eq!((status(&view), error(&view)), ("Failed", ("AttemptTimeout", true)));
        let message = &view.error.as_ref().unwrap().message;
        assert!(message.ends_with("timed out after 100 ms"), "{message}");
        let letters = process.dead_letters("a");
        assert_eq!((letters.len(), &letters[0].1["outcomeUnknown"]), (1, &json!(true)));
        assert_eq!(fixture.requests()[0].has_deadline(), timeout.is_some());
        if over == ParityTransport::Local {
            // In process the future of the handler is dropped; a service has one of its own.
            continue;
        }
        fixture.wait_for_waiting_handler();
        fixture.activity_log().go.add_permits(1);
        fixture.wait_until("the effect", || fixture.effect_counts().len() == 1);
    }
}
