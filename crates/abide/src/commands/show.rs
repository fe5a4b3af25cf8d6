//! `abide show`: shows an instance and the path its current run has taken.

use std::process::ExitCode;

use abide_client::{Client, CompensationSteps, Instance};

use super::exit;
use super::start::format_status;
use crate::errors::{CliError, ResourceKind};
use crate::output::{escape_control_chars, outln};
use crate::render;
use crate::run_path::RunPath;
use crate::server_args::ServerArgs;
use crate::styles::{BOLD, FAINT};
use crate::table::group_digits;
use crate::time_format;
use crate::timeline::truncate_json;

/// The number of events the path is made from. If there are more, a note says so.
const EVENTS_MAX: usize = 20_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The instance id
    #[arg(value_name = "ID")]
    id: String,
    /// Do not show the path it has taken
    #[arg(long)]
    no_path: bool,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Instance, async |client| {
        if args.remote.json {
            outln!("{}", client.instance(&args.id).raw().await?);
            return Ok(exit::OK);
        }
        let run = client.instance(&args.id).await?;
        print_header(&run);
        if !args.no_path {
            print_path(client, &run).await?;
        }
        Ok(exit::OK)
    })
}

fn print_header(run: &Instance) {
    let field = |name: &str, value: &str| outln!("  {FAINT}{name:<12}{FAINT:#} {value}");
    outln!("{BOLD}{}{BOLD:#} {}", escape_control_chars(&run.execution_id), format_status(run));
    field(
        "workflow",
        &format!("{} {}", escape_control_chars(&run.workflow), escape_control_chars(&run.version)),
    );
    field(
        "created",
        &format!(
            "{} ({} ago)",
            time_format::format_timestamp(run.created_at_utc),
            time_format::format_age(run.created_at_utc)
        ),
    );
    let updated = run.last_updated_at_utc;
    field(
        "updated",
        &format!("{} ({} ago)", time_format::format_timestamp(updated), time_format::format_age(updated)),
    );
    if run.correlation_id != run.instance_id {
        field("correlation", &escape_control_chars(&run.correlation_id));
    }
    if let Some(entity) = &run.entity_id {
        field("entity", &escape_control_chars(entity));
    }
    field("input", &escape_control_chars(&truncate_json(&run.input)));
    if let Some(CompensationSteps { done, failed, pending }) = run.compensation {
        let mark = if failed > 0 { "✗ " } else { "" };
        let mut text = format!("{mark}{done} done, {failed} failed, {pending} pending");
        if failed > 0 {
            text += &format!("; `abide compensate {}` runs what failed again", run.instance_id);
        }
        field("compensation", &escape_control_chars(&text));
    }
    if let Some(reason) = &run.parked_reason {
        field(
            "parked",
            &format!(
                "{}; `abide resume {}` tries again",
                escape_control_chars(reason),
                escape_control_chars(&run.instance_id)
            ),
        );
    }
    outln!("");
}

async fn print_path(client: &Client, run: &Instance) -> Result<(), CliError> {
    let mut path = RunPath::default();
    let mut events = client.history(&run.instance_id).page_size(100);
    let mut applied = 0;
    while applied < EVENTS_MAX
        && let Some(event) = events.next().await?
    {
        path.apply_event(&event);
        applied += 1;
    }
    render::print(&path, &run.current_states);
    if applied == EVENTS_MAX && events.next().await?.is_some() {
        let count = group_digits(applied as u64);
        outln!(
            "  {FAINT}the path of the first {count} events; `abide history {}` shows all events{FAINT:#}",
            run.instance_id
        );
    }
    Ok(())
}
