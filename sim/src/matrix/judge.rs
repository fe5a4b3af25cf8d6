//! Judges the runs of a case: the run without a crash must end as its author expects, and every run with crashes must
//! be the same as that one.

use std::collections::{BTreeMap, BTreeSet};

use abide_workflow::history::Fact;
use abide_workflow::rehearse::Rehearsal;
use abide_workflow::{ParsedDefinition, Plan, Registry};
use serde_json::Value;

use super::CaseRun;
use super::case_activities::ReceivedAttempt;
use super::case_files::Case;
use super::normalised_history::NormalisedHistory;
use super::process::{CaseProcess, INSTANCE};

/// Differences from a rehearsal, which has no storage, no process and no crash.
pub(super) fn differences_from_rehearsal(
    case: &Case,
    process: &CaseProcess<'_>,
) -> Result<Vec<String>, String> {
    let registry = Registry::parse(&case.activities).map_err(|error| error.to_string())?;
    let compile = |text: &String| match ParsedDefinition::parse(text).validate(Some(&registry)) {
        Ok(validated) => Ok(validated.compile()),
        Err(rejected) => Err(format!("{:?}", rejected.findings)),
    };
    let plans = case.definitions.iter().map(compile).collect::<Result<Vec<Plan>, String>>()?;
    let (plan, children) = plans.split_first().ok_or("no definition")?;
    let rehearsal = Rehearsal {
        children: children.iter().map(|plan| (plan.id().to_owned(), plan)).collect(),
        mocks: case.mocks.clone(),
        stimuli: case.stimuli.clone(),
        input: case.input.clone(),
        start: process.start(),
        ..Rehearsal::new(plan)
    };
    let playback = rehearsal.play().map_err(|corrupt| corrupt.to_string())?;
    let mut runs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
    for (id, event) in &playback.timeline {
        if let Fact::ExecutionStarted { run, .. } = &event.fact {
            numbers.insert(id.to_string(), run.0);
        }
        let number = numbers.get(id.as_str()).copied().unwrap_or(1);
        let mut event = serde_json::to_value(event).unwrap_or_default();
        // A rehearsal does not pass the correlation id on to children.
        if let Some(trace) = event.get_mut("correlationId") {
            *trace = INSTANCE.into();
        }
        runs.entry(format!("{id}/{number}")).or_default().push(event);
    }
    let mut rehearsed = NormalisedHistory::default();
    for (run, history) in &runs {
        rehearsed.add(run, history);
    }
    Ok(rehearsed.differences(&process.case_store.normalised_history()))
}

/// Differences of the run without a crash from `expect.json`.
pub(super) fn differences_from_expected(case: &Case, process: &CaseProcess<'_>) -> Vec<String> {
    let Some((status, output, error)) = process.case_store.run_outcome(&process.id) else {
        return vec!["the instance does not exist".to_owned()];
    };
    let mut differences = Vec::new();
    let expected = |name: &str| case.expected.get(name);
    if expected("status").is_some_and(|expected| *expected != status) {
        differences.push(format!("its status is {status}"));
    }
    if expected("output").is_some() && expected("output") != output.as_ref() {
        differences.push(format!("its output is {output:?}"));
    }
    if expected("error").is_some_and(|expected| expected.as_str() != error.as_deref()) {
        differences.push(format!("its error is {error:?}"));
    }
    if let Some(activities) = expected("activities").and_then(Value::as_array) {
        let mut called: Vec<&str> =
            process.activities.attempts.iter().map(|attempt| attempt.activity.as_str()).collect();
        let mut expected: Vec<&str> = activities.iter().filter_map(Value::as_str).collect();
        // Calls of different branches at the same time have no order.
        called.sort_unstable();
        expected.sort_unstable();
        if called != expected {
            differences.push(format!("it called {called:?}"));
        }
    }
    differences
}

/// Attempts with the same key and number, which the receiver could not tell apart.
pub(super) fn duplicate_attempts(attempts: &[ReceivedAttempt]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut differences = Vec::new();
    for ReceivedAttempt { key, attempt, activity } in attempts {
        if !seen.insert((key, attempt)) {
            differences.push(format!("{activity} got attempt {attempt} twice"));
        }
    }
    differences
}

/// How many more attempts a run with crashes has than the run without, and the differences between them.
pub(super) fn compare_with_crash_free(
    crash_free: &CaseRun,
    played: &CaseRun,
    crashes: usize,
) -> (u64, Vec<String>) {
    let mut differences = played.violations.clone();
    differences.extend(crash_free.story.differences(&played.story));
    if crash_free.replies != played.replies {
        differences.push(format!(
            "the client got the replies {:?}; expected {:?}",
            played.replies, crash_free.replies
        ));
    }
    if played.open_calls_at_crash.len() != crashes {
        differences.push("it never reached the crash point".to_owned());
    }
    let before = count_work(&crash_free.attempts);
    let after = count_work(&played.attempts);
    let mut extra = 0;
    for (key, done) in after {
        let known = before.get(&key).copied().unwrap_or_default();
        let more = WorkCounts {
            deliveries: done.deliveries.saturating_sub(known.deliveries),
            attempts: done.attempts.saturating_sub(known.attempts),
        };
        let explained =
            played.open_calls_at_crash.iter().filter(|open_calls| open_calls.contains(&key)).count() as u64;
        if more.attempts > explained || more.deliveries > more.attempts {
            differences.push(format!("key {key} has {} more attempts received and {} more counted, but the crashes explain {explained}", more.deliveries, more.attempts));
        }
        extra += more.attempts;
    }
    (extra, differences)
}

/// The attempts of one key.
#[derive(Clone, Copy, Debug, Default)]
struct WorkCounts {
    /// Attempts that arrived.
    deliveries: u64,
    /// Attempts that the caller counted, by the highest attempt number.
    attempts: u64,
}

fn count_work(attempts: &[ReceivedAttempt]) -> BTreeMap<String, WorkCounts> {
    let mut work: BTreeMap<String, WorkCounts> = BTreeMap::new();
    for attempt in attempts {
        let done = work.entry(attempt.key.clone()).or_default();
        done.deliveries += 1;
        done.attempts = done.attempts.max(u64::from(attempt.attempt) + 1);
    }
    work
}
