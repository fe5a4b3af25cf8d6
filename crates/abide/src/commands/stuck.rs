//! `abide stuck`: runs that have been alive for longer than they should be, and what they wait for.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{Stuck, StuckAt, WaitingFor};

use crate::drawing::describe;
use crate::remote::{Extent, Remote};
use crate::table::Table;
use crate::times;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| args.remote.list(client.stuck(), &args.extent, print).await)
}

fn print(runs: &[Stuck]) {
    let mut table = Table::new(["INSTANCE", "WORKFLOW", "LATE BY", "WHERE"]);
    for run in runs {
        let places: Vec<String> = run.waiting_for.iter().map(place).collect();
        table.row([
            (&run.instance_id).into(),
            (&run.workflow).into(),
            times::short(Duration::from_secs(run.stuck_for_seconds)).into(),
            places.join("; ").into(),
        ]);
    }
    table.print("stuck runs");
}

fn place(at: &StuckAt) -> String {
    let waiting = WaitingFor {
        kind: at.kind.clone(),
        activity: at.activity.clone(),
        attempt: at.attempt,
        name: at.event.clone(),
        child_instance_id: at.child.clone(),
        until: at.until,
        ..WaitingFor::default()
    };
    format!("{} {}", at.state, describe(&waiting))
}
