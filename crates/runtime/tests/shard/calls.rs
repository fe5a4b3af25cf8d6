//! Calls: recorded before they are sent, settled by their result, and never counted too low.

use abide_dispatch::{AttemptResult, CallFailure};
use abide_runtime::{OperatorEvent, ShardReply};
use abide_store::tables::calls::{CallRow, CallRowState};
use abide_store::tables::{TableId, decode};
use abide_workflow::Message;
use abide_workflow::history::{KeyChoice, KeyReason};
use serde_json::json;

use crate::harness::{ShardHarness, failure, task_state};

fn one(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

/// As [`one`], with more attempts allowed than any of these tests makes.
pub(crate) fn one_patient(harness: &ShardHarness) {
    let mut state = task_state("End");
    let policy = json!({"maxAttempts": 20, "initialInterval": "PT1S", "maxInterval": "PT10S"});
    state.as_object_mut().unwrap().insert("retryPolicy".to_owned(), policy);
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
}

#[test]
fn a_call_is_repeated_after_a_crash_with_the_same_key_and_the_next_attempt_number() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    let first = harness.calls[0].1.metadata.clone();
    for attempt in 1..4 {
        harness.crash();
        let again = &harness.calls[0].1.metadata;
        assert_eq!((again.retry_attempt, &again.idempotency_key), (attempt, &first.idempotency_key));
        assert_eq!(again.correlation_id, "a");
    }
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed");
    assert_eq!(harness.keys(TableId::Call), []);
    harness.check();
}

#[test]
fn a_call_that_never_gets_a_response_is_dead_lettered_after_five_attempts() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    for _ in 0..4 {
        assert_eq!(harness.status("a"), "Running");
        harness.crash();
    }
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 4);
    harness.crash();
    assert_eq!(harness.status("a"), "Failed");
    assert_eq!(harness.calls.len(), 0);
    let failed =
        |notice: &OperatorEvent| matches!(notice, OperatorEvent::CallFailed(call) if call.attempt == 4);
    assert!(harness.operator_events.iter().any(failed), "{:?}", harness.operator_events);
    harness.check();
}

#[test]
fn the_operator_learns_why_a_call_failed_permanently() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.finish_attempt(failure(false));
    let expected = |notice: &OperatorEvent| {
        matches!(notice, OperatorEvent::CallFailed(call) if call.step == "Start" && call.attempt == 0
            && call.terminal_reason == "non_retryable" && call.failure == "Broken: it is")
    };
    assert!(harness.operator_events.iter().any(expected), "{:?}", harness.operator_events);
    harness.check();
}

#[test]
fn a_retry_keeps_its_delay_over_a_crash_and_a_failure_counts_once() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.finish_attempt(failure(true));
    assert_eq!(harness.calls.len(), 0);
    harness.crash();
    let due = harness.run("a").unwrap().calls[0].1.not_before.unwrap().due_at();
    let wait = due.since(harness.now().wall).0;
    assert!((1..=6_000).contains(&wait), "{wait}");
    harness.advance_clock(wait - 1);
    assert_eq!(harness.calls.len(), 0);
    harness.advance_clock(1);
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 1);
    harness.finish_attempt(failure(true));
    harness.advance_clock(20_000);
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 2);
    harness.finish_attempt(failure(true));
    assert_eq!(harness.status("a"), "Failed", "three attempts are the default");
    harness.check();
}

#[test]
fn a_suspended_run_holds_a_result_and_continues_when_it_is_resumed() {
    for (result, ends) in
        [(AttemptResult::Completed(json!(1).into()), "Completed"), (failure(false), "Failed")]
    {
        let mut harness = ShardHarness::new();
        one(&harness);
        harness.start("one", "a");
        harness.send_message("a", Message::Suspend { reason: String::new() });
        harness.finish_attempt(result);
        assert_eq!(harness.status("a"), "Suspended");
        harness.crash();
        assert_eq!(harness.calls.len(), 0, "it has a result");
        harness.send_message("a", Message::Resume { reason: String::new() });
        assert_eq!(harness.status("a"), ends);
        harness.check();
    }
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.send_message("a", Message::Suspend { reason: String::new() });
    harness.finish_attempt(failure(true));
    harness.send_message("a", Message::Resume { reason: String::new() });
    harness.advance_clock(10_000);
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 1, "a retryable failure is retried");
}

