//! The journal of calls: the record of settled calls, their dead letters, and calls that reconciliation finds.

use abide_dispatch::{AttemptResult, CallFailure};
use abide_runtime::Event;
use abide_store::tables::calls::AttemptEnd;
use abide_store::tables::decode;
use abide_store::tables::history_pages::{self, CallEnd, HistoryPageRow};
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::harness::{ShardHarness, failure, task_state};

fn one(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

#[test]
fn a_settled_call_is_kept_with_its_attempts_and_its_end() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.finish_attempt(failure(true));
    harness.advance_clock(10_000);
    let call = harness.complete_attempt();
    let settled = harness.settled_calls("a");
    let [record] = &settled[..] else { panic!("{settled:?}") };
    assert_eq!((record.end, record.attempt, record.activity.as_str()), (CallEnd::Acked, 1, "work"));
    assert_eq!(record.step, "Start");
    assert_eq!(record.failure_reason.as_deref(), Some("Broken: it is"), "the earlier failure is recorded");
    assert!(record.sent_at > Some(record.created_at));
    let key = record.idempotency_key.to_string();
    assert_eq!(key, call.metadata.idempotency_key);
    assert!(harness.dead_letters().is_empty());
    harness.check();
}

#[test]
fn an_attempt_that_got_a_response_is_not_called_unanswered() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    let unknown = || CallFailure::retryable("Http500", "boom").with_outcome_unknown();
    harness.finish_attempt(AttemptResult::Failed(unknown().with_status("500")));
    harness.advance_clock(10_000);
    harness.finish_attempt(AttemptResult::Failed(unknown()));
    harness.advance_clock(20_000);
    harness.finish_attempt(AttemptResult::Failed(unknown().with_status("500")));
    assert_eq!(harness.status("a"), "Failed");
    let pages = harness.history_pages("a");
    let failures = pages.iter().flat_map(|page| &page.call_failures);
    let ends: Vec<AttemptEnd> =
        failures.flat_map(|(_, failures)| &failures.past_attempts).map(|past| past.end).collect();
    assert_eq!(ends, [AttemptEnd::Failed, AttemptEnd::Unanswered, AttemptEnd::Failed]);
    harness.advance_clock(1_000);
    let letter = harness.dead_letters().pop().unwrap();
    let message: Value = serde_json::from_str(&letter.original_message).unwrap();
    assert_eq!(message["outcomeUnknown"], true, "that the activity may have run is said elsewhere");
    harness.check();
}

#[test]
fn a_call_that_fails_permanently_is_dead_lettered_with_diagnostics_and_the_run_takes_its_error_path() {
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["onError"] = json!([{"match": ["Broken"], "next": "Else"}]);
    let states = json!({"Start": state, "Else": {"type": "succeed"}, "End": {"type": "succeed"}});
    harness.publish("one", &states);
    harness.start("one", "a");
    let call = harness.finish_attempt(failure(false));
    harness.advance_clock(1_000);
    assert_eq!(harness.status("a"), "Completed");
    let letters = harness.dead_letters();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.engine.as_str(), letter.instance_id.as_str()), ("one", "a"));
    assert_eq!((letter.original_queue.as_str(), letter.dequeue_count), ("work", 1));
    assert_eq!(letter.error_message, "Broken: it is");
    let message: Value = serde_json::from_str(&letter.original_message).unwrap();
    assert_eq!(message["terminalReason"], "non_retryable");
    assert_eq!(message["transport"], "local");
    assert_eq!(message["executionId"], "a/1");
    assert_eq!(message["idempotencyKey"], call.metadata.idempotency_key.as_str());
    // SHA-256 of the bytes {"id":"a"}.
    let digest = "8489a5deb454a360345c7868bca8672de92b446caf3d3b014af6a56e3d549d30";
    assert_eq!((call.input.to_string().as_str(), &message["inputDigest"]), (r#"{"id":"a"}"#, &json!(digest)));
    assert!(letter.row_key.starts_with(&call.metadata.idempotency_key));
    harness.check();
}

#[test]
fn the_reason_tells_exhausted_retries_missing_responses_and_a_missed_deadline_apart() {
    let reason = |harness: &ShardHarness| {
        let letter = harness.dead_letters().pop().unwrap();
        let message: Value = serde_json::from_str(&letter.original_message).unwrap();
        (message["terminalReason"].as_str().unwrap().to_owned(), letter.dequeue_count)
    };
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    for _ in 0..3 {
        harness.finish_attempt(failure(true));
        harness.advance_clock(60_000);
    }
    assert_eq!(reason(&harness), ("retry_exhausted".to_owned(), 3));

    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    for _ in 0..5 {
        harness.crash();
    }
    harness.advance_clock(1_000);
    assert_eq!(reason(&harness), ("poison".to_owned(), 5));

    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["timeout"] = json!("PT30S");
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.advance_clock(31_000);
    harness.crash();
    harness.advance_clock(1_000);
    assert_eq!(reason(&harness).0, "deadline_expired");
}

#[test]
fn a_cancelled_call_is_recorded_as_cancelled_and_is_no_dead_letter() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.send_message("a", Message::Terminate { reason: "enough".to_owned() });
    harness.advance_clock(1_000);
    assert_eq!(
        harness.settled_calls("a").iter().map(|call| call.end).collect::<Vec<_>>(),
        [CallEnd::Cancelled]
    );
    assert!(harness.dead_letters().is_empty());
    harness.check();
}

