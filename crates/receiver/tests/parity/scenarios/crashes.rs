//! The node process crashes at every commit of a run, right before it and right after it, and another takes over.
//!
//! In a run of three tasks the second fails once. In another run one task fails permanently, and one exhausts its
//! retries. In a third run one task is cancelled, and one exceeds its deadline. So the commits contain every transition
//! of the call journal: recorded and sent, completed, failed with a retry, sent again, settled, and dead-lettered for
//! each reason.

use std::collections::BTreeMap;

use abide_dispatch::IdempotencyKey;
use abide_dispatch::call_journal::FinalReason;
use abide_runtime::run::CallState;
use abide_store::tables::calls::CallRowState;
use serde_json::{Value, json};

use super::status;
use crate::counting_handler::ReceivedRequest;
use crate::crashing_store::CrashPoint;
use crate::fixture::{ParityFixture, call_records, settled_calls};
use crate::node_process::{NodeProcess, task, workflow};
use crate::transport::{ParityTransport, WORK};

/// Taking the shard, starting the run, a result of each task, and a failure and another attempt of one.
const COMMITS: u64 = 7;
/// Taking the shard, starting the run, the end of both tasks, and two failures and further attempts of one.
const COMMITS_GIVEN_UP: u64 = 8;
/// Taking the shard, starting the run, a failure that cancels another call, and the end of the last.
const COMMITS_CUT_SHORT: u64 = 4;
/// An undisturbed run has fewer commits, even with those of other parts of the node.
const COMMITS_MAX: u64 = 64;

const BEFORE: &str = "before";
const MOMENTS: [&str; 2] = [BEFORE, "after"];

/// State and attempt of open calls when the process crashed, by idempotency key.
type Records = BTreeMap<IdempotencyKey, (CallRowState, u32)>;

pub(crate) fn a_crash_at_any_commit_loses_and_repeats_nothing(over: ParityTransport) {
    for moment in MOMENTS {
        let observed =
            at_every_commit(moment, COMMITS, |crash_point, when| survived(over, crash_point, when));
        let observed: Vec<_> = observed.into_iter().flat_map(Records::into_values).collect();
        let sent = observed.iter().filter(|record| record.0 == CallRowState::Sent).count();
        assert!(sent >= 4, "{moment}: four attempts are recorded before they are made: {observed:?}");
        assert!(observed.contains(&(CallRowState::Sent, 1)), "{moment}: {observed:?}");
        assert!(observed.contains(&(CallRowState::FailedRetryable, 0)), "{moment}: {observed:?}");
    }
}

pub(crate) fn a_crash_at_any_commit_dead_letters_once(over: ParityTransport) {
    for moment in MOMENTS {
        let observed =
            at_every_commit(moment, COMMITS_GIVEN_UP, |crash_point, when| gave_up(over, crash_point, when));
        // After the end of the last call there may be nothing to commit.
        let settled_max = if moment == BEFORE { 1 } else { 2 };
        for settled in 0..=settled_max {
            assert!(
                observed.contains(&settled),
                "{moment}: no crash with {settled} settled calls: {observed:?}"
            );
        }
    }
}

pub(crate) fn a_crash_at_any_commit_cancels_and_expires_once(over: ParityTransport) {
    for moment in MOMENTS {
        let observed = at_every_commit(moment, COMMITS_CUT_SHORT, |crash_point, when| {
            cut_short(over, crash_point, when)
        });
        for settled in [0, 2] {
            assert!(
                observed.contains(&settled),
                "{moment}: no crash with {settled} settled calls: {observed:?}"
            );
        }
    }
}

/// Crashes processes at the first commit, the second and so on, until one ends undisturbed. Returns what `survive`
/// observed for each crash.
fn at_every_commit<T>(
    moment: &str,
    commits: u64,
    mut survive: impl FnMut(CrashPoint, &str) -> Option<T>,
) -> Vec<T> {
    let mut observed = Vec::new();
    for last in 1..COMMITS_MAX {
        let at = Box::new(move |number| number == last);
        let crash_point = if moment == BEFORE { CrashPoint::Before(at) } else { CrashPoint::After(at) };
        match survive(crash_point, &format!("crash {moment} commit {last}")) {
            Some(one) => observed.push(one),
            None => {
                assert!(last > commits, "only {} commits to crash {moment}", last - 1);
                return observed;
            }
        }
    }
    panic!("the run does not end within {COMMITS_MAX} commits");
}

