//! The reason in the dead letter of a call is the reason why there was no further attempt, whatever happened to the run
//! meanwhile.

use abide_dispatch::{AttemptResult, CallFailure};
use abide_store::tables::TableId;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::calls::one_patient;
use crate::harness::{ShardHarness, task_state};

#[test]
fn a_code_that_the_policy_does_not_retry_is_recorded_as_non_retryable_and_not_as_exhausted() {
    for (code, reason) in [("Closed", "non_retryable"), ("Busy", "retry_exhausted")] {
        let mut harness = ShardHarness::new();
        let mut state = task_state("End");
        state["retryPolicy"] =
            json!({"maxAttempts": 1, "initialInterval": "PT1S", "nonRetryable": ["Closed"]});
        harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
        harness.start("one", "a");
        harness.finish_attempt(AttemptResult::Failed(CallFailure::retryable(code, "")));
        harness.advance_clock(1_000);
        let letter: Value = serde_json::from_str(&harness.dead_letters()[0].original_message).unwrap();
        assert_eq!(letter["terminalReason"], reason, "{code}");
        harness.check();
    }
}

#[test]
fn an_activity_that_uses_reserved_codes_does_not_decide_the_reason() {
    for code in ["Timeout", "Poison"] {
        for reloaded in [false, true] {
            let mut harness = ShardHarness::new();
            one_patient(&harness);
            harness.start("one", "a");
            harness.send_message("a", Message::Suspend { reason: String::new() });
            harness.finish_attempt(AttemptResult::Failed(
                CallFailure::retryable(code, "").with_status("500 INTERNAL"),
            ));
            if reloaded {
                harness.crash();
            }
            harness.send_message("a", Message::Resume { reason: String::new() });
            harness.advance_clock(60_000);
            harness.finish_attempt(AttemptResult::Failed(
                CallFailure::permanent("Bad", "").with_status("400 INVALID_ARGUMENT"),
            ));
            harness.advance_clock(1_000);
            let letter: Value = serde_json::from_str(&harness.dead_letters()[0].original_message).unwrap();
            let diagnostics = (&letter["terminalReason"], &letter["outcomeUnknown"], &letter["attempts"]);
            assert_eq!(diagnostics, (&json!("non_retryable"), &json!(false), &json!(2)), "{code} {reloaded}");
            harness.check();
        }
    }
    // Held, permanent, with its own message, and loaded again.
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["timeout"] = json!("PT1H");
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.send_message("a", Message::Suspend { reason: String::new() });
    harness.finish_attempt(AttemptResult::Failed(CallFailure::permanent("Timeout", "its own")));
    harness.crash();
    harness.send_message("a", Message::Resume { reason: String::new() });
    harness.advance_clock(1_000);
    assert!(harness.dead_letters()[0].original_message.contains("\"non_retryable\""));
    // Held, and no attempt is left when the run is resumed.
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["timeout"] = json!("PT30S");
    state["retryPolicy"] = json!({"maxAttempts": 1, "initialInterval": "PT1S"});
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.send_message("a", Message::Suspend { reason: String::new() });
    harness.finish_attempt(AttemptResult::Failed(CallFailure::retryable("Timeout", "its own")));
    harness.crash();
    harness.send_message("a", Message::Resume { reason: String::new() });
    harness.advance_clock(1_000);
    assert!(harness.dead_letters()[0].original_message.contains("\"retry_exhausted\""));
}

