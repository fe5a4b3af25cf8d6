//! The process of the node dies at every commit of a run, right before it and right after it, and another takes over.
//!
//! In a run of three tasks the second fails once; in another run one task is refused for good and one is tried until its retries are used
//! up; in a third one is cancelled and one runs into its deadline. So every transition of the journal is among the commits: promised and sent,
//! answered, failed and to be tried again, sent again, settled, given up for each reason with its dead letter.

use std::collections::BTreeMap;

use abide_dispatch::IdempotencyKey;
use abide_dispatch::journal::FinalReason;
use abide_runtime::run::CallState;
use abide_store::tables::dispatches::DispatchState;
use serde_json::{Value, json};

use super::status;
use crate::over::{Over, WORK};
use crate::process::{Process, task, workflow};
use crate::store::Death;
use crate::work::Arrival;
use crate::world::{World, recorded, settled};

/// Claiming the shard, beginning the run, an answer of each task, and a failure and another delivery of one.
const COMMITS: u64 = 7;
/// Claiming the shard, beginning the run, the end of both tasks, and two failures and other deliveries of one.
const COMMITS_GIVEN_UP: u64 = 8;
/// Claiming the shard, beginning the run, a refusal that cancels another call, and the end of the last.
const COMMITS_CUT_SHORT: u64 = 4;
/// An undisturbed run has fewer, also if others are made beside it.
const COMMITS_MAX: u64 = 64;

const BEFORE: &str = "before";
const MOMENTS: [&str; 2] = [BEFORE, "after"];

/// Where calls stood when the process died.
type Records = BTreeMap<[u8; 32], (DispatchState, u32)>;

pub(crate) fn a_process_that_dies_at_any_commit_loses_and_repeats_nothing(over: Over) {
    for moment in MOMENTS {
        let met = at_every_commit(moment, COMMITS, |death, when| survived(over, death, when));
        let met: Vec<_> = met.into_iter().flat_map(Records::into_values).collect();
        let sent = met.iter().filter(|record| record.0 == DispatchState::Sent).count();
        assert!(sent >= 4, "{moment}: four deliveries are recorded before they are made: {met:?}");
        assert!(met.contains(&(DispatchState::Sent, 1)), "{moment}: {met:?}");
        assert!(met.contains(&(DispatchState::FailedRetryable, 0)), "{moment}: {met:?}");
    }
}

pub(crate) fn a_process_that_dies_at_any_commit_gives_up_once(over: Over) {
    for moment in MOMENTS {
        let met = at_every_commit(moment, COMMITS_GIVEN_UP, |death, when| gave_up(over, death, when));
        // After the end of the last call there may be nothing to commit.
        let most = if moment == BEFORE { 1 } else { 2 };
        for settled in 0..=most {
            assert!(met.contains(&settled), "{moment}: it died with so many calls settled: {met:?}");
        }
    }
}

pub(crate) fn a_process_that_dies_at_any_commit_cancels_and_expires_once(over: Over) {
    for moment in MOMENTS {
        let met = at_every_commit(moment, COMMITS_CUT_SHORT, |death, when| cut_short(over, death, when));
        for settled in [0, 2] {
            assert!(met.contains(&settled), "{moment}: it died with so many calls settled: {met:?}");
        }
    }
}

/// Lets processes die at the first commit, at the second and so on, until one has nothing more to commit: what came of each.
fn at_every_commit<T>(
    moment: &str,
    commits: u64,
    mut survive: impl FnMut(Death, &str) -> Option<T>,
) -> Vec<T> {
    let mut met = Vec::new();
    for last in 1..COMMITS_MAX {
        let at = Box::new(move |number| number == last);
        let death = if moment == BEFORE { Death::Before(at) } else { Death::After(at) };
        match survive(death, &format!("dead {moment} commit {last}")) {
            Some(one) => met.push(one),
            None => {
                assert!(last > commits, "it could die {moment} {} commits only", last - 1);
                return met;
            }
        }
    }
    panic!("the run never ends");
}