/// A failure that asks for a retry after this delay.
fn later(wait_ms: u64) -> AttemptResult {
    AttemptResult::Failed(CallFailure {
        retry_after_ms: Some(wait_ms),
        ..CallFailure::retryable("Busy", "come back later")
    })
}

#[test]
fn retry_after_is_respected_also_over_a_crash() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.finish_attempt(later(60_000));
    for _ in 0..2 {
        harness.advance_clock(29_500);
        assert_eq!(harness.calls.len(), 0, "it is not time yet");
        harness.crash();
    }
    harness.advance_clock(1_001);
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 1);
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn retry_after_counts_from_the_response_and_is_bounded() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.send_message("a", Message::Suspend { reason: String::new() });
    harness.finish_attempt(later(u64::MAX));
    harness.advance_clock(3_590_000);
    harness.send_message("a", Message::Resume { reason: String::new() });
    harness.advance_clock(9_999);
    assert_eq!(harness.calls.len(), 0, "the delay of an hour is not over");
    harness.advance_clock(2);
    assert_eq!(harness.calls.len(), 1, "the delay starts with the response, not with the turn of the run");
    harness.complete_attempt();
    harness.check();
}

#[test]
fn retry_after_beyond_the_deadline_of_the_step_ends_the_step() {
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["timeout"] = json!("PT30S");
    state["onError"] = json!([{"match": ["Timeout"], "next": "End"}]);
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.finish_attempt(later(29_000));
    assert_eq!(harness.status("a"), "Running");
    harness.advance_clock(29_001);
    harness.finish_attempt(later(2_000));
    assert_eq!(
        (harness.status("a").as_str(), harness.calls.len()),
        ("Completed", 0),
        "caught as a timeout, at once"
    );
    harness.advance_clock(1_000);
    assert!(harness.dead_letters()[0].original_message.contains("\"deadline_expired\""));
    harness.check();
}

#[test]
fn an_attempt_of_unknown_outcome_is_probed_until_the_activity_responds() {
    let unknown =
        || AttemptResult::Failed(CallFailure::retryable("AttemptTimeout", "").with_outcome_unknown());
    for suspended in [false, true] {
        let mut harness = ShardHarness::new();
        one_patient(&harness);
        harness.start("one", "a");
        assert!(!harness.calls[0].1.probe_first, "nothing was sent before");
        if suspended {
            harness.send_message("a", Message::Suspend { reason: String::new() });
        }
        harness.finish_attempt(unknown());
        if suspended {
            harness.crash();
            harness.send_message("a", Message::Resume { reason: String::new() });
        }
        harness.advance_clock(60_000);
        assert!(harness.calls[0].1.probe_first);
        harness.finish_attempt(AttemptResult::Failed(
            CallFailure::retryable("ConnectFailed", "").with_not_sent(),
        ));
        harness.crash();
        harness.advance_clock(60_000);
        assert!(harness.calls[0].1.probe_first, "an unreachable activity has said nothing");
        harness.finish_attempt(failure(true));
        harness.advance_clock(60_000);
        assert!(!harness.calls[0].1.probe_first, "an activity that responds knows of all attempts");
        harness.complete_attempt();
        harness.check();
    }
}

