//! A playback as people read it: what happened when, indented by branch.

use std::collections::BTreeMap;

use abide_workflow::history::{Fact, HistoryEvent, Note};
use abide_workflow::ids::{BranchId, CommandId};
use abide_workflow::instance::{CurrentState, WaitingFor};
use abide_workflow::rehearse::Playback;
use abide_workflow::{Failure, InstanceId, Outcome, Timestamp};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::say::{say, visible};

const FAINT: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

pub(crate) fn print(start: Timestamp, playback: &Playback) {
    let mut depths: BTreeMap<(&InstanceId, BranchId), usize> = BTreeMap::new();
    let mut commands: BTreeMap<(&InstanceId, CommandId), usize> = BTreeMap::new();
    let main = playback.timeline.first().map(|(instance, _)| instance);
    for (instance, event) in &playback.timeline {
        let mut depth = 0;
        match &event.fact {
            Fact::TaskScheduled { command, branch, .. }
            | Fact::TimerCreated { command, branch: Some(branch), .. }
            | Fact::SubOrchestrationInstanceCreated { command, branch, .. } => {
                depth = depths.get(&(instance, *branch)).copied().unwrap_or(0);
                commands.insert((instance, *command), depth);
            }
            Fact::TaskCompleted { command, .. }
            | Fact::TaskFailed { command, .. }
            | Fact::TimerFired { command }
            | Fact::SubOrchestrationInstanceCompleted { command, .. }
            | Fact::SubOrchestrationInstanceFailed { command, .. } => {
                depth = commands.get(&(instance, *command)).copied().unwrap_or(0);
            }
            Fact::BranchStarted { branch, parent, .. } => {
                depth = depths.get(&(instance, *parent)).copied().unwrap_or(0) + 1;
                depths.insert((instance, *branch), depth);
            }
            Fact::StateEntered { branch, .. }
            | Fact::StateLeft { branch, .. }
            | Fact::BranchEnded { branch, .. } => {
                depth = depths.get(&(instance, *branch)).copied().unwrap_or(0);
            }
            _ => {}
        }
        if let Some((style, text)) = describe(event) {
            let child = if Some(instance) == main { String::new() } else { format!("[{instance}] ") };
            let clock = clock(event.timestamp.since(start).0);
            let text = visible(&text);
            say!("{FAINT}{clock:>14}{FAINT:#}  {:1$}{child}{style}{text}{style:#}", "", depth * 2);
        }
    }
    conclude(playback);
}

fn conclude(playback: &Playback) {
    say!("");
    match &playback.outcome {
        Some(Outcome::Completed(output)) => {
            say!("{GOOD}{BOLD}Completed{BOLD:#}{GOOD:#} with {}", short(output))
        }
        Some(Outcome::Failed(failure)) => {
            say!("{BAD}{BOLD}Failed{BOLD:#}{BAD:#} with {}", error(failure))
        }
        Some(Outcome::Terminated(reason)) => say!("{BAD}{BOLD}Terminated{BOLD:#}{BAD:#}: {reason}"),
        Some(Outcome::ContinuedAsNew(_)) | None if playback.gave_up => {
            say!(
                "{BAD}Given up{BAD:#} after {} turns: it goes on and on. End it with an event, or with {{\"at\": …, \"do\": \"terminate\"}}",
                playback.turns
            );
        }
        Some(Outcome::ContinuedAsNew(_)) => say!("{BAD}Continued as new{BAD:#}"),
        None => {
            say!(
                "{BAD}{BOLD}Not finished{BOLD:#}{BAD:#} ({}): nothing more happens, but it waits",
                playback.status
            );
            playback.waiting.iter().for_each(|state| say!("  {}", waiting(state)));
        }
    }
    for refusal in &playback.refusals {
        say!("{FAINT}refused: {refusal}{FAINT:#}");
    }
    let list = |what: &str, names: &[String]| {
        if !names.is_empty() {
            say!("{FAINT}{what}: {}{FAINT:#}", visible(&names.join(", ")));
        }
    };
    list("without a mock, so activities answered null and workflows were not found", &playback.unmocked);
    list("mocked, and never asked", &playback.unused_mocks);
    list("events nobody took", &playback.untaken_events);
}