/// Lets a process die and another take over: where calls stood in between. Nothing if the run ended before.
fn survived(over: Over, death: Death, when: &str) -> Option<Records> {
    let (world, three) = (World::new(over), three_tasks());
    let dying = world.mortal(&three, Some(death));
    if let Some(view) = dying.run("a", json!({})) {
        assert_eq!(view.output.as_deref(), Some(&result()), "undisturbed");
        return None;
    }
    drop(dying);
    world.until_quiet();
    let records = recorded(&world.rows);
    let process = world.process(&three);
    if !process.knows("a") {
        assert!(records.is_empty(), "{when}: a call of no run");
        process.start("a", json!({}));
    }
    let view = process.ended("a");
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&result())), "{when}");
    assert_eq!(process.calls("a").len(), 3, "{when}");
    let last = |step: &str, record: Option<&(_, u32)>| {
        record.map_or(0, |(_, attempt)| attempt + 1).max(u32::from(step == "Two"))
    };
    check_attempts(&world, &process, &records, last, when);
    let effects = world.effects();
    assert_eq!(effects.values().copied().collect::<Vec<_>>(), [1, 1, 1], "{when}: {effects:?}");
    Some(records)
}

/// Every delivery that there may have been is counted, and nothing else: which one of a step is its last follows from its record.
fn check_attempts(
    world: &World,
    process: &Process,
    records: &Records,
    last: fn(&str, Option<&(DispatchState, u32)>) -> u32,
    when: &str,
) {
    let arrivals = world.arrivals();
    for call in process.calls("a") {
        let (key, step) = (IdempotencyKey(call.idempotency_key).to_string(), &call.step);
        let last = last(step, records.get(&call.idempotency_key));
        assert_eq!(call.attempt, last, "{when}: attempts of {step} as recorded");
        let told = arrivals.iter().filter(|arrival| arrival.key() == key.as_bytes());
        let told: Vec<u32> = told.map(|arrival| arrival.attempt()).collect();
        assert!(told.is_sorted_by(|one, next| one < next), "{when}: {step} was told {told:?}");
        assert_eq!(told.last(), Some(&last), "{when}: {step} was told {told:?}");
    }
}

/// Lets a process die and another take over, in a run whose calls are given up: how many were settled in between. Nothing if the run ended
/// before, and its dead letters were there.
fn gave_up(over: Over, death: Death, when: &str) -> Option<usize> {
    let (world, hopeless) = (World::new(over), hopeless_tasks());
    let dying = world.mortal(&hopeless, Some(death));
    let undisturbed = dying.run("a", json!({})).is_some() && dying.is_shown();
    drop(dying);
    world.until_quiet();
    let (records, settled, arrived) = (recorded(&world.rows), settled(&world.rows), world.arrivals().len());
    let process = world.process(&hopeless);
    if !process.knows("a") {
        assert!(records.is_empty(), "{when}: a call of no run");
        process.start("a", json!({}));
    }
    check_given_up(&world, &process, when);
    // A delivery that nobody will tell of uses up no retry.
    let last = |step: &str, record: Option<&(DispatchState, _)>| {
        let untold = record.is_some_and(|(state, _)| *state == DispatchState::Sent);
        u32::from(untold) + if step == "Exhausted" { 2 } else { 0 }
    };
    check_attempts(&world, &process, &records, last, when);
    let arrivals = world.arrivals();
    let is_settled = |arrival: &&Arrival| settled.iter().any(|key| key.as_bytes() == arrival.key());
    let again: Vec<_> = arrivals.iter().skip(arrived).filter(is_settled).collect();
    assert!(again.is_empty(), "{when}: delivered although its end was recorded: {again:?}");
    (!undisturbed).then_some(settled.len())
}