/// Nothing restarts here: only the row says that there should have been a result.
#[cfg(feature = "faults")]
#[test]
fn reconciliation_finds_an_attempt_that_was_recorded_and_lost() {
    let mut harness =
        ShardHarness::with(|config| config.fault = Some(abide_runtime::fault_injection::Fault::AttemptLost));
    one(&harness);
    harness.start("one", "a");
    assert_eq!((harness.calls.len(), harness.keys(abide_store::tables::TableId::Call).len()), (0, 1));
    let attempt =
        |harness: &ShardHarness| harness.run("a").unwrap().calls.first().map(|(_, call)| call.attempt);
    harness.advance_clock(14_000);
    assert_eq!(attempt(&harness), Some(0), "its result may still arrive");
    harness.advance_clock(60_000);
    assert!(attempt(&harness) > Some(0), "{:?}", attempt(&harness));
    harness.advance_clock(600_000);
    assert_eq!(harness.status("a"), "Failed", "a call whose attempts are lost each time ends as poison");
}

/// A run whose other branch is always busy never leaves memory.
#[cfg(feature = "faults")]
#[test]
fn reconciliation_finds_a_lost_attempt_of_a_busy_run_too() {
    let mut harness =
        ShardHarness::with(|config| config.fault = Some(abide_runtime::fault_injection::Fault::AttemptLost));
    one(&harness);
    harness.start("one", "a");
    let attempt =
        |harness: &ShardHarness| harness.run("a").unwrap().calls.first().map(|(_, call)| call.attempt);
    for _ in 0..60 {
        harness.advance_clock(1_000);
        let event = Message::EventRaised { name: "Noise".to_owned(), payload: json!(null).into() };
        harness.send_message("a", event);
    }
    assert!(attempt(&harness) > Some(0), "{:?}", attempt(&harness));
}

/// The end of each attempt of the call of `a`, open or settled, with its number.
fn attempts(harness: &ShardHarness) -> Vec<(u32, AttemptEnd)> {
    let run = harness.run("a").unwrap();
    let open = run.calls.first().map(|(_, call)| call.past_attempts.clone().into_owned());
    let page = harness.store.scan_now(&harness.partition(), history_pages::of_run(run.row.run_id)).unwrap();
    let pages = page.rows.iter().map(|row| decode::<HistoryPageRow>(&row.value).unwrap());
    let settled =
        pages.flat_map(|page| page.call_failures).map(|(_, trouble)| trouble.past_attempts).next_back();
    let past = open.or(settled).unwrap_or_default();
    assert!(past.iter().all(|past| past.sent_at <= past.ended_at), "{past:?}");
    past.into_iter().map(|past| (past.attempt, past.end)).collect()
}

#[test]
fn every_attempt_is_recorded_with_its_end_until_the_run_is_purged() {
    use AttemptEnd::{Failed, NotSent, Orphaned, Unanswered};
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["retryPolicy"] = json!({"maxAttempts": 4, "initialInterval": "PT1S", "maxInterval": "PT1S"});
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    assert_eq!(attempts(&harness), []);
    harness.crash();
    harness.advance_clock(1_000);
    assert_eq!(attempts(&harness), [(0, Orphaned)]);
    harness
        .finish_attempt(AttemptResult::Failed(CallFailure::retryable("ConnectFailed", "").with_not_sent()));
    harness.advance_clock(2_000);
    harness.finish_attempt(AttemptResult::Failed(CallFailure::retryable("Lost", "").with_outcome_unknown()));
    harness.advance_clock(2_000);
    // A proxy in front of the activity responded; the outcome of earlier attempts stays unknown.
    harness.finish_attempt(AttemptResult::Failed(
        CallFailure::retryable("Busy", "").with_status("429 RESOURCE_EXHAUSTED"),
    ));
    harness.advance_clock(2_000);
    let (id, _) = harness.calls.pop_front().unwrap();
    harness.send_events([Event::Drain, Event::AttemptWithdrawn(id)]);
    harness.crash();
    harness.advance_clock(1_000);
    let so_far = vec![(0, Orphaned), (1, NotSent), (1, Unanswered), (2, Failed), (3, NotSent)];
    assert_eq!(attempts(&harness), so_far);
    harness.finish_attempt(AttemptResult::Failed(
        CallFailure::retryable("Busy", "").with_status("500 INTERNAL"),
    ));
    harness.advance_clock(1_000);
    assert_eq!(harness.status("a"), "Failed");
    assert_eq!(attempts(&harness), [&so_far[..], &[(3, Failed)]].concat());
    harness.check();
}

#[test]
fn a_successful_call_records_no_past_attempts_and_an_endless_one_only_the_last() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.complete_attempt();
    assert_eq!(attempts(&harness), []);
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["retryPolicy"] = json!({"maxAttempts": 50, "initialInterval": "PT1S", "maxInterval": "PT1S"});
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    for _ in 0..40 {
        harness.finish_attempt(failure(true));
        harness.advance_clock(2_000);
    }
    harness.complete_attempt();
    let numbers: Vec<u32> = attempts(&harness).into_iter().map(|(attempt, _)| attempt).collect();
    assert_eq!(numbers, (8..40).collect::<Vec<_>>());
    harness.check();
}