fn waiting(state: &CurrentState) -> String {
    let why = match &state.waiting_for {
        WaitingFor::Nothing => "nothing: it is suspended".to_owned(),
        WaitingFor::Activity { failures, .. } => format!("an activity's answer, after {failures} failures"),
        WaitingFor::Timer { .. } => "a timer".to_owned(),
        WaitingFor::Event { name } => format!("the event {name:?}"),
        WaitingFor::Child { .. } => "a child workflow".to_owned(),
        WaitingFor::Branches { total, ended } => format!("its branches, {ended} of {total} have ended"),
    };
    format!("{} waits for {why}", state.state)
}

/// One line for what is worth a line.
fn describe(event: &HistoryEvent) -> Option<(Style, String)> {
    let plain = |text: String| Some((Style::new(), text));
    let good = |text: String| Some((GOOD, text));
    let bad = |text: String| Some((BAD, text));
    match &event.fact {
        Fact::OrchestratorStarted | Fact::OrchestratorCompleted => None,
        Fact::ExecutionStarted { name, version, run, input, .. } => {
            let run = if run.0 == 1 { String::new() } else { format!(" run {}", run.0) };
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
        Fact::BranchEnded { outcome, .. } => Some((FAINT, format!("branch ended: {outcome:?}"))),
        Fact::TaskScheduled { activity, input, command, .. } => {
            plain(format!("  #{} {activity} ← {}", command.0, short(input)))
        }
        Fact::TaskCompleted { command, result, late } => {
            let late = if *late { " (late, not applied)" } else { "" };
            good(format!("  #{} → {}{late}", command.0, short(result)))
        }
        Fact::TaskFailed { command, attempt, error: failure, retry_at, late } => {
            let then = match retry_at {
                Some(at) => format!(", again at {at}"),
                None if *late => " (late, not applied)".to_owned(),
                None => ", for good".to_owned(),
            };
            bad(format!("  #{} attempt {} failed: {}{then}", command.0, attempt + 1, error(failure)))
        }
        Fact::TimerCreated { command, fire_at, .. } => {
            plain(format!("  #{} timer set for {fire_at}", command.0))
        }
        Fact::TimerFired { command } => plain(format!("  #{} timer fired", command.0)),
        Fact::EventRaised { name, input } => plain(format!("event {name} {}", short(input))),
        Fact::SubOrchestrationInstanceCreated { command, instance_id, name, input, .. } => {
            plain(format!("  #{} workflow {name} as {instance_id} ← {}", command.0, short(input)))
        }
        Fact::SubOrchestrationInstanceCompleted { command, result, .. } => {
            good(format!("  #{} → {}", command.0, short(result)))
        }
        Fact::SubOrchestrationInstanceFailed { command, error: failure, .. } => {
            bad(format!("  #{} failed: {}", command.0, error(failure)))
        }
        Fact::ExecutionSuspended { reason } => bad(format!("suspended: {reason}")),
        Fact::ExecutionResumed { reason } => plain(format!("resumed: {reason}")),
        Fact::ExecutionRewound { reason, redrive } => plain(format!("rewound (redrive {redrive}): {reason}")),
        Fact::ExecutionCompleted { result } => good(format!("completed with {}", short(result))),
        Fact::ExecutionFailed { error: failure } => bad(format!("failed with {}", error(failure))),
        Fact::ExecutionTerminated { reason } => bad(format!("terminated: {reason}")),
        Fact::ContinueAsNew { input } => plain(format!("continued as new with {}", short(input))),
        Fact::GenericEvent { note } => plain(note_text(note)),
    }
}

fn note_text(note: &Note) -> String {
    match note {
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
    }
}

fn error(failure: &Failure) -> String {
    let failure =
        Failure { code: visible(&failure.code), message: visible(&failure.message), ..failure.clone() };
    if failure.message.is_empty() {
        failure.code.clone()
    } else {
        format!("{}: {}", failure.code, failure.message)
    }
}

fn short(value: &Value) -> String {
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
