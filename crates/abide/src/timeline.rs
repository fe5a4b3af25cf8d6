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
    started: Option<(String, Timestamp)>,
    depths: BTreeMap<(String, u32), usize>,
    commands: BTreeMap<(String, u64), usize>,
}

impl Timeline {
    /// Prints one event of an instance. Events of any other instance than the first are marked with their instance.
    pub(crate) fn print_event(&mut self, instance: &str, event: &HistoryEvent) {
        let depth = self.depth(instance, &event.fact);
        let (main, start) = self.started.get_or_insert_with(|| (instance.to_owned(), event.timestamp));
        if let Some((style, text)) = describe_event(event) {
            let child = if instance == main {
                String::new()
            } else {
                format!("[{}] ", escape_control_chars(instance))
            };
            let ms = duration_between(*start, event.timestamp).as_millis();
            let clock = format_clock(u64::try_from(ms).unwrap_or(u64::MAX));
            let text = escape_control_chars(&text);
            outln!("{FAINT}{clock:>14}{FAINT:#}  {:1$}{child}{style}{text}{style:#}", "", depth * 2);
        }
    }

    /// The nesting depth of an event's branch. The result of a command has the depth of its command.
    fn depth(&mut self, instance: &str, fact: &Fact) -> usize {
        let of_branch = |depths: &BTreeMap<(String, u32), usize>, branch: u32| {
            depths.get(&(instance.to_owned(), branch)).copied().unwrap_or(0)
        };
        match fact {
            Fact::TaskScheduled { command, branch, .. }
            | Fact::TimerCreated { command, branch: Some(branch), .. }
            | Fact::SubOrchestrationInstanceCreated { command, branch, .. } => {
                let depth = of_branch(&self.depths, *branch);
                self.commands.insert((instance.to_owned(), *command), depth);
                depth
            }
            Fact::TaskCompleted { command, .. }
            | Fact::TaskFailed { command, .. }
            | Fact::TimerFired { command }
            | Fact::SubOrchestrationInstanceCompleted { command, .. }
            | Fact::SubOrchestrationInstanceFailed { command, .. } => {
                self.commands.get(&(instance.to_owned(), *command)).copied().unwrap_or(0)
            }
            Fact::BranchStarted { branch, parent, .. } => {
                let depth = of_branch(&self.depths, *parent) + 1;
                self.depths.insert((instance.to_owned(), *branch), depth);
                depth
            }
            Fact::StateEntered { branch, .. }
            | Fact::StateLeft { branch, .. }
            | Fact::BranchEnded { branch, .. } => of_branch(&self.depths, *branch),
            _ => 0,
        }
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
        Fact::TaskScheduled { activity, input, command, .. } => {
            plain(format!("  #{command} {activity} ← {}", truncate_json(input)))
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
            bad(format!("  #{command} attempt {} failed: {}{then}", attempt + 1, format_failure(failure)))
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
