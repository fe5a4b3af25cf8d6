//! `abide start`: begins a run, and waits for its end if asked to.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{Instance, Start, StartOutcome, Status};

use super::exit;
use crate::files;
use crate::problem::Sought;
use crate::remote::Remote;
use crate::say::{say, visible};
use crate::styles::BOLD;
use crate::table::status_style;
use crate::timeline;
use crate::times;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The definition to run
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// The instance's id; without it the server makes one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// A range of versions, such as ^1.2; without it the default version
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// The run's input: JSON, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Wait so long for its end, such as 30s; at most 5 minutes
    #[arg(long, value_name = "DURATION", value_parser = times::duration)]
    wait: Option<Duration>,
    /// A key by which the same start is recognised if it comes again
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The trace that the run belongs to
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The entity that the run is about
    #[arg(long, value_name = "ID")]
    entity_id: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_on(Sought::Workflow, async |client| {
        let input = args.input.as_ref().map(|input| files::json_argument("--input", input)).transpose()?;
        let start = Start {
            workflow: args.workflow.clone(),
            version: args.version.clone(),
            instance_id: args.id.clone(),
            input,
            correlation_id: args.correlation_id.clone(),
            entity_id: args.entity_id.clone(),
            wait: args.wait,
            key: args.key.clone(),
        };
        let raw = client.start(&start).raw().await?;
        let outcome: Option<StartOutcome> = serde_json::from_str(raw.get()).ok();
        if args.remote.json {
            say!("{raw}");
        } else if let Some(outcome) = &outcome {
            tell(outcome);
        }
        Ok(match outcome {
            Some(StartOutcome::Ended(run)) if run.status == Status::Completed => exit::OK,
            Some(StartOutcome::Ended(_)) => exit::NOT_OK,
            _ if args.wait.is_some() => exit::GOES_ON,
            _ => exit::OK,
        })
    })
}

fn tell(outcome: &StartOutcome) {
    match outcome {
        StartOutcome::Running(begun) => {
            say!("started {BOLD}{}{BOLD:#}; `abide show {0}` tells how it goes", visible(&begun.instance_id));
        }
        StartOutcome::Ended(run) => say!("{BOLD}{}{BOLD:#} {}", visible(&run.instance_id), ending(run)),
    }
}

/// How a run ended, in one line.
pub(super) fn ending(run: &Instance) -> String {
    let style = status_style(&run.status.to_string());
    let with = match (&run.error, &run.output) {
        (Some(failure), _) => format!(": {}", timeline::error(failure)),
        (None, Some(output)) => format!(" with {}", visible(&timeline::short(output))),
        (None, None) => String::new(),
    };
    format!("{style}{}{style:#}{with}", run.status)
}
