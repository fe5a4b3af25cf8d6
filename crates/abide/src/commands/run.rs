//! `abide run`: rehearses a definition with the author's mocks and events, and prints the timeline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use abide_workflow::rehearse::{Mocks, Playback, Rehearsal, Stimulus, parse_stimuli};
use abide_workflow::{Duration, Outcome, Plan, Timestamp};
use serde_json::{Value, json};

use super::exit;
use crate::files::{self, FileError};
use crate::output::{errln, outln};
use crate::{findings, playback};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The definition to run
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The run's input: JSON, or @FILE
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// Events and control operations: [{"at": "PT1H", "event": NAME, "data": …} | {"at": …, "do": "terminate"}]
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// The results of activities: {"activities": {NAME: {"result": …} | {"error": …} | [ … ]}}
    #[arg(long, value_name = "FILE")]
    mock: Option<PathBuf>,
    /// A definition that workflow states start for real; may be given several times
    #[arg(long = "with", value_name = "FILE")]
    children: Vec<PathBuf>,
    /// The registered activities: names are checked; compensations, timeouts and retry policies are applied
    #[arg(long, value_name = "FILE")]
    activities: Option<PathBuf>,
    /// Stop a run that has not ended after this many turns
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_turns: usize,
    /// The time at which the run starts
    #[arg(long, value_name = "TIMESTAMP", default_value = "2026-01-01T00:00:00Z")]
    at: String,
    /// Print the outcome and the history as JSON
    #[arg(long)]
    json: bool,
}

/// Why the definition cannot be rehearsed.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("--at: {0}")]
    StartTime(#[from] abide_workflow::time::TimeError),
    #[error("the input does not match the definition's schema: {}", .0.join("; "))]
    Mismatch(Vec<String>),
    #[error("internal error in the rehearsal (please report): {0}")]
    Corrupt(#[from] abide_workflow::CorruptInstance),
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match rehearse(args) {
        Ok(playback) => {
            if args.json {
                outln!("{:#}", to_json(&playback));
            } else {
                playback::print(&playback);
            }
            if playback.succeeded() { exit::OK.into() } else { exit::FAILED.into() }
        }
        Err(error) => {
            if let RunError::File(FileError::Invalid { path, text, reason }) = &error
                && !args.json
            {
                let name = path.display().to_string();
                reason.findings.iter().for_each(|finding| findings::print(&name, text, finding));
            }
            errln!("abide: {error}");
            exit::USAGE_ERROR.into()
        }
    }
}

fn rehearse(args: &Args) -> Result<Playback, RunError> {
    let registry = files::read_registry(args.activities.as_ref())?;
    let plan = files::read_plan(&args.file, registry.as_ref())?;
    let children: Vec<Plan> = args
        .children
        .iter()
        .map(|path| files::read_plan(path, registry.as_ref()))
        .collect::<Result<_, FileError>>()?;
    let input = files::parse_json_argument("--input", &args.input)?;
    let start = Timestamp::parse(&args.at)?;
    let mocks = read_mocks(args.mock.as_ref())?;
    let stimuli = read_stimuli(args.events.as_ref())?;
    plan.check_input(&input)
        .map_err(|mismatches| RunError::Mismatch(mismatches.iter().map(ToString::to_string).collect()))?;
    let playback = Rehearsal {
        children: children.iter().map(|plan| (plan.id().to_owned(), plan)).collect::<BTreeMap<_, _>>(),
        mocks,
        stimuli,
        input,
        start,
        turns_max: args.max_turns,
        ..Rehearsal::new(&plan)
    }
    .play()?;
    Ok(playback)
}

fn read_mocks(path: Option<&PathBuf>) -> Result<Mocks, FileError> {
    let Some(path) = path else { return Ok(Mocks::default()) };
    Mocks::parse(&files::read(path)?).map_err(|reason| FileError::Mock { path: path.clone(), reason })
}

fn read_stimuli(path: Option<&PathBuf>) -> Result<Vec<(Duration, Stimulus)>, FileError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    parse_stimuli(&files::read(path)?).map_err(|reason| FileError::Mock { path: path.clone(), reason })
}

fn to_json(playback: &Playback) -> Value {
    let (output, error) = match &playback.outcome {
        Some(Outcome::Completed(output)) => (Some((**output).clone()), None),
        Some(Outcome::Failed(failure)) => (None, Some(failure.to_json())),
        _ => (None, None),
    };
    let history: Vec<Value> = playback
        .timeline
        .iter()
        .map(|(instance, event)| {
            let mut event = json!(event);
            if let Some(fields) = event.as_object_mut() {
                fields.insert("instanceId".to_owned(), instance.as_str().into());
            }
            event
        })
        .collect();
    json!({
        "status": playback.status.to_string(),
        "output": output,
        "error": error,
        "waiting": playback.current_states.iter().map(|state| state.state.as_str()).collect::<Vec<_>>(),
        "unmocked": playback.unmocked,
        "unusedMocks": playback.unused_mocks,
        "untakenEvents": playback.unconsumed_events,
        "refused": playback.refusals,
        "gaveUp": playback.turn_limit_reached,
        "history": history,
    })
}
