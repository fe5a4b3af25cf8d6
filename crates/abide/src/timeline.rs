//! Prints the history of runs for people: one line per event with its time, indented by branch.
//!
//! It reads history events in the form of the API, so that a rehearsal and a real run look the same.

use std::collections::BTreeMap;

use abide_client::history::{Fact, HistoryEvent, Note};
use abide_client::{Failure, Timestamp};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::output::{escape_control_chars, outln};
use crate::styles::{BOLD, FAINT};
use crate::time_format::{duration_between, format_timestamp};

const SUCCESS_STYLE: Style = AnsiColor::Green.on_default();
const ERROR_STYLE: Style = AnsiColor::Red.on_default();

/// Prints events one by one. The clock starts with the first event.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    has_absolute_times: bool,
    started: Option<(String, Timestamp)>,
    /// Where each branch is: its position among its siblings, after those of the branches around it.
    branches: BTreeMap<(String, u32), Vec<u32>>,
    commands: BTreeMap<(String, u64), CommandProgress>,
}

/// A command that was made.
#[derive(Clone, Debug)]
struct CommandProgress {
    branch: u32,
    /// The number of the attempt that is expected to end next.
    attempt: u32,
}

impl Timeline {
    /// A timeline with the time of each event, if wanted, instead of the time since the first.
    pub(crate) fn new(has_absolute_times: bool) -> Self {
        Self { has_absolute_times, ..Self::default() }
    }

    /// Prints one event of an instance. Events of any other instance than the first are marked with their instance.
    pub(crate) fn print_event(&mut self, instance: &str, event: &HistoryEvent) {
        let branch = self.branch_of(instance, &event.fact);
        let place = branch.and_then(|branch| self.branches.get(&(instance.to_owned(), branch)));
        let place = place.cloned().unwrap_or_default();
        let redelivered = self.redelivery(instance, &event.fact);
        let (main, start) = self.started.get_or_insert_with(|| (instance.to_owned(), event.timestamp));
        let clock = if self.has_absolute_times {
            format_timestamp(event.timestamp)
        } else {
            let ms = duration_between(*start, event.timestamp).as_millis();
            format_clock(u64::try_from(ms).unwrap_or(u64::MAX))
        };
        let child =
            if instance == main { String::new() } else { format!("[{}] ", escape_control_chars(instance)) };
        // Branches run side by side, so that each line says which one it is about.
        let branch = place.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
        let branch = if branch.is_empty() { branch } else { format!("{FAINT}{branch}:{FAINT:#} ") };
        let lines = redelivered.map(|text| (ERROR_STYLE, text)).into_iter().chain(describe_event(event));
        for (style, text) in lines {
            let text = escape_control_chars(&text);
            let indent = place.len() * 2;
            outln!("{FAINT}{clock:>14}{FAINT:#}  {:indent$}{child}{branch}{style}{text}{style:#}", "");
        }
    }

    /// The branch that an event is about. The result of a command belongs to the branch of its command.
    fn branch_of(&mut self, instance: &str, fact: &Fact) -> Option<u32> {
        let key = |number: u32| (instance.to_owned(), number);
        match fact {
            Fact::TaskScheduled { command, branch, .. }
            | Fact::TimerCreated { command, branch: Some(branch), .. }
            | Fact::SubOrchestrationInstanceCreated { command, branch, .. } => {
                let made = CommandProgress { branch: *branch, attempt: 0 };
                self.commands.insert((instance.to_owned(), *command), made);
                Some(*branch)
            }
            Fact::TaskCompleted { command, .. }
            | Fact::TaskFailed { command, .. }
            | Fact::TimerFired { command }
            | Fact::SubOrchestrationInstanceCompleted { command, .. }
            | Fact::SubOrchestrationInstanceFailed { command, .. } => {
                self.commands.get(&(instance.to_owned(), *command)).map(|made| made.branch)
            }
            Fact::BranchStarted { branch, parent, index } => {
                let mut place = self.branches.get(&key(*parent)).cloned().unwrap_or_default();
                place.push(*index);
                self.branches.insert(key(*branch), place);
                Some(*branch)
            }
            Fact::StateEntered { branch, .. }
            | Fact::StateLeft { branch, .. }
            | Fact::BranchEnded { branch, .. } => Some(*branch),
            _ => None,
        }
    }

