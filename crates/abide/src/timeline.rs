//! The past of runs as people read it: what happened when, indented by branch.
//!
//! Reads history as the interface writes it, so that a rehearsal and a real run look the same.

use std::collections::BTreeMap;

use abide_client::history::{Fact, HistoryEvent, Note};
use abide_client::{Failure, Timestamp};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::say::{say, visible};
use crate::styles::{BOLD, FAINT};
use crate::times::{between, stamp};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// A story told event by event. It begins with the first event, and so does its clock.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    began: Option<(String, Timestamp)>,
    depths: BTreeMap<(String, u32), usize>,
    commands: BTreeMap<(String, u64), usize>,
}

impl Timeline {
    /// Tells one event of an instance. Events of others than the first are marked as theirs.
    pub(crate) fn tell(&mut self, instance: &str, event: &HistoryEvent) {
        let depth = self.depth(instance, &event.fact);
        let (main, start) = self.began.get_or_insert_with(|| (instance.to_owned(), event.timestamp));
        if let Some((style, text)) = describe(event) {
            let child = if instance == main { String::new() } else { format!("[{}] ", visible(instance)) };
            let ms = between(*start, event.timestamp).as_millis();
            let clock = clock(u64::try_from(ms).unwrap_or(u64::MAX));
            let text = visible(&text);
            say!("{FAINT}{clock:>14}{FAINT:#}  {:1$}{child}{style}{text}{style:#}", "", depth * 2);
        }
    }

    /// How deep the branch of an event is; what follows from it is as deep.
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

/// One line for what is worth a line.
fn describe(event: &HistoryEvent) -> Option<(Style, String)> {
    let plain = |text: String| Some((Style::new(), text));
    let good = |text: String| Some((GOOD, text));
    let bad = |text: String| Some((BAD, text));
    match &event.fact {
        Fact::OrchestratorStarted | Fact::OrchestratorCompleted | Fact::Unknown => None,
        Fact::ExecutionStarted { name, version, run, input, .. } => {
            let run = if *run == 1 { String::new() } else { format!(" run {run}") };
            Some((BOLD, format!("started {name} {version}{run} with {}", short(input))))
        }
        Fact::StateEntered { state, visit, .. } => {
            let visit = if *visit == 1 { String::new() } else { format!(" (visit {visit})") };
            Some((BOLD, format!("{state}{visit}")))
        }
        Fact::StateLeft { error: Some(failure), next, .. } => match next {
            Some(next) => bad(format!("  {} → {next}", error(failure))),
            None => bad(format!("  {}", error(failure))),
        },
        Fact::StateLeft { .. } => None,
        Fact::BranchStarted { index, .. } => Some((FAINT, format!("branch {index}"))),
        Fact::BranchEnded { outcome, .. } => Some((FAINT, format!("branch {outcome}"))),
        Fact::TaskScheduled { activity, input, command, .. } => {
            plain(format!("  #{command} {activity} ← {}", short(input)))
        }
        Fact::TaskCompleted { command, result, late } => {
            let late = if *late { " (late, not applied)" } else { "" };
            good(format!("  #{command} → {}{late}", short(result)))
        }
        Fact::TaskFailed { command, attempt, error: failure, retry_at, late } => {
            let then = match retry_at {
                Some(at) => format!(", again at {}", stamp(*at)),
                None if *late => " (late, not applied)".to_owned(),
                None => ", for good".to_owned(),
            };
            bad(format!("  #{command} attempt {} failed: {}{then}", attempt + 1, error(failure)))
        }
        Fact::TimerCreated { command, fire_at, .. } => {
            plain(format!("  #{command} timer set for {}", stamp(*fire_at)))
        }
        Fact::TimerFired { command } => plain(format!("  #{command} timer fired")),
        Fact::EventRaised { name, input } => plain(format!("event {name} {}", short(input))),
        Fact::SubOrchestrationInstanceCreated { command, instance_id, name, input, .. } => {
            plain(format!("  #{command} workflow {name} as {instance_id} ← {}", short(input)))
        }
        Fact::SubOrchestrationInstanceCompleted { command, result, .. } => {
            good(format!("  #{command} → {}", short(result)))
        }
        Fact::SubOrchestrationInstanceFailed { command, error: failure, .. } => {
            bad(format!("  #{command} failed: {}", error(failure)))
        }
        Fact::ExecutionSuspended { reason } => bad(format!("suspended: {reason}")),
        Fact::ExecutionResumed { reason } => plain(format!("resumed: {reason}")),
        Fact::ExecutionRewound { reason, redrive } => plain(format!("rewound (redrive {redrive}): {reason}")),
        Fact::ExecutionCompleted { result } => good(format!("completed with {}", short(result))),
        Fact::ExecutionFailed { error: failure } => bad(format!("failed with {}", error(failure))),
        Fact::ExecutionTerminated { reason } => bad(format!("terminated: {reason}")),
        Fact::ContinueAsNew { input } => plain(format!("continued as new with {}", short(input))),
        Fact::GenericEvent { note } => note_text(note).map(|text| (Style::new(), text)),
    }
}

fn note_text(note: &Note) -> Option<String> {
    Some(match note {
        Note::Unknown => return None,
        Note::TransitionsNearLimit { transitions, limit } => {
            format!("{transitions} of {limit} transitions are used")
        }
        Note::WorkflowTimedOut { timeout, states } => {
            format!("the workflow timed out after {timeout} at {}", states.join(", "))
        }
        Note::EscalationNotifyFailed { error: failure } => {
            format!("the channel could not be told: {}", error(failure))
        }
        Note::RecoveryStarted { state } => format!("recovery begins at {state}"),
        Note::RecoveryFailed { error: failure } => format!("recovery failed: {}", error(failure)),
        Note::CompensationStarted { steps, .. } => format!("compensation begins, steps: {steps}"),
        Note::CompensationStepFailed { activity, error: failure, .. } => {
            format!("compensation {activity} failed for good: {}", error(failure))
        }
        Note::CompensationInputIncomplete { step, error: failure } => {
            format!("the input to undo {step} is incomplete: {}", failure.message)
        }
        Note::CompensationCompleted { succeeded, failed, .. } => {
            format!("compensation ends: {succeeded} undone, {failed} failed")
        }
    })
}

/// An error in one line.
pub(crate) fn error(failure: &Failure) -> String {
    let failure =
        Failure { code: visible(&failure.code), message: visible(&failure.message), ..failure.clone() };
    if failure.message.is_empty() {
        failure.code.clone()
    } else {
        format!("{}: {}", failure.code, failure.message)
    }
}

/// JSON in one line, cut.
pub(crate) fn short(value: &Value) -> String {
    const CHARS_MAX: usize = 100;
    let text = value.to_string();
    if text.chars().count() <= CHARS_MAX {
        text
    } else {
        text.chars().take(CHARS_MAX).chain(['…']).collect()
    }
}

/// Time since the start: days, then a clock.
fn clock(ms: u64) -> String {
    let (days, seconds, ms) = (ms / 86_400_000, ms / 1000 % 86_400, ms % 1000);
    let clock = format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if days == 0 { clock } else { format!("{days}d {clock}") }
}
