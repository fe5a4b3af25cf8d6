//! `abide purge`: deletes an ended instance, or all ended runs that match a filter. It asks for confirmation first.

use std::process::ExitCode;

use abide_client::{Client, PurgeOutcome, PurgeRequest, Timestamp};
use serde_json::json;

use super::exit;
use crate::confirm::confirm;
use crate::errors::{CliError, ResourceKind};
use crate::output::{escape_control_chars, outln};
use crate::progress::Progress;
use crate::server_args::ServerArgs;
use crate::table::group_digits;
use crate::time_format;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The instance id; or use filters instead
    #[arg(value_name = "ID", conflicts_with_all = ["status", "workflow", "created_from", "created_to", "dry_run"])]
    id: Option<String>,
    /// Only runs of this status: Completed, Failed or Terminated; may be given several times
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// Only runs of this definition
    #[arg(long, value_name = "WORKFLOW")]
    workflow: Option<String>,
    /// Only runs started at this time or later: a timestamp, or a duration before now, such as 30d
    #[arg(long, value_name = "TIMESTAMP", value_parser = time_format::parse_timestamp)]
    created_from: Option<Timestamp>,
    /// Only runs started before this time: a timestamp, or a duration before now
    #[arg(long, value_name = "TIMESTAMP", value_parser = time_format::parse_timestamp)]
    created_to: Option<Timestamp>,
    /// Only count the runs that match
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Instance, async |client| match &args.id {
        Some(id) => {
            confirm(
                &format!("This permanently deletes {} and its history.", escape_control_chars(id)),
                args.yes,
            )?;
            args.remote
                .print_response(client.purge(id), |ack| {
                    outln!("purged {}", escape_control_chars(&ack.instance_id))
                })
                .await
        }
        None => purge_matching(args, client).await,
    })
}

async fn purge_matching(args: &Args, client: &Client) -> Result<u8, CliError> {
    let filter = PurgeRequest {
        status: args.status.clone(),
        workflow: args.workflow.clone(),
        created_from: args.created_from,
        created_to: args.created_to,
        ..PurgeRequest::default()
    };
    if filter == PurgeRequest::default() {
        let message =
            "give an instance id, or at least one of --status, --workflow, --created-from, --created-to";
        return Err(CliError::Usage(message.to_owned()));
    }
    let dry = PurgeRequest { dry_run: true, ..filter.clone() };
    let PurgeOutcome { matched, .. } =
        purge_pages(client, &dry, Progress::start("runs counted", None)).await?;
    if args.dry_run || matched == 0 {
        return print_counts(args, matched, 0);
    }
    confirm(
        &format!("This permanently deletes {} runs and their history.", group_digits(matched)),
        args.yes,
    )?;
    let purged = purge_pages(client, &filter, Progress::start("runs", Some(matched))).await?;
    print_counts(args, purged.matched, purged.purged)
}

/// Sends requests until no run is left to purge.
async fn purge_pages(
    client: &Client,
    purge: &PurgeRequest,
    mut progress: Progress,
) -> Result<PurgeOutcome, CliError> {
    let mut purge = purge.clone();
    let mut total = PurgeOutcome::default();
    loop {
        let PurgeOutcome { matched, purged, continuation_token } = client.purge_matching(&purge).await?;
        total.matched += matched;
        total.purged += purged;
        progress.add(matched);
        if continuation_token.is_none() || continuation_token == purge.continuation_token {
            return Ok(total);
        }
        purge.continuation_token = continuation_token;
    }
}

fn print_counts(args: &Args, matched: u64, purged: u64) -> Result<u8, CliError> {
    if args.remote.json {
        outln!("{}", json!({"matched": matched, "purged": purged}));
    } else if args.dry_run {
        outln!("{} runs would be purged", group_digits(matched));
    } else {
        outln!("{} of {} runs purged", group_digits(purged), group_digits(matched));
    }
    Ok(exit::OK)
}