    /// The line about attempts whose result was lost before this one failed: the call was sent again under the next
    /// number.
    fn redelivery(&mut self, instance: &str, fact: &Fact) -> Option<String> {
        let Fact::TaskFailed { command, attempt, late: false, .. } = fact else { return None };
        let made = self.commands.get_mut(&(instance.to_owned(), *command))?;
        let expected = std::mem::replace(&mut made.attempt, attempt.saturating_add(1));
        let lost = match attempt.checked_sub(1)? {
            last if last < expected => return None,
            last if last == expected => format!("attempt {last}"),
            last => format!("attempts {expected} to {last}"),
        };
        Some(format!("  #{command} {lost} ended without a known result: sent again"))
    }
}

/// The line of an event, or `None` for events that people need not see.
fn describe_event(event: &HistoryEvent) -> Option<(Style, String)> {
    let plain = |text: String| Some((Style::new(), text));
    let good = |text: String| Some((SUCCESS_STYLE, text));
    let bad = |text: String| Some((ERROR_STYLE, text));
    match &event.fact {
        Fact::OrchestratorStarted | Fact::OrchestratorCompleted | Fact::Unknown => None,
        Fact::ExecutionStarted { name, version, run, input, .. } => {
            let run = if *run == 1 { String::new() } else { format!(" run {run}") };
            Some((BOLD, format!("started {name} {version}{run} with {}", truncate_json(input))))
        }
        Fact::StateEntered { state, visit, .. } => {
            let visit = if *visit == 1 { String::new() } else { format!(" (visit {visit})") };
            Some((BOLD, format!("{state}{visit}")))
        }
        Fact::StateLeft { error: Some(failure), next, .. } => match next {
            Some(next) => bad(format!("  {} → {next}", format_failure(failure))),
            None => bad(format!("  {}", format_failure(failure))),
        },
        Fact::StateLeft { .. } => None,
        Fact::BranchStarted { index, .. } => Some((FAINT, format!("branch {index}"))),
        Fact::BranchEnded { outcome, .. } => Some((FAINT, format!("branch {outcome}"))),
        Fact::TaskScheduled { activity, input, command, step, .. } => {
            let undone = step.split_once("/undo/").map(|(state, _)| format!(", undoes {state}"));
            let undone = undone.unwrap_or_default();
            plain(format!("  #{command} {activity} ← {}{undone}", truncate_json(input)))
        }
        Fact::TaskCompleted { command, result, late } => {
            let late = if *late { " (late, not applied)" } else { "" };
            good(format!("  #{command} → {}{late}", truncate_json(result)))
        }
        Fact::TaskFailed { command, attempt, error: failure, retry_at, late } => {
            let then = match retry_at {
                Some(at) => format!(", next attempt at {}", format_timestamp(*at)),
                None if *late => " (late, not applied)".to_owned(),
                None => ", permanently".to_owned(),
            };
            bad(format!("  #{command} attempt {attempt} failed: {}{then}", format_failure(failure)))
        }
        Fact::TimerCreated { command, fire_at, .. } => {
            plain(format!("  #{command} timer set for {}", format_timestamp(*fire_at)))
        }
        Fact::TimerFired { command } => plain(format!("  #{command} timer fired")),
        Fact::EventRaised { name, input } => plain(format!("event {name} {}", truncate_json(input))),
        Fact::SubOrchestrationInstanceCreated { command, instance_id, name, input, .. } => {
            plain(format!("  #{command} workflow {name} as {instance_id} ← {}", truncate_json(input)))
        }
        Fact::SubOrchestrationInstanceCompleted { command, result, .. } => {
            good(format!("  #{command} → {}", truncate_json(result)))
        }
        Fact::SubOrchestrationInstanceFailed { command, error: failure, .. } => {
            bad(format!("  #{command} failed: {}", format_failure(failure)))
        }
        Fact::ExecutionSuspended { reason } => bad(format!("suspended: {reason}")),
        Fact::ExecutionResumed { reason } => plain(format!("resumed: {reason}")),
        Fact::ExecutionRewound { reason, redrive } => plain(format!("rewound (redrive {redrive}): {reason}")),
        Fact::ExecutionCompleted { result } => good(format!("completed with {}", truncate_json(result))),
        Fact::ExecutionFailed { error: failure } => bad(format!("failed with {}", format_failure(failure))),
        Fact::ExecutionTerminated { reason } => bad(format!("terminated: {reason}")),
        Fact::ContinueAsNew { input } => plain(format!("continued as new with {}", truncate_json(input))),
        Fact::GenericEvent { note } => describe_note(note).map(|text| (Style::new(), text)),
    }
}

