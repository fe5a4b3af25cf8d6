//! `abide start`: starts a run, and optionally waits for its end.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{Instance, NewInstance, StartOutcome, Status};

use super::exit;
use crate::errors::ResourceKind;
use crate::files;
use crate::output::{escape_control_chars, outln};
use crate::server_args::ServerArgs;
use crate::styles::BOLD;
use crate::table::status_style;
use crate::time_format;
use crate::timeline;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The definition to run
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// The instance id; without it the server generates one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// A version range, such as ^1.2; without it the default version
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// The run's input: JSON, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// How long to wait for its end, such as 30s; at most 5 minutes
    #[arg(long, value_name = "DURATION", value_parser = time_format::parse_duration)]
    wait: Option<Duration>,
    /// An idempotency key, by which the server recognises a repeat of this start
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The trace that the run belongs to
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The entity that the run is about
    #[arg(long, value_name = "ID")]
    entity_id: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Workflow, async |client| {
        let input =
            args.input.as_ref().map(|input| files::parse_json_argument("--input", input)).transpose()?;
        let start = NewInstance {
            workflow: args.workflow.clone(),
            version: args.version.clone(),
            instance_id: args.id.clone(),
            input,
            correlation_id: args.correlation_id.clone(),
            entity_id: args.entity_id.clone(),
            wait: args.wait,
            idempotency_key: args.key.clone(),
        };
        let raw = client.start(&start).raw().await?;
        let outcome: Option<StartOutcome> = serde_json::from_str(raw.get()).ok();
        if args.remote.json {
            outln!("{raw}");
        } else if let Some(outcome) = &outcome {
            print_outcome(outcome);
        }
        Ok(match outcome {
            Some(StartOutcome::Ended(run)) if run.status == Status::Completed => exit::OK,
            Some(StartOutcome::Ended(_)) => exit::FAILED,
            _ if args.wait.is_some() => exit::STILL_RUNNING,
            _ => exit::OK,
        })
    })
}

fn print_outcome(outcome: &StartOutcome) {
    match outcome {
        StartOutcome::Running(started) => {
            outln!(
                "started {BOLD}{}{BOLD:#}; `abide show {0}` shows its progress",
                escape_control_chars(&started.instance_id)
            );
        }
        StartOutcome::Ended(run) => {
            outln!("{BOLD}{}{BOLD:#} {}", escape_control_chars(&run.instance_id), format_status(run))
        }
    }
}

/// The status of a run with its output or error, on one line.
pub(super) fn format_status(run: &Instance) -> String {
    let style = status_style(&run.status.to_string());
    let with = match (&run.error, &run.output) {
        (Some(failure), _) => format!(": {}", timeline::format_failure(failure)),
        (None, Some(output)) => format!(" with {}", escape_control_chars(&timeline::truncate_json(output))),
        (None, None) => String::new(),
    };
    format!("{style}{}{style:#}{with}", run.status)
}