/// Crashes a process and lets another take over. Returns the open calls in between, or `None` if the run ended before.
fn survived(over: ParityTransport, crash_point: CrashPoint, when: &str) -> Option<Records> {
    let fixture = ParityFixture::new(over);
    let three = three_tasks();
    let dying = fixture.start_until_crash(&three, Some(crash_point));
    if let Some(view) = dying.run("a", json!({})) {
        assert_eq!(view.output.as_deref(), Some(&result()), "undisturbed");
        return None;
    }
    drop(dying);
    fixture.wait_until_idle();
    let records = call_records(&fixture.rows);
    let process = fixture.process(&three);
    if !process.has_instance("a") {
        assert!(records.is_empty(), "{when}: a call without a run");
        process.start("a", json!({}));
    }
    let view = process.wait_for_end("a");
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&result())), "{when}");
    assert_eq!(process.calls("a").len(), 3, "{when}");
    let last = |step: &str, record: Option<&(_, u32)>| {
        record.map_or(0, |(_, attempt)| attempt + 1).max(u32::from(step == "Two"))
    };
    check_attempts(&fixture, &process, &records, last, when);
    let effects = fixture.effect_counts();
    assert_eq!(effects.values().copied().collect::<Vec<_>>(), [1, 1, 1], "{when}: {effects:?}");
    Some(records)
}

/// Checks that every attempt that may have been made is counted, and nothing else. `last` derives the last attempt of a
/// step from its record.
fn check_attempts(
    fixture: &ParityFixture,
    process: &NodeProcess,
    records: &Records,
    last: fn(&str, Option<&(CallRowState, u32)>) -> u32,
    when: &str,
) {
    let requests = fixture.requests();
    for call in process.calls("a") {
        let key = call.idempotency_key.to_string();
        let step = &call.step;
        let last = last(step, records.get(&call.idempotency_key));
        assert_eq!(call.attempt, last, "{when}: attempts of {step} as recorded");
        let received = requests.iter().filter(|request| request.idempotency_key() == key.as_bytes());
        let received: Vec<u32> = received.map(|request| request.attempt()).collect();
        assert!(received.is_sorted_by(|one, next| one < next), "{when}: {step} got attempts {received:?}");
        assert_eq!(received.last(), Some(&last), "{when}: {step} got attempts {received:?}");
    }
}

/// Crashes a process and lets another take over, in a run whose calls are dead-lettered. Returns the number of settled
/// calls in between, or `None` if the run ended before and its dead letters were in the public table.
fn gave_up(over: ParityTransport, crash_point: CrashPoint, when: &str) -> Option<usize> {
    let fixture = ParityFixture::new(over);
    let failing = hopeless_tasks();
    let dying = fixture.start_until_crash(&failing, Some(crash_point));
    let undisturbed = dying.run("a", json!({})).is_some() && dying.is_shown();
    drop(dying);
    fixture.wait_until_idle();
    let records = call_records(&fixture.rows);
    let settled = settled_calls(&fixture.rows);
    let received = fixture.requests().len();
    let process = fixture.process(&failing);
    if !process.has_instance("a") {
        assert!(records.is_empty(), "{when}: a call without a run");
        process.start("a", json!({}));
    }
    check_given_up(&fixture, &process, when);
    // An attempt whose outcome was lost with the process uses up no retry.
    let last = |step: &str, record: Option<&(CallRowState, _)>| {
        let is_lost = record.is_some_and(|(state, _)| *state == CallRowState::Sent);
        u32::from(is_lost) + if step == "Exhausted" { 2 } else { 0 }
    };
    check_attempts(&fixture, &process, &records, last, when);
    let requests = fixture.requests();
    let is_settled =
        |request: &&ReceivedRequest| settled.iter().any(|key| key.as_bytes() == request.idempotency_key());
    let again: Vec<_> = requests.iter().skip(received).filter(is_settled).collect();
    assert!(again.is_empty(), "{when}: sent although the call was settled: {again:?}");
    (!undisturbed).then_some(settled.len())
}

/// Checks that the run ended as expected, and that each call failed for its reason, with one dead letter.
fn check_given_up(fixture: &ParityFixture, process: &NodeProcess, when: &str) {
    let view = process.wait_for_end("a");
    assert_eq!(
        (status(&view), view.output.as_deref()),
        ("Completed", Some(&json!("caught twice"))),
        "{when}"
    );
    let reasons = [("Begin", FinalReason::NonRetryable), ("Exhausted", FinalReason::RetryExhausted)];
    let calls = process.calls("a");
    let letters = process.dead_letters("a");
    assert_eq!((calls.len(), letters.len()), (2, 2), "{when}: {letters:?}");
    for ((step, reason), call) in reasons.into_iter().zip(calls) {
        let terminal_reason = reason.as_str();
        assert_eq!((call.step.as_str(), &call.state), (step, &CallState::FailedFinal(reason)), "{when}");
        let key = json!(call.idempotency_key.to_string());
        let of_call: Vec<_> =
            letters.iter().filter(|(_, message)| message["idempotencyKey"] == key).collect();
        assert_eq!(of_call.len(), 1, "{when}: dead letters of {step}");
        let (letter, message) = of_call[0];
        assert_eq!(message["terminalReason"], terminal_reason, "{when}: {step}");
        assert_eq!(letter.dequeue_count, call.attempt + 1, "{when}: {step}");
    }
    assert_eq!(fixture.effect_counts().len(), 0, "{when}");
}

