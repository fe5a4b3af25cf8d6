//! A rehearsal as people read it: its timeline, how it ended, and what the author should know besides.

use abide_client::Failure;
use abide_workflow::Outcome;
use abide_workflow::instance::{CurrentState, WaitingFor};
use abide_workflow::rehearse::Playback;
use anstyle::{AnsiColor, Style};

use crate::say::{say, visible};
use crate::styles::{BOLD, FAINT};
use crate::timeline::{Timeline, error, short};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();

pub(crate) fn print(playback: &Playback) {
    let mut timeline = Timeline::default();
    for (instance, event) in &playback.timeline {
        // What one side writes the other reads; a test goes through all of it.
        let read = serde_json::to_value(event).and_then(serde_json::from_value);
        if let Ok(event) = read {
            timeline.tell(instance.as_str(), &event);
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
            let abide_workflow::Failure { code, message, state, retryable } = failure.clone();
            let failure = Failure { code, message, state, retryable };
            say!("{BAD}{BOLD}Failed{BOLD:#}{BAD:#} with {}", error(&failure))
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
