//! Prints a rehearsal for people: its timeline, its outcome, and notes for the author such as unused mocks.

use abide_client::Failure;
use abide_workflow::Outcome;
use abide_workflow::instance::{CurrentState, WaitingFor};
use abide_workflow::rehearse::Playback;
use anstyle::{AnsiColor, Style};

use crate::output::{escape_control_chars, outln};
use crate::styles::{BOLD, FAINT};
use crate::timeline::{Timeline, format_failure, truncate_json};

const SUCCESS_STYLE: Style = AnsiColor::Green.on_default();
const ERROR_STYLE: Style = AnsiColor::Red.on_default();

pub(crate) fn print(playback: &Playback) {
    let mut timeline = Timeline::default();
    for (instance, event) in &playback.timeline {
        // The client can read every event that the language writes: a test checks all of them.
        let read = serde_json::to_value(event).and_then(serde_json::from_value);
        if let Ok(event) = read {
            timeline.print_event(instance.as_str(), &event);
        }
    }
    print_outcome(playback);
}

fn print_outcome(playback: &Playback) {
    outln!("");
    match &playback.outcome {
        Some(Outcome::Completed(output)) => {
            outln!("{SUCCESS_STYLE}{BOLD}Completed{BOLD:#}{SUCCESS_STYLE:#} with {}", truncate_json(output))
        }
        Some(Outcome::Failed(failure)) => {
            let abide_workflow::Failure { code, message, state, retryable } = failure.clone();
            let failure = Failure { code, message, state, retryable };
            outln!("{ERROR_STYLE}{BOLD}Failed{BOLD:#}{ERROR_STYLE:#} with {}", format_failure(&failure))
        }
        Some(Outcome::Terminated(reason)) => {
            outln!("{ERROR_STYLE}{BOLD}Terminated{BOLD:#}{ERROR_STYLE:#}: {reason}")
        }
        Some(Outcome::ContinuedAsNew(_)) | None if playback.turn_limit_reached => {
            outln!(
                "{ERROR_STYLE}Stopped{ERROR_STYLE:#} after {} turns: the run does not end. End it with an event, or with {{\"at\": …, \"do\": \"terminate\"}}",
                playback.turns
            );
        }
        Some(Outcome::ContinuedAsNew(_)) => outln!("{ERROR_STYLE}Continued as new{ERROR_STYLE:#}"),
        None => {
            outln!(
                "{ERROR_STYLE}{BOLD}Not finished{BOLD:#}{ERROR_STYLE:#} ({}): nothing more happens, but the run still waits",
                playback.status
            );
            playback.current_states.iter().for_each(|state| outln!("  {}", describe_wait(state)));
        }
    }
    for refusal in &playback.refusals {
        outln!("{FAINT}refused: {refusal}{FAINT:#}");
    }
    let list = |title: &str, names: &[String]| {
        if !names.is_empty() {
            outln!("{FAINT}{title}: {}{FAINT:#}", escape_control_chars(&names.join(", ")));
        }
    };
    list("without a mock (activities returned null, workflows were not found)", &playback.unmocked);
    list("unused mocks", &playback.unused_mocks);
    list("events not consumed", &playback.unconsumed_events);
}

fn describe_wait(state: &CurrentState) -> String {
    let waiting_for = match &state.waiting_for {
        WaitingFor::Nothing => "nothing: the run is suspended".to_owned(),
        WaitingFor::Activity { failures, .. } => {
            format!("the result of an activity, after {failures} failures")
        }
        WaitingFor::Timer { .. } => "a timer".to_owned(),
        WaitingFor::Event { name } => format!("the event {name:?}"),
        WaitingFor::Child { .. } => "a child workflow".to_owned(),
        WaitingFor::Branches { total, ended } => format!("its branches, {ended} of {total} have ended"),
    };
    format!("{} waits for {waiting_for}", state.state)
}
