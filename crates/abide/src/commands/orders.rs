//! What a run can be told: `abide raise`, `suspend`, `resume`, `terminate`, `rewind`, `restart`.

use std::process::ExitCode;

use abide_client::{Call, Client, Named};
use serde_json::Value;

use crate::files;
use crate::problem::Sought;
use crate::remote::Remote;
use crate::say::{say, visible};

#[derive(clap::Args)]
pub(crate) struct RaiseArgs {
    /// The instance
    #[arg(value_name = "ID")]
    id: String,
    /// The event's name
    #[arg(value_name = "EVENT")]
    event: String,
    /// What it brings: JSON, @FILE, or @- for standard input
    #[arg(value_name = "PAYLOAD")]
    payload: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

#[derive(clap::Args)]
pub(crate) struct OrderArgs {
    /// The instance
    #[arg(value_name = "ID")]
    id: String,
    /// Why; it goes into the run's history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

pub(crate) fn raise(args: &RaiseArgs) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| {
        let payload =
            args.payload.as_ref().map(|payload| files::json_argument("PAYLOAD", payload)).transpose()?;
        let call = client.raise(&args.id, &args.event, &payload.unwrap_or(Value::Null));
        let tell = |named: &Named| say!("raised {} to {}", visible(&args.event), visible(&named.instance_id));
        args.remote.answer(call, tell).await
    })
}

pub(crate) fn suspend(args: &OrderArgs) -> ExitCode {
    order(args, "suspended", Client::suspend)
}

pub(crate) fn resume(args: &OrderArgs) -> ExitCode {
    order(args, "resumed", Client::resume)
}

pub(crate) fn terminate(args: &OrderArgs) -> ExitCode {
    order(args, "terminated", Client::terminate)
}

pub(crate) fn rewind(args: &OrderArgs) -> ExitCode {
    order(args, "rewound", Client::rewind)
}

pub(crate) fn restart(args: &OrderArgs) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| {
        let call = client.restart(&args.id, args.reason.as_deref());
        args.remote.answer(call, |begun| say!("restarted as {}", visible(&begun.execution_id))).await
    })
}

type Order = fn(&Client, &str, Option<&str>) -> Call<Named>;

fn order(args: &OrderArgs, done: &str, order: Order) -> ExitCode {
    args.remote.run_on(Sought::Instance, async |client| {
        let call = order(client, &args.id, args.reason.as_deref());
        args.remote.answer(call, |named| say!("{done} {}", visible(&named.instance_id))).await
    })
}