#[test]
fn a_rejected_attempt_says_nothing_about_earlier_attempts() {
    let turned_away = |status: &str| CallFailure::retryable(status, "").with_status(status);
    let mut harness = ShardHarness::new();
    one_patient(&harness);
    harness.start("one", "a");
    harness.finish_attempt(AttemptResult::Failed(turned_away("503 UNAVAILABLE")));
    harness.advance_clock(60_000);
    assert!(!harness.calls[0].1.probe_first, "there is nothing to probe");
    harness.finish_attempt(AttemptResult::Failed(
        CallFailure::retryable("ConnectionLost", "").with_outcome_unknown(),
    ));
    for status in ["503", "429 RESOURCE_EXHAUSTED", "503 UNAVAILABLE"] {
        harness.advance_clock(60_000);
        assert!(harness.calls[0].1.probe_first, "{status}");
        harness.finish_attempt(AttemptResult::Failed(turned_away(status)));
    }
    harness.advance_clock(60_000);
    harness.finish_attempt(AttemptResult::Failed(CallFailure { retryable: false, ..turned_away("403") }));
    harness.advance_clock(1_000);
    let letter = harness.dead_letters().remove(0);
    assert!(letter.original_message.contains("\"outcomeUnknown\":true"), "{}", letter.original_message);
    assert_eq!(letter.dequeue_count, 6);
    harness.check();
}

#[test]
fn a_response_after_a_crash_makes_the_outcome_known() {
    let mut harness = ShardHarness::new();
    one_patient(&harness);
    harness.start("one", "a");
    harness.crash();
    harness.advance_clock(1_000);
    assert!(harness.calls[0].1.probe_first);
    harness.finish_attempt(failure(false));
    harness.advance_clock(1_000);
    let letter = harness.dead_letters().remove(0);
    assert!(letter.original_message.contains("\"outcomeUnknown\":false"), "{}", letter.original_message);
    assert_eq!(letter.dequeue_count, 2);
    harness.check();
}

#[test]
fn a_call_that_ends_while_its_run_is_suspended_ends_once() {
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state.as_object_mut().unwrap().insert("timeout".to_owned(), json!("PT30S"));
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.send_message("a", Message::Suspend { reason: String::new() });
    harness.jump_clock(31_000);
    harness.crash();
    harness.advance_clock(60_000);
    let rows = |harness: &ShardHarness| {
        (harness.keys(TableId::HistoryPage).len(), harness.keys(TableId::Part).len())
    };
    let recorded = rows(&harness);
    for _ in 0..3 {
        harness.advance_clock(120_000);
        harness.crash();
    }
    assert_eq!(rows(&harness), recorded, "and is not recorded again");
    harness.send_message("a", Message::Resume { reason: String::new() });
    assert_eq!((harness.status("a").as_str(), harness.keys(TableId::Call).len()), ("Failed", 0));
    harness.advance_clock(1_000);
    let letters = harness.dead_letters();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].original_message.contains("\"deadline_expired\""), "{}", letters[0].original_message);
    harness.check();
}

#[test]
fn a_permanent_failure_that_was_held_is_still_permanent() {
    for reloaded in [false, true] {
        let mut harness = ShardHarness::new();
        one_patient(&harness);
        harness.start("one", "a");
        harness.send_message("a", Message::Suspend { reason: String::new() });
        harness.finish_attempt(failure(false));
        if reloaded {
            harness.crash();
        }
        harness.send_message("a", Message::Resume { reason: String::new() });
        assert_eq!(harness.status("a"), "Failed");
        harness.advance_clock(1_000);
        let letter = harness.dead_letters().remove(0);
        assert!(letter.original_message.contains("\"non_retryable\""), "{}", letter.original_message);
        harness.check();
    }
}

