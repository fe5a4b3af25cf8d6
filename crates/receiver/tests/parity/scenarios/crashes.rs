//! The process of the node dies at every commit of a run of three tasks, right before it and right after it, and another takes over.
//!
//! The second task fails once, so that every transition of the journal is among the commits: promised and sent, answered, failed and to
//! be tried again, sent again, settled.

use std::collections::BTreeMap;

use abide_dispatch::IdempotencyKey;
use abide_store::tables::dispatches::DispatchState;
use serde_json::{Value, json};

use super::status;
use crate::over::{Over, WORK};
use crate::process::{Process, task, workflow};
use crate::store::Death;
use crate::world::{World, recorded};

/// Claiming the shard, beginning the run, an answer of each task, and a failure and another delivery of one.
const COMMITS: u64 = 7;
/// An undisturbed run has fewer, also if others are made beside it.
const COMMITS_MAX: u64 = 64;

/// Where calls stood when the process died.
type Records = BTreeMap<[u8; 32], (DispatchState, u32)>;

pub(crate) fn a_process_that_dies_at_any_commit_loses_and_repeats_nothing(over: Over) {
    let before: fn(u64) -> Death = |last| Death::Before(Box::new(move |number| number == last));
    let after: fn(u64) -> Death = |last| Death::After(Box::new(move |number| number == last));
    for (moment, death) in [("before", before), ("after", after)] {
        let (mut commit, mut met) = (1, Vec::new());
        while let Some(records) = survived(over, death(commit), &format!("dead {moment} commit {commit}")) {
            met.extend(records.into_values());
            commit += 1;
            assert!(commit < COMMITS_MAX, "the run never ends");
        }
        assert!(commit > COMMITS, "it could die {moment} {} commits only", commit - 1);
        let sent = met.iter().filter(|record| record.0 == DispatchState::Sent).count();
        assert!(sent >= 4, "{moment}: four deliveries are recorded before they are made: {met:?}");
        assert!(met.contains(&(DispatchState::Sent, 1)), "{moment}: {met:?}");
        assert!(met.contains(&(DispatchState::FailedRetryable, 0)), "{moment}: {met:?}");
    }
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
    check_journal(&world, &process, &records, when);
    let effects = world.effects();
    assert_eq!(effects.values().copied().collect::<Vec<_>>(), [1, 1, 1], "{when}: {effects:?}");
    Some(records)
}

/// Every delivery that there may have been is counted, and nothing else.
fn check_journal(world: &World, process: &Process, records: &Records, when: &str) {
    let (calls, arrivals) = (process.calls("a"), world.arrivals());
    assert_eq!(calls.len(), 3, "{when}");
    for call in calls {
        let (key, step) = (IdempotencyKey(call.idempotency_key).to_string(), &call.step);
        let next = records.get(&call.idempotency_key).map_or(0, |(_, attempt)| attempt + 1);
        let last = next.max(u32::from(step == "Two"));
        assert_eq!(call.attempt, last, "{when}: attempts of {step} as recorded");
        let told = arrivals.iter().filter(|arrival| arrival.key() == key.as_bytes());
        let told: Vec<u32> = told.map(|arrival| arrival.attempt()).collect();
        assert!(told.is_sorted_by(|one, next| one < next), "{when}: {step} was told {told:?}");
        assert_eq!(told.last(), Some(&last), "{when}: {step} was told {told:?}");
    }
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

fn result() -> Value {
    json!([{"step": "one", "times": 1}, {"step": "two", "times": 1}, {"step": "three", "times": 1}])
}