#[test]
fn a_deadline_that_passes_while_a_retry_waits_ends_the_step() {
    type Meanwhile = fn(&mut ShardHarness);
    let meanwhile: [(&str, Meanwhile); 3] = [
        ("no shard was running", |harness| harness.jump_clock(31_000)),
        ("it was down", |harness| {
            harness.jump_clock(31_000);
            harness.crash();
        }),
        ("it was suspended", |harness| {
            harness.send_message("a", Message::Suspend { reason: String::new() });
            harness.jump_clock(31_000);
            harness.crash();
            harness.send_message("a", Message::Resume { reason: String::new() });
        }),
    ];
    for (what, meanwhile) in meanwhile {
        let mut harness = ShardHarness::new();
        let mut state = task_state("End");
        state["timeout"] = json!("PT30S");
        harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
        harness.start("one", "a");
        harness.finish_attempt(AttemptResult::Failed(
            CallFailure::retryable("Busy", "").with_status("500 INTERNAL"),
        ));
        meanwhile(&mut harness);
        harness.advance_clock(1_000);
        assert_eq!((harness.status("a").as_str(), harness.calls.len()), ("Failed", 0), "{what}");
        assert_eq!(harness.keys(TableId::Call).len(), 0, "{what}");
        let letters = harness.dead_letters();
        assert_eq!(letters.len(), 1, "{what}");
        let letter: Value = serde_json::from_str(&letters[0].original_message).unwrap();
        assert_eq!(letter["terminalReason"], "deadline_expired", "{what}");
        assert_eq!(letter["attempts"], 1, "{what}");
        assert_eq!(letter["lastStatus"], "500 INTERNAL", "{what}: the last response");
        harness.check();
    }
}

#[test]
fn an_attempt_that_runs_into_the_deadline_has_the_same_reason_if_its_run_was_suspended_or_reloaded() {
    let timed_out =
        || AttemptResult::Failed(CallFailure::retryable("AttemptTimeout", "").with_outcome_unknown());
    for (suspended, reloaded) in [(false, false), (true, false), (true, true)] {
        let mut harness = ShardHarness::new();
        let mut state = task_state("End");
        state["timeout"] = json!("PT5S");
        harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
        harness.start("one", "a");
        if suspended {
            harness.send_message("a", Message::Suspend { reason: String::new() });
        }
        harness.jump_clock(5_000);
        harness.finish_attempt(timed_out());
        if reloaded {
            harness.crash();
        }
        if suspended {
            harness.send_message("a", Message::Resume { reason: String::new() });
        }
        harness.advance_clock(1_000);
        assert_eq!(harness.status("a"), "Failed");
        let letter: Value = serde_json::from_str(&harness.dead_letters()[0].original_message).unwrap();
        let diagnostics = (&letter["terminalReason"], &letter["outcomeUnknown"], &letter["attempts"]);
        assert_eq!(
            diagnostics,
            (&json!("deadline_expired"), &json!(true), &json!(1)),
            "{suspended} {reloaded}"
        );
        harness.check();
    }
}

#[test]
fn a_call_not_sent_because_of_its_deadline_is_a_timeout_also_if_the_clock_was_set_back() {
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["timeout"] = json!("PT5S");
    state["onError"] = json!([{"match": ["Timeout"], "next": "End"}]);
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.jump_clock(5_000);
    harness.wall_clock_ahead_ms = -60_000;
    let expired = CallFailure::permanent(abide_dispatch::transport::DEADLINE_EXCEEDED, "").with_not_sent();
    harness.finish_attempt(AttemptResult::Failed(expired));
    harness.advance_clock(1_000);
    assert_eq!(harness.status("a"), "Completed", "caught as a timeout");
    let letter: Value = serde_json::from_str(&harness.dead_letters()[0].original_message).unwrap();
    assert_eq!((&letter["terminalReason"], &letter["attempts"]), (&json!("deadline_expired"), &json!(0)));
    harness.check();
}

#[test]
fn a_bare_status_code_says_nothing_about_earlier_attempts() {
    for (status, unknown) in [("404", true), ("302", true), ("404 NOT_FOUND", false)] {
        let mut harness = ShardHarness::new();
        one_patient(&harness);
        harness.start("one", "a");
        harness.finish_attempt(AttemptResult::Failed(
            CallFailure::retryable("ConnectionLost", "").with_outcome_unknown(),
        ));
        harness.advance_clock(60_000);
        harness.finish_attempt(AttemptResult::Failed(CallFailure::permanent("No", "").with_status(status)));
        harness.advance_clock(1_000);
        let letter: Value = serde_json::from_str(&harness.dead_letters()[0].original_message).unwrap();
        assert_eq!(letter["outcomeUnknown"], unknown, "{status}");
        harness.check();
    }
}
