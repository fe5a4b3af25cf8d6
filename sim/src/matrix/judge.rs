//! What a run must have come to: without a crash what its author says, with crashes the same as without.

use std::collections::{BTreeMap, BTreeSet};

use abide_workflow::history::Fact;
use abide_workflow::rehearse::Rehearsal;
use abide_workflow::{Authored, Plan, Registry};
use serde_json::Value;

use super::Played;
use super::cases::Case;
use super::process::{INSTANCE, Process};
use super::story::Story;
use super::world::Delivered;

/// What is other than in a rehearsal, which knows no storage, no process and no crash.
pub(super) fn unlike_rehearsal(case: &Case, process: &Process<'_>) -> Result<Vec<String>, String> {
    let registry = Registry::parse(&case.activities).map_err(|error| error.to_string())?;
    let compile = |text: &String| match Authored::parse(text).validate(Some(&registry)) {
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
        let mut told = serde_json::to_value(event).unwrap_or_default();
        // A rehearsal does not hand the trace on to children.
        if let Some(trace) = told.get_mut("correlationId") {
            *trace = INSTANCE.into();
        }
        runs.entry(format!("{id}/{number}")).or_default().push(told);
    }
    let mut rehearsed = Story::default();
    for (run, history) in &runs {
        rehearsed.add(run, history);
    }
    Ok(rehearsed.differences(&process.stage.told_story()))
}

/// What is other than the author of the case says, without any crash.
pub(super) fn unexpected(case: &Case, process: &Process<'_>) -> Vec<String> {
    let Some((status, output, error)) = process.stage.ending(&process.id) else {
        return vec!["it was never there".to_owned()];
    };
    let mut found = Vec::new();
    let expected = |name: &str| case.expected.get(name);
    if expected("status").is_some_and(|expected| *expected != status) {
        found.push(format!("it is {status}"));
    }
    if expected("output").is_some() && expected("output") != output.as_ref() {
        found.push(format!("its output is {output:?}"));
    }
    if expected("error").is_some_and(|expected| expected.as_str() != error.as_deref()) {
        found.push(format!("its error is {error:?}"));
    }
    if let Some(activities) = expected("activities").and_then(Value::as_array) {
        let mut called: Vec<&str> =
            process.world.deliveries.iter().map(|delivery| delivery.activity.as_str()).collect();
        let mut expected: Vec<&str> = activities.iter().filter_map(Value::as_str).collect();
        // What happens at the same time in different branches has no order.
        called.sort_unstable();
        expected.sort_unstable();
        if called != expected {
            found.push(format!("it called {called:?}"));
        }
    }
    found
}

/// Deliveries that the receiver could not tell apart.
pub(super) fn doubled(deliveries: &[Delivered]) -> Vec<String> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for Delivered { key, attempt, activity } in deliveries {
        if !seen.insert((key, attempt)) {
            found.push(format!("{activity} was delivered as attempt {attempt} twice"));
        }
    }
    found
}

/// How many attempts a run with crashes has more than one without, and what else is other than it must be.
pub(super) fn compare(whole: &Played, played: &Played, crashes: usize) -> (u64, Vec<String>) {
    let mut found = played.wrong.clone();
    found.extend(whole.story.differences(&played.story));
    if whole.replies != played.replies {
        found.push(format!("the client was told {:?}, not {:?}", played.replies, whole.replies));
    }
    if played.out_at_crash.len() != crashes {
        found.push("it never came to the crash".to_owned());
    }
    let (before, after) = (work(&whole.deliveries), work(&played.deliveries));
    let mut extra = 0;
    for (key, done) in after {
        let known = before.get(&key).copied().unwrap_or_default();
        let more = Work {
            deliveries: done.deliveries.saturating_sub(known.deliveries),
            attempts: done.attempts.saturating_sub(known.attempts),
        };
        let explained = played.out_at_crash.iter().filter(|out| out.contains(&key)).count() as u64;
        if more.attempts > explained || more.deliveries > more.attempts {
            found.push(format!("key {key} has {more:?} more, and the crashes explain {explained}"));
        }
        extra += more.attempts;
    }
    (extra, found)
}

/// What was done for one key.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Deliveries that arrived.
    deliveries: u64,
    /// Deliveries that were counted.
    attempts: u64,
}

fn work(deliveries: &[Delivered]) -> BTreeMap<String, Work> {
    let mut work: BTreeMap<String, Work> = BTreeMap::new();
    for delivery in deliveries {
        let done = work.entry(delivery.key.clone()).or_default();
        done.deliveries += 1;
        done.attempts = done.attempts.max(u64::from(delivery.attempt) + 1);
    }
    work
}
