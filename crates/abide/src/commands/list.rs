//! `abide list`: runs, newest first.

use std::process::ExitCode;

use abide_client::{InstanceFilter, InstanceSummary, Timestamp};
use serde_json::Value;

use crate::remote::{Extent, Remote};
use crate::table::{Cell, Table, status_style};
use crate::times;

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
    /// Only runs of this trace
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only runs about this entity
    #[arg(long, value_name = "ID")]
    entity_id: Option<String>,
    /// Only runs begun then or later: a timestamp, or how long ago, such as 2h
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    created_from: Option<Timestamp>,
    /// Only runs begun before then
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    created_to: Option<Timestamp>,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    remote: Remote,
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
    args.remote.run(async |client| args.remote.list(client.instances(&filter), &args.extent, print).await)
}

fn print(runs: &[InstanceSummary]) {
    let mut table = Table::new(["RUN", "STATUS", "WORKFLOW", "VERSION", "AGE", "MOVED", "ERROR"]);
    for run in runs {
        let status = run.status.to_string();
        table.row([
            (&run.execution_id).into(),
            Cell::styled(&status, status_style(&status)),
            (&run.workflow).into(),
            (&run.version).into(),
            times::ago(run.created_at_utc).into(),
            times::ago(run.last_updated_at_utc).into(),
            error(run.error.as_ref()).into(),
        ]);
    }
    table.print("runs");
}

/// Why it failed, in a few words.
fn error(error: Option<&Value>) -> String {
    let Some(error) = error else { return String::new() };
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    match (text("code"), text("message")) {
        (Some(code), Some(message)) if !message.is_empty() => format!("{code}: {message}"),
        (Some(code), _) => code.to_owned(),
        _ => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    }
}
