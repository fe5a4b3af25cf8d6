//! Prints the path of a run: one line per state, with branches indented. Long lists of steps and branches are
//! shortened. The path itself is computed in [`crate::run_path`].

use std::time::Duration;

use abide_client::{CurrentState, HoldView, WaitingFor};
use anstyle::{AnsiColor, Style};

use crate::output::{escape_control_chars, outln};
use crate::run_path::{PathBranch, PathStep, RunPath, StepMark};
use crate::styles::FAINT;
use crate::table::{group_digits, terminal_columns, truncate};
use crate::time_format;
use crate::timeline;

/// The number of steps of a branch that are shown: the last ones.
const STEPS_MAX: usize = 100;
/// The number of branches of a state that are shown. Live and failed branches are preferred.
const BRANCHES_MAX: usize = 20;
/// The length of a step's detail if standard output is not a terminal.
const DETAIL_CHARS_MAX: usize = 160;

fn mark_style(mark: StepMark) -> Style {
    match mark {
        StepMark::Completed => AnsiColor::Green.on_default(),
        StepMark::Failed => AnsiColor::Red.on_default().bold(),
        StepMark::Current => AnsiColor::Cyan.on_default().bold(),
        StepMark::Compensated => AnsiColor::Yellow.on_default(),
        StepMark::Abandoned => FAINT,
    }
}

/// Prints a path. `waiting` has the current states of the instance.
pub(crate) fn print(path: &RunPath, waiting: &[CurrentState]) {
    let Some(root) = path.root() else {
        outln!("  the run has not entered a state yet");
        return;
    };
    print_branch(path, root, waiting, 1);
    let legend = [
        (StepMark::Completed, "done"),
        (StepMark::Failed, "failed"),
        (StepMark::Current, "now"),
        (StepMark::Compensated, "compensated"),
        (StepMark::Abandoned, "abandoned"),
    ];
    let legend: Vec<String> = legend.iter().map(|(mark, word)| format!("{} {word}", mark.symbol())).collect();
    outln!("");
    outln!("  {FAINT}{}{FAINT:#}", legend.join("   "));
}

fn print_branch(path: &RunPath, branch: &PathBranch, waiting: &[CurrentState], depth: usize) {
    let hidden = branch.steps.len().saturating_sub(STEPS_MAX);
    let shown = branch.steps.get(hidden..).unwrap_or_default();
    if hidden > 0 {
        outln!("{:1$}{FAINT}… {2} earlier steps{FAINT:#}", "", depth * 2, group_digits(hidden as u64));
    }
    let names = shown.iter().map(|step| step_label(step).chars().count()).max().unwrap_or(0);
    for step in shown {
        print_step(step, waiting, depth, names);
        print_branches(path, step, waiting, depth + 1);
    }
}

fn print_step(step: &PathStep, waiting: &[CurrentState], depth: usize, names: usize) {
    let mark = step.mark();
    let style = mark_style(mark);
    let took = step.left.map_or_else(
        || {
            if mark == StepMark::Current {
                format!("for {}", time_format::format_age(step.entered))
            } else {
                String::new()
            }
        },
        |left| time_format::format_duration(time_format::duration_between(step.entered, left)),
    );
    let detail = escape_control_chars(&step_detail(step, waiting));
    let used = depth * 2 + 2 + names + 2 + 9 + 2;
    let room = terminal_columns().map_or(DETAIL_CHARS_MAX, |columns| columns.saturating_sub(used).max(20));
    let symbol = mark.symbol();
    let name = step_label(step);
    let detail = truncate(&detail, room);
    // The last column is not padded.
    let line = match (took.is_empty(), detail.is_empty()) {
        (true, true) => format!("{style}{symbol} {name}{style:#}"),
        (false, true) => format!("{style}{symbol} {name:<names$}{style:#}  {FAINT}{took}{FAINT:#}"),
        (_, false) => format!("{style}{symbol} {name:<names$}{style:#}  {FAINT}{took:<9}{FAINT:#}  {detail}"),
    };
    outln!("{:1$}{line}", "", depth * 2);
}

