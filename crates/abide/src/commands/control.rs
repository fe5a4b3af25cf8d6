//! Events and control operations: `abide raise`, `suspend`, `resume`, `terminate`, `rewind`, `compensate`,
//! `restart`.

use std::process::ExitCode;

use abide_client::{Client, ClientRequest, InstanceAck, RewoundStep};
use serde_json::Value;

use crate::errors::ResourceKind;
use crate::files;
use crate::output::{escape_control_chars, outln};
use crate::server_args::ServerArgs;

#[derive(clap::Args)]
pub(crate) struct RaiseArgs {
    /// The instance id
    #[arg(value_name = "ID")]
    id: String,
    /// The event's name
    #[arg(value_name = "EVENT")]
    event: String,
    /// The event's data: JSON, @FILE, or @- for standard input
    #[arg(value_name = "PAYLOAD")]
    payload: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
}

#[derive(clap::Args)]
pub(crate) struct ControlArgs {
    /// The instance id
    #[arg(value_name = "ID")]
    id: String,
    /// The reason, for the run's history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    remote: ServerArgs,
}

pub(crate) fn raise(args: &RaiseArgs) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Instance, async |client| {
        let payload = args
            .payload
            .as_ref()
            .map(|payload| files::parse_json_argument("PAYLOAD", payload))
            .transpose()?;
        let request = client.raise_event(&args.id, &args.event, &payload.unwrap_or(Value::Null));
        let print = |ack: &InstanceAck| {
            outln!(
                "raised {} in {}",
                escape_control_chars(&args.event),
                escape_control_chars(&ack.instance_id)
            )
        };
        args.remote.print_response(request, print).await
    })
}

pub(crate) fn suspend(args: &ControlArgs) -> ExitCode {
    control(args, "suspended", Client::suspend)
}

pub(crate) fn resume(args: &ControlArgs) -> ExitCode {
    control(args, "resumed", Client::resume)
}

#[derive(clap::Args)]
pub(crate) struct TerminateArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// End all descendants of the run too, those included that were abandoned
    #[arg(long)]
    recursive: bool,
}

pub(crate) fn terminate(args: &TerminateArgs) -> ExitCode {
    let operation = if args.recursive { Client::terminate_tree } else { Client::terminate };
    control(&args.control, "terminated", operation)
}

#[derive(clap::Args)]
pub(crate) struct RewindArgs {
    #[command(flatten)]
    control: ControlArgs,
    /// Give every call that is made again a new idempotency key, even if an earlier attempt may have run
    #[arg(long)]
    new_key: bool,
}

pub(crate) fn rewind(args: &RewindArgs) -> ExitCode {
    let RewindArgs { control: ControlArgs { id, reason, remote }, new_key } = args;
    remote.run_for_resource(ResourceKind::Instance, async |client| {
        let request = client.rewind(id, reason.as_deref(), *new_key);
        remote
            .print_response(request, |rewound| {
                outln!("rewound {}", escape_control_chars(&rewound.instance_id));
                for step in &rewound.steps {
                    outln!("  {}", escape_control_chars(&describe_redriven(step)));
                }
            })
            .await
    })
}

/// One line about a step that is done again: under which key, and why.
fn describe_redriven(step: &RewoundStep) -> String {
    let items: String = step.items.iter().map(|item| format!("[{item}]")).collect();
    let why = match step.reason.as_str() {
        "outcomeUnknown" => {
            "the same idempotency key, because its outcome is unknown: an attempt may have run"
        }
        "interrupted" => "the same idempotency key, because it was in progress when the run failed",
        "outcomeKnown" => "a new idempotency key, because its outcome is known: it failed",
        "requested" => "a new idempotency key, as requested",
        "branchesStartAgain" => {
            "its branches start again: calls whose outcome is unknown keep their idempotency keys, the others get new ones"
        }
        "newChild" => "a new child run, whose calls get new idempotency keys",
        _ => return format!("{}{items}: {} idempotency key ({})", step.step, step.key, step.reason),
    };
    format!("{}{items}: {why}", step.step)
}

pub(crate) fn compensate(args: &ControlArgs) -> ExitCode {
    control(args, "compensating again:", Client::retry_compensation)
}

pub(crate) fn restart(args: &ControlArgs) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Instance, async |client| {
        let request = client.restart(&args.id, args.reason.as_deref());
        args.remote
            .print_response(request, |started| {
                outln!("restarted as {}", escape_control_chars(&started.execution_id))
            })
            .await
    })
}

type ControlRequest = fn(&Client, &str, Option<&str>) -> ClientRequest<InstanceAck>;

fn control(args: &ControlArgs, done: &str, operation: ControlRequest) -> ExitCode {
    args.remote.run_for_resource(ResourceKind::Instance, async |client| {
        let request = operation(client, &args.id, args.reason.as_deref());
        args.remote
            .print_response(request, |ack| outln!("{done} {}", escape_control_chars(&ack.instance_id)))
            .await
    })
}
