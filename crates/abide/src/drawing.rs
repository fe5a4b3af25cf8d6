//! A path on the screen: a line per state, branches indented, what is too much told as a number.

use std::time::Duration;

use abide_client::{CurrentState, WaitingFor};
use anstyle::{AnsiColor, Style};

use crate::path::{Branch, Mark, Path, Step};
use crate::say::{say, visible};
use crate::styles::FAINT;
use crate::table::{cut, grouped, terminal_columns};
use crate::timeline;
use crate::times;

/// Steps of one branch that are drawn; of more, the last.
const STEPS_MAX: usize = 100;
/// Branches of one state that are drawn; of more, those that are alive or failed first.
const BRANCHES_MAX: usize = 20;
/// Characters of what is said of a step, off a terminal.
const NOTE_CHARS_MAX: usize = 160;

fn style(mark: Mark) -> Style {
    match mark {
        Mark::Done => AnsiColor::Green.on_default(),
        Mark::Failed => AnsiColor::Red.on_default().bold(),
        Mark::Now => AnsiColor::Cyan.on_default().bold(),
        Mark::Undone => AnsiColor::Yellow.on_default(),
        Mark::LeftBehind => FAINT,
    }
}

/// Draws a path. What its current states wait for comes from the instance.
pub(crate) fn print(path: &Path, waiting: &[CurrentState]) {
    let Some(root) = path.root() else {
        say!("  it has not entered a state yet");
        return;
    };
    branch(path, root, waiting, 1);
    let legend = [
        (Mark::Done, "done"),
        (Mark::Failed, "failed"),
        (Mark::Now, "now"),
        (Mark::Undone, "undone"),
        (Mark::LeftBehind, "left behind"),
    ];
    let legend: Vec<String> = legend.iter().map(|(mark, word)| format!("{} {word}", mark.sign())).collect();
    say!("");
    say!("  {FAINT}{}{FAINT:#}", legend.join("   "));
}

fn branch(path: &Path, branch: &Branch, waiting: &[CurrentState], depth: usize) {
    let hidden = branch.steps.len().saturating_sub(STEPS_MAX);
    let shown = branch.steps.get(hidden..).unwrap_or_default();
    if hidden > 0 {
        say!("{:1$}{FAINT}… {2} earlier steps{FAINT:#}", "", depth * 2, grouped(hidden as u64));
    }
    let names = shown.iter().map(|step| name(step).chars().count()).max().unwrap_or(0);
    for step in shown {
        line(step, waiting, depth, names);
        branches(path, step, waiting, depth + 1);
    }
}

fn line(step: &Step, waiting: &[CurrentState], depth: usize, names: usize) {
    let mark = step.mark();
    let style = style(mark);
    let took = step.left.map_or_else(
        || if mark == Mark::Now { format!("for {}", times::ago(step.entered)) } else { String::new() },
        |left| times::short(times::between(step.entered, left)),
    );
    let said = visible(&note(step, waiting));
    let used = depth * 2 + 2 + names + 2 + 9 + 2;
    let room = terminal_columns().map_or(NOTE_CHARS_MAX, |columns| columns.saturating_sub(used).max(20));
    let (sign, name, said) = (mark.sign(), name(step), cut(&said, room));
    // Nothing is padded that nothing follows.
    let line = match (took.is_empty(), said.is_empty()) {
        (true, true) => format!("{style}{sign} {name}{style:#}"),
        (false, true) => format!("{style}{sign} {name:<names$}{style:#}  {FAINT}{took}{FAINT:#}"),
        (_, false) => format!("{style}{sign} {name:<names$}{style:#}  {FAINT}{took:<9}{FAINT:#}  {said}"),
    };
    say!("{:1$}{line}", "", depth * 2);
}

/// The state's own name, without the path that its indentation shows; and which visit, if there are several.
fn name(step: &Step) -> String {
    let own = visible(step.state.rsplit('/').next().unwrap_or(&step.state));
    if step.visit == 1 { own } else { format!("{own} (visit {})", step.visit) }
}

/// What is worth saying of a step.
fn note(step: &Step, waiting: &[CurrentState]) -> String {
    if let Some(failure) = &step.error {
        return timeline::error(failure);
    }
    if step.mark() == Mark::Now {
        let here =
            waiting.iter().find(|current| current.state == step.state && current.since >= step.entered);
        let here = here.or_else(|| waiting.iter().find(|current| current.state == step.state));
        return here.map(|current| describe(&current.waiting_for)).unwrap_or_default();
    }
    if let Some((undone, failed)) = step.compensated {
        let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
        return format!("{undone} undone{failed}");
    }
    match &step.activity {
        Some((activity, 1)) => activity.clone(),
        Some((activity, deliveries)) => format!("{activity}, {deliveries} attempts"),
        None => String::new(),
    }
}

/// What is waited for, in words.
pub(crate) fn describe(waiting: &WaitingFor) -> String {
    let until = waiting.until.map(|until| match times::between(times::now(), until) {
        Duration::ZERO => ", which is due".to_owned(),
        _ => format!(", {} left", times::until(until)),
    });
    let what = match waiting.kind.as_str() {
        "nothing" => "does not wait: it is suspended or has not moved yet".to_owned(),
        "activity" => {
            let activity = waiting.activity.as_deref().unwrap_or("an activity");
            let failures = match waiting.failures.unwrap_or(0) {
                0 => String::new(),
                1 => ", 1 attempt failed".to_owned(),
                failures => format!(", {failures} attempts failed"),
            };
            format!("waits for {activity}{failures}")
        }
        "timer" => "waits for its time".to_owned(),
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
    format!("{what}{}", until.unwrap_or_default())
}

fn branches(path: &Path, step: &Step, waiting: &[CurrentState], depth: usize) {
    let mut found: Vec<&Branch> = step.branches.iter().filter_map(|number| path.branch(*number)).collect();
    // Those that somebody looks for come first when not all can be shown, and all are shown in their own order.
    found.sort_by_key(|branch| branch.outcome.as_deref() == Some("succeeded"));
    let hidden = found.split_off(found.len().min(BRANCHES_MAX));
    found.sort_by_key(|branch| branch.index);
    for one in found {
        let outcome = one.outcome.as_deref().unwrap_or("goes on");
        say!("{:1$}{FAINT}branch {2}: {outcome}{FAINT:#}", "", depth * 2, one.index);
        branch(path, one, waiting, depth + 1);
    }
    if !hidden.is_empty() {
        say!("{:1$}{FAINT}… {2} more branches{FAINT:#}", "", depth * 2, grouped(hidden.len() as u64));
    }
}