#[test]
fn an_attempt_that_was_not_sent_is_not_counted() {
    let mut harness = ShardHarness::new();
    one_patient(&harness);
    harness.start("one", "a");
    for _ in 0..2 {
        harness
            .finish_attempt(AttemptResult::Failed(CallFailure::retryable("CircuitOpen", "").with_not_sent()));
        harness.crash();
        harness.advance_clock(60_000);
        assert_eq!(harness.calls[0].1.metadata.retry_attempt, 0);
    }
    harness.finish_attempt(failure(true));
    harness.advance_clock(60_000);
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 1);
    harness.crash();
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 2, "this one may have been sent");
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn the_dead_letter_of_a_call_that_was_never_sent_says_so() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    for _ in 0..3 {
        harness.finish_attempt(AttemptResult::Failed(
            CallFailure::retryable("ConnectFailed", "refused").with_not_sent(),
        ));
        harness.advance_clock(60_000);
    }
    assert_eq!(harness.status("a"), "Failed");
    let settled = harness.settled_calls("a");
    assert_eq!((settled[0].attempt, settled[0].sent_at), (0, None));
    let letters = harness.dead_letters();
    assert_eq!(letters[0].dequeue_count, 0, "no attempt was sent");
    harness.check();
}

#[test]
fn a_call_that_was_sent_once_and_then_not_counts_one_attempt() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.finish_attempt(AttemptResult::Failed(
        CallFailure::retryable("ConnectionLost", "").with_outcome_unknown(),
    ));
    for _ in 0..2 {
        harness.advance_clock(60_000);
        harness.finish_attempt(AttemptResult::Failed(
            CallFailure::retryable("ConnectFailed", "").with_not_sent(),
        ));
    }
    harness.advance_clock(1_000);
    assert_eq!(harness.status("a"), "Failed");
    assert_eq!((harness.settled_calls("a")[0].attempt, harness.dead_letters()[0].dequeue_count), (0, 1));
    harness.check();
}

#[test]
fn a_call_that_fails_before_its_next_attempt_keeps_the_earlier_ones() {
    let mut poisoned = ShardHarness::new();
    one(&poisoned);
    poisoned.start("one", "a");
    for _ in 0..5 {
        poisoned.crash();
    }
    let mut expired = ShardHarness::new();
    let mut state = task_state("End");
    state.as_object_mut().unwrap().insert("timeout".to_owned(), json!("PT30S"));
    expired.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    expired.start("one", "a");
    expired.jump_clock(31_000);
    expired.crash();
    for (mut harness, deliveries) in [(poisoned, 5), (expired, 1)] {
        harness.advance_clock(1_000);
        assert_eq!(harness.status("a"), "Failed");
        let letter = harness.dead_letters().remove(0);
        assert_eq!(letter.dequeue_count, deliveries, "{}", letter.original_message);
        assert!(letter.original_message.contains("\"outcomeUnknown\":true"), "{}", letter.original_message);
        assert_eq!(harness.settled_calls("a")[0].attempt + 1, deliveries);
        harness.check();
    }
}

#[test]
fn a_call_whose_result_is_no_longer_needed_is_cancelled() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    harness.send_message("a", Message::Terminate { reason: "enough".to_owned() });
    assert_eq!(harness.cancelled.len(), 1);
    assert_eq!(harness.keys(TableId::Call), []);
    let (id, _) = harness.calls.pop_front().unwrap();
    harness.send_event(abide_runtime::Event::AttemptFinished(id, AttemptResult::Completed(json!(1).into())));
    assert_eq!(harness.status("a"), "Terminated", "a late result changes nothing");
    harness.check();
}

#[test]
fn a_failed_run_that_is_rewound_makes_the_call_again_under_a_new_key() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    let first = harness.finish_attempt(failure(false)).metadata.idempotency_key;
    assert_eq!(harness.status("a"), "Failed");
    harness.send_message("a", Message::Rewind { reason: "mended".to_owned() });
    assert_eq!(harness.status("a"), "Running");
    assert_ne!(harness.complete_attempt().metadata.idempotency_key, first);
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

