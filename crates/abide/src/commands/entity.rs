//! `abide entity`: lists and shows entities and their events, and calls operations on them.

use std::process::ExitCode;

use abide_client::{Entity, EntityCallOutput, EntityEvent, EntitySummary};

use crate::errors::ResourceKind;
use crate::files;
use crate::output::{escape_control_chars, outln, pretty_json};
use crate::server_args::{LimitArgs, ServerArgs};
use crate::styles::{BOLD, FAINT};
use crate::table::{TextCell, TextTable, group_digits};
use crate::time_format;
use crate::timeline::truncate_json;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List entities
    List {
        /// Only entities of this type
        #[arg(long = "type", value_name = "TYPE")]
        entity_type: Option<String>,
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Show an entity
    Show {
        #[command(flatten)]
        which: EntityArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// List the events of an entity, oldest first
    Events {
        #[command(flatten)]
        which: EntityArgs,
        /// The position to start at
        #[arg(long, value_name = "POSITION")]
        from: Option<u64>,
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Call an operation, such as RecordEvent, GetEvents, GetState or Clear
    Call {
        #[command(flatten)]
        which: EntityArgs,
        /// The name of the operation
        #[arg(value_name = "OPERATION")]
        operation: String,
        /// Its input: JSON, @FILE, or @- for standard input
        #[arg(value_name = "INPUT")]
        input: Option<String>,
        /// An idempotency key, by which the server recognises a repeat of this operation
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        #[command(flatten)]
        remote: ServerArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct EntityArgs {
    /// The entity's type
    #[arg(value_name = "TYPE")]
    entity_type: String,
    /// The entity's key
    #[arg(value_name = "KEY")]
    entity_key: String,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { entity_type, extent, remote } => remote.run(async |client| {
            remote.print_list(client.entities(entity_type.as_deref()), extent, print).await
        }),
        Command::Show { which, remote } => remote.run_for_resource(ResourceKind::Entity, async |client| {
            let request = client.entity(&which.entity_type, &which.entity_key);
            remote.print_response(request, print_one).await
        }),
        Command::Events { which, from, extent, remote } => {
            remote.run_for_resource(ResourceKind::Entity, async |client| {
                let events = client.entity_events(&which.entity_type, &which.entity_key, *from);
                remote.print_list(events, extent, print_events).await
            })
        }
        Command::Call { which, operation, input, key, remote } => {
            remote.run_for_resource(ResourceKind::Entity, async |client| {
                let input =
                    input.as_ref().map(|input| files::parse_json_argument("INPUT", input)).transpose()?;
                let EntityArgs { entity_type, entity_key } = which;
                let request =
                    client.call_entity(entity_type, entity_key, operation, input.as_ref(), key.as_deref());
                remote
                    .print_response(request, |EntityCallOutput { output }| outln!("{}", pretty_json(output)))
                    .await
            })
        }
    }
}

fn print(entities: &[EntitySummary]) {
    let mut table = TextTable::new(["TYPE", "EVENTS", "UPDATED", "KEY"]);
    for entity in entities {
        table.push_row([
            (&entity.entity_type).into(),
            TextCell::count(entity.event_count),
            time_format::format_age(entity.last_updated_at_utc).into(),
            (&entity.entity_key).into(),
        ]);
    }
    table.print("entities");
}

fn print_one(entity: &Entity) {
    let field = |name: &str, value: &str| outln!("  {FAINT}{name:<12}{FAINT:#} {value}");
    outln!(
        "{BOLD}{} {}{BOLD:#}",
        escape_control_chars(&entity.entity_type),
        escape_control_chars(&entity.entity_key)
    );
    field("events", &group_digits(entity.event_count));
    field("positions", &format!("from {} to before {}", entity.first_position, entity.next_position));
    field("operations", &group_digits(entity.operations));
    let updated = entity.last_updated_at_utc;
    field(
        "updated",
        &format!("{} ({} ago)", time_format::format_timestamp(updated), time_format::format_age(updated)),
    );
    field("state", &escape_control_chars(&truncate_json(&entity.state)));
}

fn print_events(events: &[EntityEvent]) {
    let mut table = TextTable::new(["POSITION", "RECORDED", "EVENT"]);
    for event in events {
        table.push_row([
            TextCell::count(event.position),
            time_format::format_timestamp(event.recorded_at_utc).into(),
            event.event.to_string().into(),
        ]);
    }
    table.print("events");
}
