//! `abide stuck`: lists runs that have not ended in the time they should, and what they wait for.

use std::process::ExitCode;
use std::time::Duration;

use abide_client::{StuckRun, StuckState, WaitingFor};

use crate::render::describe_wait;
use crate::server_args::{LimitArgs, ServerArgs};
use crate::table::TextTable;
use crate::time_format;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    extent: LimitArgs,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| args.remote.print_list(client.stuck_runs(), &args.extent, print).await)
}

fn print(runs: &[StuckRun]) {
    let mut table = TextTable::new(["INSTANCE", "WORKFLOW", "OVERDUE", "WAITING FOR"]);
    for run in runs {
        let states: Vec<String> = run.waiting_for.iter().map(describe_state).collect();
        table.push_row([
            (&run.instance_id).into(),
            (&run.workflow).into(),
            time_format::format_duration(Duration::from_secs(run.stuck_for_seconds)).into(),
            states.join("; ").into(),
        ]);
    }
    table.print("stuck runs");
}

fn describe_state(stuck: &StuckState) -> String {
    let waiting = WaitingFor {
        kind: stuck.kind.clone(),
        activity: stuck.activity.clone(),
        attempt: stuck.attempt,
        name: stuck.event.clone(),
        child_instance_id: stuck.child.clone(),
        until: stuck.until,
        held: stuck.held.clone(),
        ..WaitingFor::default()
    };
    format!("{} {}", stuck.state, describe_wait(&waiting))
}
