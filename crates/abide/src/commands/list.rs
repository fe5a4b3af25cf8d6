//! `abide list`: lists runs, newest first.

use std::process::ExitCode;

use abide_client::{InstanceFilter, InstanceSummary, Timestamp};
use serde_json::Value;

use crate::server_args::{LimitArgs, ServerArgs};
use crate::table::{TextCell, TextTable, status_style};
use crate::time_format;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only runs of this status, such as Running or Failed
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only runs of this definition
    #[arg(long, value_name = "WORKFLOW")]
    workflow: Option<String>,
    /// Only runs of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Only runs with this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only runs about this entity
    #[arg(long, value_name = "ID")]
    entity_id: Option<String>,
    /// Only runs started at this time or later: a timestamp, or a duration before now, such as 2h
    #[arg(long, value_name = "TIMESTAMP", value_parser = time_format::parse_timestamp)]
    created_from: Option<Timestamp>,
    /// Only runs started before this time: a timestamp, or a duration before now
    #[arg(long, value_name = "TIMESTAMP", value_parser = time_format::parse_timestamp)]
    created_to: Option<Timestamp>,
    #[command(flatten)]
    extent: LimitArgs,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let filter = InstanceFilter {
        status: args.status.clone(),
        workflow: args.workflow.clone(),
        version: args.version.clone(),
        correlation_id: args.correlation_id.clone(),
        entity_id: args.entity_id.clone(),
        created_from: args.created_from,
        created_to: args.created_to,
    };
    args.remote
        .run(async |client| args.remote.print_list(client.instances(&filter), &args.extent, print).await)
}

fn print(runs: &[InstanceSummary]) {
    let mut table = TextTable::new(["RUN", "STATUS", "WORKFLOW", "VERSION", "AGE", "UPDATED", "ERROR"]);
    for run in runs {
        let status = run.status.to_string();
        table.push_row([
            (&run.execution_id).into(),
            TextCell::styled(&status, status_style(&status)),
            (&run.workflow).into(),
            (&run.version).into(),
            time_format::format_age(run.created_at_utc).into(),
            time_format::format_age(run.last_updated_at_utc).into(),
            format_error(run.error.as_ref()).into(),
        ]);
    }
    table.print("runs");
}

/// The error of a failed run on one line.
fn format_error(error: Option<&Value>) -> String {
    let Some(error) = error else { return String::new() };
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    match (text("code"), text("message")) {
        (Some(code), Some(message)) if !message.is_empty() => format!("{code}: {message}"),
        (Some(code), _) => code.to_owned(),
        _ => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    }
}