fn describe_note(note: &Note) -> Option<String> {
    Some(match note {
        Note::Unknown => return None,
        Note::TransitionsNearLimit { transitions, limit } => {
            format!("{transitions} of {limit} transitions are used")
        }
        Note::WorkflowTimedOut { timeout, states } => {
            format!("the workflow timed out after {timeout} at {}", states.join(", "))
        }
        Note::EscalationNotifyFailed { error: failure } => {
            format!("the escalation's notify failed: {}", format_failure(failure))
        }
        Note::RecoveryStarted { state } => format!("recovery begins at {state}"),
        Note::RecoveryFailed { error: failure } => format!("recovery failed: {}", format_failure(failure)),
        Note::CompensationStarted { steps, .. } => format!("compensation begins, steps: {steps}"),
        Note::CompensationStepFailed { activity, error: failure, .. } => {
            format!("compensation {activity} failed permanently: {}", format_failure(failure))
        }
        Note::CompensationInputIncomplete { step, error: failure } => {
            format!("the compensation input of {step} is incomplete: {}", failure.message)
        }
        Note::CompensationRetried { reason, steps } => {
            format!("failed compensations run again, steps: {steps}: {reason}")
        }
        Note::CompensationCompleted { succeeded, failed, .. } => {
            format!("compensation ends: {succeeded} compensated, {failed} failed")
        }
    })
}

/// A failure on one line.
pub(crate) fn format_failure(failure: &Failure) -> String {
    let failure = Failure {
        code: escape_control_chars(&failure.code),
        message: escape_control_chars(&failure.message),
        ..failure.clone()
    };
    if failure.message.is_empty() {
        failure.code.clone()
    } else {
        format!("{}: {}", failure.code, failure.message)
    }
}

/// JSON on one line, shortened.
pub(crate) fn truncate_json(value: &Value) -> String {
    const CHARS_MAX: usize = 100;
    let text = value.to_string();
    if text.chars().count() <= CHARS_MAX {
        text
    } else {
        text.chars().take(CHARS_MAX).chain(['…']).collect()
    }
}

/// The time since the start: days, if any, then hours, minutes and seconds.
fn format_clock(ms: u64) -> String {
    let days = ms / 86_400_000;
    let seconds = ms / 1000 % 86_400;
    let ms = ms % 1000;
    let clock = format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if days == 0 { clock } else { format!("{days}d {clock}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failed(attempt: u32) -> Fact {
        serde_json::from_value(json!({
            "eventType": "TaskFailed", "command": 3, "attempt": attempt,
            "error": {"code": "X", "message": "", "state": null, "retryable": true},
        }))
        .unwrap()
    }

    #[test]
    fn attempts_without_a_known_result_are_named_before_the_next_failure() {
        let mut timeline = Timeline::default();
        let made = CommandProgress { branch: 0, attempt: 0 };
        timeline.commands.insert(("a".to_owned(), 3), made);
        let lines = [0, 0, 1, 3, 6].map(|attempt| timeline.redelivery("a", &failed(attempt)));
        let sent_again = |which: &str| Some(format!("  #3 {which} ended without a known result: sent again"));
        assert_eq!(lines, [None, None, None, sent_again("attempt 2"), sent_again("attempts 4 to 5")]);
    }
}
