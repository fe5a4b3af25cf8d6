//! Calls that end without success: their retries are exhausted, or they are cancelled.

use abide_dispatch::call_journal::FinalReason;
use abide_runtime::run::CallState;
use abide_store::tables::dead_letters::DeadLetterStatus;
use abide_workflow::Message;
use serde_json::{Value, json};

use super::{error, status};
use crate::fixture::{ParityFixture, now};
use crate::node_process::one_task;
use crate::transport::{ParityTransport, WORK};

pub(crate) fn exhausted_retries_end_in_a_dead_letter(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let process = fixture.process(&one_task(&json!({"do": "fail", "status": "UNAVAILABLE"}), 3));
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", ("UNAVAILABLE", true)));
    let attempts: Vec<u32> = fixture.requests().iter().map(|request| request.attempt()).collect();
    assert_eq!(attempts, [0, 1, 2]);
    assert_eq!(fixture.activity_log().handled().len(), 3);
    let calls = process.calls("a");
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0].state, calls[0].attempt),
        (&CallState::FailedFinal(FinalReason::RetryExhausted), 2)
    );
    // Scheme, host and port only: paths are not recorded.
    let target = over.endpoint(WORK, fixture.address).map(|_| format!("http://{}", fixture.address));
    assert_eq!(calls[0].transport_and_target(), (over.recorded_name(), target.as_deref()));
    let letters = process.dead_letters("a");
    assert_eq!(letters.len(), 1);
    let (letter, message) = &letters[0];
    assert_eq!((letter.dequeue_count, letter.status), (3, DeadLetterStatus::Pending));
    assert!(letter.error_message.contains("failed as requested"), "{}", letter.error_message);
    for (name, value) in [
        ("executionId", json!("a/1")),
        ("activity", json!(WORK)),
        ("terminalReason", json!("retry_exhausted")),
        ("transport", json!(over.recorded_name())),
        ("target", json!(target)),
        ("attempts", json!(3)),
        ("lastStatus", json!("503 UNAVAILABLE")),
        ("idempotencyKey", json!(fixture.activity_log().handled()[0].idempotency_key)),
    ] {
        assert_eq!(message[name], value, "{name}");
    }
    assert_eq!(fixture.effect_counts().len(), 0);
}

pub(crate) fn a_service_can_request_a_longer_wait(over: ParityTransport) {
    const HALF_AN_HOUR_MS: i64 = 30 * 60_000;
    for status in ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "ABORTED"] {
        let fixture = ParityFixture::new(over);
        let process = fixture
            .process(&one_task(&json!({"do": "fail", "status": status, "waitMs": HALF_AN_HOUR_MS}), 3));
        let began = now();
        process.start("a", json!({}));
        fixture.wait_until("the failure to be recorded", || process.next_attempt_at("a").is_some());
        let waits_from = process.next_attempt_at("a").unwrap() - HALF_AN_HOUR_MS;
        assert!(
            (began..=now()).contains(&waits_from),
            "{status}: since {began} until {}: {waits_from}",
            now()
        );
        assert_eq!(fixture.requests().len(), 1);
    }
    // If the wait would exceed the deadline, there is no further attempt.
    let fixture = ParityFixture::new(over);
    let mut limited = one_task(&json!({"do": "fail", "status": "UNAVAILABLE", "waitMs": HALF_AN_HOUR_MS}), 3);
    limited["states"]["Begin"]["timeout"] = json!("PT20M");
    let process = fixture.process(&limited);
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", ("Timeout", false)));
    assert_eq!((fixture.requests().len(), process.dead_letters("a").len()), (1, 1));
}

pub(crate) fn a_cancelled_call_is_dropped(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let mut definition = one_task(&json!({"do": "wait", "step": "charge"}), 5);
    // Longer than any wait in these tests, so the attempt timeout does not end the call.
    definition["states"]["Begin"]["attemptTimeout"] = json!("PT10M");
    let process = fixture.process(&definition);
    process.start("a", json!({}));
    fixture.wait_for_waiting_handler();
    assert_eq!(process.open_exchanges(), 1);
    process.send_control("a", &Message::Terminate { reason: "enough".to_owned() });
    assert_eq!(status(&process.wait_for_end("a")), "Terminated");
    // The handler still waits, so it was the node that dropped the attempt.
    fixture.wait_until("the attempt to be dropped", || process.open_exchanges() == 0);
    let calls = process.calls("a");
    assert_eq!((calls.len(), &calls[0].state), (1, &CallState::FailedFinal(FinalReason::Cancelled)));
    assert_eq!(process.dead_letters("a"), Vec::<(_, Value)>::new(), "a cancelled call has no dead letter");
    // The receiver finishes the handler; the node does not get the result and does not retry.
    fixture.activity_log().go.add_permits(1);
    fixture.wait_until("the effect", || fixture.effect_counts().into_values().eq([1]));
    fixture.wait_until_idle();
    assert_eq!(
        (fixture.requests().len(), fixture.activity_log().handled().len()),
        (1, 1),
        "nothing was retried"
    );
    assert_eq!(status(&process.wait_for_end("a")), "Terminated");
}