/// Two attempts of the only task time out, and the run fails.
fn fail_unanswered(harness: &mut ShardHarness) -> String {
    let mut state = task_state("End");
    let policy = json!({"maxAttempts": 2, "initialInterval": "PT1S"});
    state.as_object_mut().unwrap().insert("retryPolicy".to_owned(), policy);
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    let timeout = || {
        let mut timeout = CallFailure::retryable("AttemptTimeout", "no response");
        timeout.outcome_unknown = true;
        AttemptResult::Failed(timeout)
    };
    let key = harness.finish_attempt(timeout()).metadata.idempotency_key;
    harness.advance_clock(2_000);
    assert_eq!(harness.finish_attempt(timeout()).metadata.idempotency_key, key);
    assert_eq!(harness.status("a"), "Failed");
    key
}

#[test]
fn a_call_of_unknown_outcome_is_made_again_under_its_key_when_its_run_is_rewound() {
    let mut harness = ShardHarness::new();
    let key = fail_unanswered(&mut harness);
    harness.crash();
    let reply = harness.send_message("a", Message::Rewind { reason: "mended".to_owned() });
    let ShardReply::Rewound(steps) = reply else { panic!("{reply:?}") };
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].key, steps[0].reason), (KeyChoice::Same, KeyReason::OutcomeUnknown));
    harness.crash();
    let again = harness.calls[0].1.clone();
    assert_eq!((&again.metadata.idempotency_key, again.metadata.retry_attempt), (&key, 1));
    assert!(again.probe_first, "a receiver that can tell is asked first");
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed");
    assert_eq!(harness.settled_calls("a").len(), 2, "each call has its own record");
    harness.check();
}

#[test]
fn a_call_of_unknown_outcome_gets_a_new_key_on_request() {
    let mut harness = ShardHarness::new();
    let key = fail_unanswered(&mut harness);
    harness.send_message("a", Message::RewindWithNewKeys { reason: "mended".to_owned() });
    let again = harness.complete_attempt();
    assert!(again.metadata.idempotency_key != key && !again.probe_first);
    harness.check();
}

#[test]
fn a_call_that_is_answered_after_a_timeout_gets_a_new_key() {
    let mut harness = ShardHarness::new();
    one(&harness);
    harness.start("one", "a");
    let mut timeout = CallFailure::retryable("AttemptTimeout", "no response");
    timeout.outcome_unknown = true;
    let first = harness.finish_attempt(AttemptResult::Failed(timeout)).metadata.idempotency_key;
    harness.advance_clock(6_000);
    harness.finish_attempt(failure(false));
    harness.send_message("a", Message::Rewind { reason: String::new() });
    assert_ne!(harness.complete_attempt().metadata.idempotency_key, first);
    harness.check();
}

#[test]
fn an_attempt_that_runs_into_the_deadline_of_the_step_ends_the_step() {
    let mut harness = ShardHarness::new();
    let mut state = task_state("End");
    state["timeout"] = json!("PT30S");
    harness.publish("one", &json!({"Start": state, "End": {"type": "succeed"}}));
    harness.start("one", "a");
    assert_eq!(harness.calls[0].1.attempt_timeout_ms, 10_000);
    harness.advance_clock(25_000);
    harness.crash();
    assert_eq!(harness.calls[0].1.attempt_timeout_ms, 5_000, "no attempt outlives the step");
    harness.advance_clock(5_000);
    harness.crash();
    assert_eq!((harness.calls.len(), harness.status("a").as_str()), (0, "Failed"));
    let error = harness.run("a").unwrap();
    assert!(format!("{:?}", error.instance.outcome()).contains("Timeout"));
}

/// A task whose input refers to a secret.
fn with_secret(harness: &ShardHarness) {
    let input = json!({"id": "$.input.id", "auth": {"token": {"secretRef": "keyvault://devices/key"}}});
    let state = json!({"type": "task", "activity": "work", "input": input, "next": "End"});
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Call"});
    harness.publish("secretive", &json!({"Start": gate, "Call": state, "End": {"type": "succeed"}}));
}