/// Like [`gave_up`], in a run where the failure of one call cancels another, and a third exceeds its deadline.
fn cut_short(over: ParityTransport, crash_point: CrashPoint, when: &str) -> Option<usize> {
    let fixture = ParityFixture::new(over);
    let definition = waiting_tasks();
    let dying = fixture.start_until_crash(&definition, Some(crash_point));
    let undisturbed = dying.run("a", json!({})).is_some() && dying.is_shown();
    drop(dying);
    fixture.wait_until_idle();
    let settled = settled_calls(&fixture.rows);
    let process = fixture.process(&definition);
    if !process.has_instance("a") {
        assert!(call_records(&fixture.rows).is_empty(), "{when}: a call without a run");
        process.start("a", json!({}));
    }
    let view = process.wait_for_end("a");
    assert_eq!(
        (status(&view), view.output.as_deref()),
        ("Completed", Some(&json!("caught twice"))),
        "{when}"
    );
    let calls = process.calls("a");
    let letters = process.dead_letters("a");
    let mut reasons: Vec<_> = calls.iter().map(|call| (call.step.as_str(), call.state.clone())).collect();
    reasons.sort_by_key(|(step, _)| *step);
    let failed = |step, reason| (step, CallState::FailedFinal(reason));
    assert_eq!(
        reasons,
        [
            failed("Begin/branches/0/Hang", FinalReason::Cancelled),
            failed("Begin/branches/1/Fail", FinalReason::NonRetryable),
            failed("Late", FinalReason::DeadlineExpired),
        ],
        "{when}"
    );
    let mut terminal_reasons: Vec<_> =
        letters.iter().map(|(_, message)| message["terminalReason"].as_str()).collect();
    terminal_reasons.sort_unstable();
    assert_eq!(
        terminal_reasons,
        [Some("deadline_expired"), Some("non_retryable")],
        "{when}: a cancelled call has no dead letter"
    );
    assert_eq!(fixture.effect_counts().len(), 0, "{when}");
    (!undisturbed).then_some(settled.len())
}

fn three_tasks() -> Value {
    let step = |input: Value, next: &str| {
        let mut task = task(WORK, &input, 5, next);
        task["output"] = json!(format!("$.state.{}", input["step"].as_str().unwrap()));
        task
    };
    let failing_once = json!({"step": "two", "do": "fail", "status": "UNAVAILABLE", "times": 1});
    workflow(&json!({
        "Begin": step(json!({"step": "one"}), "Two"),
        "Two": step(failing_once, "Three"),
        "Three": step(json!({"step": "three"}), "Done"),
        "Done": {"type": "succeed", "output": ["$.state.one", "$.state.two", "$.state.three"]},
    }))
}

/// One task fails permanently, the other until its retries are exhausted, and both errors are caught.
fn hopeless_tasks() -> Value {
    let failing = |status: &str, caught: &str| {
        let mut task = task(WORK, &json!({"do": "fail", "status": status}), 3, "Done");
        task["onError"] = json!(caught);
        task
    };
    workflow(&json!({
        "Begin": failing("INVALID_ARGUMENT", "Exhausted"),
        "Exhausted": failing("UNAVAILABLE", "Caught"),
        "Caught": {"type": "succeed", "output": "caught twice"},
        "Done": {"type": "succeed", "output": "$.state.last"},
    }))
}

/// One task waits until the failure of another cancels it; then one waits until its deadline. No waiting handler is
/// ever released.
fn waiting_tasks() -> Value {
    let branch = |name: &str, input: &Value| {
        let states = json!({name: task(WORK, input, 500, "Out"), "Out": {"type": "succeed"}});
        json!({"startAt": name, "states": states})
    };
    let mut late = task(WORK, &json!({"do": "wait"}), 500, "Done");
    (late["timeout"], late["onError"]) = (json!("PT0.1S"), json!("Caught"));
    workflow(&json!({
        "Begin": {
            "type": "parallel", "onError": "Late", "next": "Done",
            "branches": [
                branch("Hang", &json!({"do": "wait"})),
                branch("Fail", &json!({"do": "fail", "status": "INVALID_ARGUMENT"})),
            ],
        },
        "Late": late,
        "Caught": {"type": "succeed", "output": "caught twice"},
        "Done": {"type": "succeed"},
    }))
}

fn result() -> Value {
    json!([{"step": "one", "times": 1}, {"step": "two", "times": 1}, {"step": "three", "times": 1}])
}