/// The last part of the state's path (the indentation shows the rest), and the number of the visit from the second on.
fn step_label(step: &PathStep) -> String {
    let own = escape_control_chars(step.state.rsplit('/').next().unwrap_or(&step.state));
    if step.visit == 1 { own } else { format!("{own} (visit {})", step.visit) }
}

/// The detail of a step: its error, what it waits for, its compensations or its activity.
fn step_detail(step: &PathStep, waiting: &[CurrentState]) -> String {
    if let Some(failure) = &step.error {
        return timeline::format_failure(failure);
    }
    if step.mark() == StepMark::Current {
        let here =
            waiting.iter().find(|current| current.state == step.state && current.since >= step.entered);
        let here = here.or_else(|| waiting.iter().find(|current| current.state == step.state));
        return here.map(|current| describe_wait(&current.waiting_for)).unwrap_or_default();
    }
    if let Some((succeeded, failed)) = step.compensation_counts {
        let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
        return format!("{succeeded} compensated{failed}");
    }
    match &step.activity {
        Some((activity, 1)) => activity.clone(),
        Some((activity, attempts)) => format!("{activity}, {attempts} attempts"),
        None => String::new(),
    }
}

/// Describes what a branch waits for.
pub(crate) fn describe_wait(waiting: &WaitingFor) -> String {
    let until = waiting.until.map(|until| match time_format::duration_between(time_format::now(), until) {
        Duration::ZERO => ", due now".to_owned(),
        _ => format!(", {} left", time_format::format_remaining(until)),
    });
    let what = match waiting.kind.as_str() {
        "nothing" => "does not wait: the run is suspended or has not started yet".to_owned(),
        "activity" => {
            let activity = waiting.activity.as_deref().unwrap_or("an activity");
            let failures = match waiting.failures.unwrap_or(0) {
                0 => String::new(),
                1 => ", 1 attempt failed".to_owned(),
                failures => format!(", {failures} attempts failed"),
            };
            format!("waits for {activity}{failures}")
        }
        "timer" => "waits for a timer".to_owned(),
        "event" => format!("waits for the event {:?}", waiting.name.as_deref().unwrap_or_default()),
        "child" => {
            format!("waits for {}", waiting.child_instance_id.as_deref().unwrap_or("a child workflow"))
        }
        "branches" => match (waiting.ended, waiting.total) {
            (Some(ended), Some(total)) => return format!("{ended} of {total} branches have ended"),
            _ => "waits for its branches".to_owned(),
        },
        other => format!("waits: {other}"),
    };
    let held = waiting.held.as_ref().map(|held| format!(", {}", describe_hold(held)));
    // What a held call waits for is not a time.
    let until = until.filter(|_| held.is_none());
    format!("{what}{}{}", held.unwrap_or_default(), until.unwrap_or_default())
}

/// Describes what holds a call back.
pub(crate) fn describe_hold(held: &HoldView) -> String {
    let age = time_format::format_age(held.since_utc);
    format!("held back for {age} ({})", escape_control_chars(&held.reason))
}

fn print_branches(path: &RunPath, step: &PathStep, waiting: &[CurrentState], depth: usize) {
    let mut shown: Vec<&PathBranch> =
        step.branches.iter().filter_map(|number| path.branch(*number)).collect();
    // If there are too many, live and failed branches are kept. The kept ones are shown in the order of their index.
    shown.sort_by_key(|branch| branch.outcome.as_deref() == Some("succeeded"));
    let hidden = shown.split_off(shown.len().min(BRANCHES_MAX));
    shown.sort_by_key(|branch| branch.index);
    for branch in shown {
        let outcome = branch.outcome.as_deref().unwrap_or("running");
        outln!("{:1$}{FAINT}branch {2}: {outcome}{FAINT:#}", "", depth * 2, branch.index);
        print_branch(path, branch, waiting, depth + 1);
    }
    if !hidden.is_empty() {
        outln!("{:1$}{FAINT}… {2} more branches{FAINT:#}", "", depth * 2, group_digits(hidden.len() as u64));
    }
}