#[test]
fn a_call_that_needs_an_unresolved_secret_fails_permanently_and_is_not_sent() {
    let mut harness = ShardHarness::new();
    with_secret(&harness);
    harness.start("secretive", "a");
    harness.raise("a", "go");
    assert_eq!((harness.calls.len(), harness.status("a").as_str()), (0, "Failed"));
    let outcome = format!("{:?}", harness.run("a").unwrap().instance.outcome());
    assert!(outcome.contains("SecretUnavailable") && outcome.contains("keyvault://devices/key"), "{outcome}");
    assert_eq!(harness.keys(TableId::Call), []);
    harness.advance_clock(1_000);
    assert_eq!(harness.dead_letters()[0].dequeue_count, 0);
    assert_eq!(harness.settled_calls("a")[0].sent_at, None);
    harness.check();
}

#[test]
fn a_call_that_needs_an_unresolved_secret_is_not_sent_after_a_restart_either() {
    let mut harness = ShardHarness::new();
    with_secret(&harness);
    harness.start("secretive", "a");
    // Both wait until the run is loaded, so the turn that makes the call also suspends the run: the row stays.
    harness.crash();
    let raised = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
    let request_ids = [harness.next_request_id(), harness.next_request_id()];
    let messages = [raised, Message::Suspend { reason: String::new() }];
    let requests = request_ids.into_iter().zip(messages).map(|(request_id, message)| {
        let request = abide_runtime::ShardRequest::SendMessage {
            instance_id: crate::harness::instance_id("a"),
            message,
        };
        abide_runtime::Event::RequestReceived(request_id, request)
    });
    harness.send_events(requests);
    assert_eq!((harness.keys(TableId::Call).len(), harness.status("a").as_str()), (1, "Suspended"));
    let key = harness.keys(TableId::Call).remove(0);
    let row = harness.store.read_now(&harness.partition(), &key).unwrap().unwrap();
    let call: CallRow = decode(&row.value).unwrap();
    assert_eq!(call.state, CallRowState::Pending, "it was never recorded as sent");
    harness.crash();
    harness.send_message("a", Message::Resume { reason: String::new() });
    harness.advance_clock(1_000);
    assert_eq!((harness.calls.len(), harness.status("a").as_str()), (0, "Failed"));
    harness.check();
}

#[test]
fn a_failed_compensation_is_run_again_over_crashes_and_its_dead_letter_stays_pending() {
    let mut harness = ShardHarness::new();
    let undo = json!({"activity": "undo", "input": {"of": 1}});
    let states = json!({
        "Start": {"type": "task", "activity": "work", "next": "Next", "compensateWith": undo},
        "Next": {"type": "task", "activity": "work", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "next": "Failed"},
        "Failed": {"type": "fail"}, "End": {"type": "succeed"}});
    harness.publish("one", &states);
    harness.start("one", "a");
    harness.complete_attempt();
    harness.finish_attempt(failure(false));
    let first = harness.finish_attempt(failure(false));
    assert_eq!((first.activity.as_str(), harness.status("a").as_str()), ("undo", "Failed"));
    harness.crash();
    let retry = || Message::RetryCompensation { reason: "mended".to_owned() };
    assert!(matches!(harness.send_message("a", retry()), ShardReply::Accepted));
    harness.crash();
    assert_eq!(harness.status("a"), "Running");
    let again = harness.complete_attempt();
    assert_eq!((again.activity, &again.input), (first.activity, &first.input));
    assert_ne!(again.metadata.idempotency_key, first.metadata.idempotency_key);
    assert_eq!(harness.status("a"), "Failed");
    assert!(matches!(harness.send_message("a", retry()), ShardReply::Refused(_)));
    harness.advance_clock(1_000);
    let letters = harness.dead_letters();
    let of_undo = letters.iter().filter(|letter| letter.original_queue == "undo");
    assert_eq!(of_undo.map(|letter| letter.status.as_str()).collect::<Vec<_>>(), ["Pending"]);
    harness.check();
}
