//! Calls that end without success: retries are used up, or nobody waits any more.

use abide_dispatch::journal::FinalReason;
use abide_runtime::run::CallState;
use abide_store::tables::engine_dlq::DeadLetterStatus;
use abide_workflow::Message;
use serde_json::{Value, json};

use super::{error, status};
use crate::over::{Over, WORK};
use crate::process::one_task;
use crate::world::{World, now};

pub(crate) fn retries_that_are_used_up_end_in_a_dead_letter(over: Over) {
    let world = World::new(over);
    let process = world.process(&one_task(&json!({"do": "fail", "status": "UNAVAILABLE"}), 3));
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", ("UNAVAILABLE", true)));
    let told: Vec<u32> = world.arrivals().iter().map(|arrival| arrival.attempt()).collect();
    assert_eq!(told, [0, 1, 2]);
    assert_eq!(world.book().ran().len(), 3);
    let calls = process.calls("a");
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0].state, calls[0].attempt),
        (&CallState::FailedFinal(FinalReason::RetryExhausted), 2)
    );
    // Scheme, host and port: paths are nobody's business.
    let target = over.endpoint(WORK, world.address).map(|_| format!("http://{}", world.address));
    assert_eq!(calls[0].transport_and_target(), (over.word(), target.as_deref()));
    let letters = process.letters("a");
    assert_eq!(letters.len(), 1);
    let (letter, message) = &letters[0];
    assert_eq!((letter.dequeue_count, letter.status), (3, DeadLetterStatus::Pending));
    assert!(letter.error_message.contains("as asked"), "{}", letter.error_message);
    for (name, value) in [
        ("executionId", json!("a/1")),
        ("activity", json!(WORK)),
        ("terminalReason", json!("retry_exhausted")),
        ("transport", json!(over.word())),
        ("target", json!(target)),
        ("attempts", json!(3)),
        ("lastStatus", json!("503 UNAVAILABLE")),
        ("idempotencyKey", json!(world.book().ran()[0].idempotency_key)),
    ] {
        assert_eq!(message[name], value, "{name}");
    }
    assert_eq!(world.effects().len(), 0);
}

pub(crate) fn a_service_may_ask_for_patience(over: Over) {
    const HALF_AN_HOUR_MS: i64 = 30 * 60_000;
    for status in ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "ABORTED"] {
        let world = World::new(over);
        let process =
            world.process(&one_task(&json!({"do": "fail", "status": status, "waitMs": HALF_AN_HOUR_MS}), 3));
        let began = now();
        process.start("a", json!({}));
        world.until("the failure to be recorded", || process.next_attempt_at("a").is_some());
        let waits_from = process.next_attempt_at("a").unwrap() - HALF_AN_HOUR_MS;
        assert!(
            (began..=now()).contains(&waits_from),
            "{status}: since {began} until {}: {waits_from}",
            now()
        );
        assert_eq!(world.arrivals().len(), 1);
    }
    // Not beyond the deadline: then there is no other delivery.
    let world = World::new(over);
    let mut limited = one_task(&json!({"do": "fail", "status": "UNAVAILABLE", "waitMs": HALF_AN_HOUR_MS}), 3);
    limited["states"]["Begin"]["timeout"] = json!("PT20M");
    let process = world.process(&limited);
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", ("Timeout", false)));
    assert_eq!((world.arrivals().len(), process.letters("a").len()), (1, 1));
}

pub(crate) fn a_call_that_nobody_waits_for_is_dropped(over: Over) {
    let world = World::new(over);
    let mut definition = one_task(&json!({"do": "wait", "step": "charge"}), 5);
    // Longer than anything is waited for here: what ends it is not its own limit.
    definition["states"]["Begin"]["attemptTimeout"] = json!("PT10M");
    let process = world.process(&definition);
    process.start("a", json!({}));
    world.one_waits();
    assert_eq!(process.under_way(), 1);
    process.order("a", &Message::Terminate { reason: "enough".to_owned() });
    assert_eq!(status(&process.ended("a")), "Terminated");
    // The activity still waits: what is not under way any more was given up by the node.
    world.until("the delivery to be dropped", || process.under_way() == 0);
    let calls = process.calls("a");
    assert_eq!((calls.len(), &calls[0].state), (1, &CallState::FailedFinal(FinalReason::Cancelled)));
    assert_eq!(process.letters("a"), Vec::<(_, Value)>::new(), "cancelled is not failed");
    // What the receiver has begun it ends; nobody is told, and nobody asks again.
    world.book().go.add_permits(1);
    world.until("the effect", || world.effects().into_values().eq([1]));
    world.until_quiet();
    assert_eq!((world.arrivals().len(), world.book().ran().len()), (1, 1), "nothing was tried again");
    assert_eq!(status(&process.ended("a")), "Terminated");
}
