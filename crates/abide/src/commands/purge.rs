//! `abide purge`: forgets an ended instance, or ended runs by filter. Counts and asks before it forgets many.

use std::process::ExitCode;

use abide_client::{Client, Purge, Purged, Timestamp};
use serde_json::json;

use super::exit;
use crate::confirm::confirm;
use crate::problem::{Problem, Sought};
use crate::progress::Progress;
use crate::remote::Remote;
use crate::say::{say, visible};
use crate::table::grouped;
use crate::times;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The instance; or filters instead
    #[arg(value_name = "ID", conflicts_with_all = ["status", "workflow", "created_from", "created_to", "dry_run"])]
    id: Option<String>,
    /// Only runs that ended so: Completed, Failed or Terminated; may be given several times
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// Only runs of this definition
    #[arg(long, value_name = "WORKFLOW")]
    workflow: Option<String>,
    /// Only runs begun then or later: a timestamp, or how long ago, such as 30d
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    created_from: Option<Timestamp>,
    /// Only runs begun before then
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    created_to: Option<Timestamp>,
    /// Only say how many there are
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| match &args.id {
        Some(id) => {
            confirm(&format!("This forgets {} and its history for good.", visible(id)), args.yes)?;
            args.remote.answer(client.purge(id), |named| say!("purged {}", visible(&named.instance_id))).await
        }
        None => by_filter(args, client).await,
    })
}

async fn by_filter(args: &Args, client: &Client) -> Result<u8, Problem> {
    let filter = Purge {
        status: args.status.clone(),
        workflow: args.workflow.clone(),
        created_from: args.created_from,
        created_to: args.created_to,
        ..Purge::default()
    };
    if filter == Purge::default() {
        let message = "say which: an instance, or --status, --workflow, --created-from, --created-to";
        return Err(Problem::Usage(message.to_owned()));
    }
    let dry = Purge { dry_run: true, ..filter.clone() };
    let Purged { matched, .. } = all(client, &dry, Progress::begin("runs counted", None)).await?;
    if args.dry_run || matched == 0 {
        return tell(args, matched, 0);
    }
    confirm(&format!("This forgets {} runs and their history for good.", grouped(matched)), args.yes)?;
    let purged = all(client, &filter, Progress::begin("runs", Some(matched))).await?;
    tell(args, purged.matched, purged.purged)
}

/// Call after call until there are no more.
async fn all(client: &Client, purge: &Purge, mut progress: Progress) -> Result<Purged, Problem> {
    let mut purge = purge.clone();
    let mut total = Purged::default();
    loop {
        let Purged { matched, purged, continuation_token } = client.purge_matching(&purge).await?;
        total.matched += matched;
        total.purged += purged;
        progress.add(matched);
        if continuation_token.is_none() || continuation_token == purge.continuation_token {
            return Ok(total);
        }
        purge.continuation_token = continuation_token;
    }
}

fn tell(args: &Args, matched: u64, purged: u64) -> Result<u8, Problem> {
    if args.remote.json {
        say!("{}", json!({"matched": matched, "purged": purged}));
    } else if args.dry_run {
        say!("{} runs would be purged", grouped(matched));
    } else {
        say!("{} of {} runs purged", grouped(purged), grouped(matched));
    }
    Ok(exit::OK)
}
