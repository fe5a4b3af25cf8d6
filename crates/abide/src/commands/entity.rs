//! `abide entity`: entities, the events they hold, and operations on them.

use std::process::ExitCode;

use abide_client::{Called, Entity, EntityEvent, EntitySummary};

use crate::files;
use crate::problem::Sought;
use crate::remote::{Extent, Remote};
use crate::say::{pretty, say, visible};
use crate::styles::{BOLD, FAINT};
use crate::table::{Cell, Table, grouped};
use crate::timeline::short;
use crate::times;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List entities
    List {
        /// Only of this type
        #[arg(long = "type", value_name = "TYPE")]
        entity_type: Option<String>,
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show an entity
    Show {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show the events an entity holds, oldest first
    Events {
        #[command(flatten)]
        which: Which,
        /// From this position on
        #[arg(long, value_name = "POSITION")]
        from: Option<u64>,
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Call an operation, such as RecordEvent, GetEvents, GetState or Clear
    Call {
        #[command(flatten)]
        which: Which,
        /// The operation
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// Its input: JSON, @FILE, or @- for standard input
        #[arg(value_name = "INPUT")]
        input: Option<String>,
        /// A key by which the same call is recognised if it comes again
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(clap::Args)]
pub(crate) struct Which {
    /// The entity's type
    #[arg(value_name = "TYPE")]
    entity_type: String,
    /// The entity's key
    #[arg(value_name = "KEY")]
    entity_key: String,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { entity_type, extent, remote } => remote
            .run(async |client| remote.list(client.entities(entity_type.as_deref()), extent, print).await),
        Command::Show { which, remote } => remote.run_on(Sought::Entity, async |client| {
            let call = client.entity(&which.entity_type, &which.entity_key);
            remote.answer(call, print_one).await
        }),
        Command::Events { which, from, extent, remote } => remote.run_on(Sought::Entity, async |client| {
            let events = client.entity_events(&which.entity_type, &which.entity_key, *from);
            remote.list(events, extent, print_events).await
        }),
        Command::Call { which, operation, input, key, remote } => {
            remote.run_on(Sought::Entity, async |client| {
                let input = input.as_ref().map(|input| files::json_argument("INPUT", input)).transpose()?;
                let Which { entity_type, entity_key } = which;
                let call =
                    client.call_entity(entity_type, entity_key, operation, input.as_ref(), key.as_deref());
                remote.answer(call, |Called { output }| say!("{}", pretty(output))).await
            })
        }
    }
}

fn print(entities: &[EntitySummary]) {
    let mut table = Table::new(["TYPE", "EVENTS", "MOVED", "KEY"]);
    for entity in entities {
        table.row([
            (&entity.entity_type).into(),
            Cell::count(entity.event_count),
            times::ago(entity.last_updated_at_utc).into(),
            (&entity.entity_key).into(),
        ]);
    }
    table.print("entities");
}

fn print_one(entity: &Entity) {
    let field = |name: &str, value: &str| say!("  {FAINT}{name:<12}{FAINT:#} {value}");
    say!("{BOLD}{} {}{BOLD:#}", visible(&entity.entity_type), visible(&entity.entity_key));
    field("events", &grouped(entity.event_count));
    field("positions", &format!("from {} to before {}", entity.first_position, entity.next_position));
    field("operations", &grouped(entity.operations));
    let moved = entity.last_updated_at_utc;
    field("moved", &format!("{} ({} ago)", times::stamp(moved), times::ago(moved)));
    field("state", &visible(&short(&entity.state)));
}

fn print_events(events: &[EntityEvent]) {
    let mut table = Table::new(["POSITION", "RECORDED", "EVENT"]);
    for event in events {
        table.row([
            Cell::count(event.position),
            times::stamp(event.recorded_at_utc).into(),
            event.event.to_string().into(),
        ]);
    }
    table.print("events");
}