/// The run has ended as it should, and each call was given up for its reason, with one dead letter.
fn check_given_up(world: &World, process: &Process, when: &str) {
    let view = process.ended("a");
    assert_eq!(
        (status(&view), view.output.as_deref()),
        ("Completed", Some(&json!("caught twice"))),
        "{when}"
    );
    let reasons = [("Begin", FinalReason::NonRetryable), ("Exhausted", FinalReason::RetryExhausted)];
    let (calls, letters) = (process.calls("a"), process.letters("a"));
    assert_eq!((calls.len(), letters.len()), (2, 2), "{when}: {letters:?}");
    for ((step, reason), call) in reasons.into_iter().zip(calls) {
        let word = reason.as_str();
        assert_eq!((call.step.as_str(), &call.state), (step, &CallState::FailedFinal(reason)), "{when}");
        let key = json!(IdempotencyKey(call.idempotency_key).to_string());
        let own: Vec<_> = letters.iter().filter(|(_, message)| message["idempotencyKey"] == key).collect();
        assert_eq!(own.len(), 1, "{when}: dead letters of {step}");
        let (letter, message) = own[0];
        assert_eq!(message["terminalReason"], word, "{when}: {step}");
        assert_eq!(letter.dequeue_count, call.attempt + 1, "{when}: {step}");
    }
    assert_eq!(world.effects().len(), 0, "{when}");
}

/// As [`gave_up`], in a run of which one call is cancelled by another's failure, and one runs into its deadline.
fn cut_short(over: Over, death: Death, when: &str) -> Option<usize> {
    let (world, definition) = (World::new(over), waiting_tasks());
    let dying = world.mortal(&definition, Some(death));
    let undisturbed = dying.run("a", json!({})).is_some() && dying.is_shown();
    drop(dying);
    world.until_quiet();
    let settled = settled(&world.rows);
    let process = world.process(&definition);
    if !process.knows("a") {
        assert!(recorded(&world.rows).is_empty(), "{when}: a call of no run");
        process.start("a", json!({}));
    }
    let view = process.ended("a");
    assert_eq!(
        (status(&view), view.output.as_deref()),
        ("Completed", Some(&json!("caught twice"))),
        "{when}"
    );
    let (calls, letters) = (process.calls("a"), process.letters("a"));
    let mut reasons: Vec<_> = calls.iter().map(|call| (call.step.as_str(), call.state.clone())).collect();
    reasons.sort_by_key(|(step, _)| *step);
    let given_up = |step, reason| (step, CallState::FailedFinal(reason));
    assert_eq!(
        reasons,
        [
            given_up("Begin/branches/0/Hang", FinalReason::Cancelled),
            given_up("Begin/branches/1/Fail", FinalReason::NonRetryable),
            given_up("Late", FinalReason::DeadlineExpired),
        ],
        "{when}"
    );
    let mut told: Vec<_> = letters.iter().map(|(_, message)| message["terminalReason"].as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, [Some("deadline_expired"), Some("non_retryable")], "{when}: cancelled is not failed");
    assert_eq!(world.effects().len(), 0, "{when}");
    (!undisturbed).then_some(settled.len())
}

fn three_tasks() -> Value {
    let step = |input: Value, next: &str| {
        let mut task = task(WORK, &input, 5, next);
        task["output"] = json!(format!("$.state.{}", input["step"].as_str().unwrap()));
        task
    };
    let shaky = json!({"step": "two", "do": "fail", "status": "UNAVAILABLE", "times": 1});
    workflow(&json!({
        "Begin": step(json!({"step": "one"}), "Two"),
        "Two": step(shaky, "Three"),
        "Three": step(json!({"step": "three"}), "Done"),
        "Done": {"type": "succeed", "output": ["$.state.one", "$.state.two", "$.state.three"]},
    }))
}

/// One task is refused for good, the other until its retries are used up, and both are caught.
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

/// One task waits until the other's refusal cancels it; then one waits until its deadline. What waits is never let go.
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
