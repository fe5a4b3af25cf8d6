//! `abide dlq`: lists and shows dead letters.

use std::process::ExitCode;

use abide_client::{DeadLetter, DeadLetterFilter, Timestamp};
use serde_json::Value;

use crate::errors::ResourceKind;
use crate::output::{escape_control_chars, outln, pretty_json};
use crate::server_args::{LimitArgs, ServerArgs};
use crate::styles::{BOLD, FAINT};
use crate::table::{TextCell, TextTable, status_style};
use crate::time_format;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List dead letters, newest failure first
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        extent: LimitArgs,
        #[command(flatten)]
        remote: ServerArgs,
    },
    /// Show a dead letter with its message
    Show {
        /// The engine of the dead letter, such as ingress
        #[arg(value_name = "ENGINE")]
        engine: String,
        /// Its row key, as shown in the list
        #[arg(value_name = "ROW_KEY")]
        row_key: String,
        #[command(flatten)]
        remote: ServerArgs,
    },
}

#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Only dead letters of this engine, such as ingress
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Only dead letters of this status: Pending, Resolved or Expired
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only dead letters of this instance
    #[arg(long, value_name = "ID")]
    instance_id: Option<String>,
    /// Only those whose last failure was at this time or later: a timestamp, or a duration before now, such as 2h
    #[arg(long, value_name = "TIMESTAMP", value_parser = time_format::parse_timestamp)]
    from: Option<Timestamp>,
    /// Only those whose last failure was before this time: a timestamp, or a duration before now
    #[arg(long, value_name = "TIMESTAMP", value_parser = time_format::parse_timestamp)]
    to: Option<Timestamp>,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List { filter, extent, remote } => {
            let filter = DeadLetterFilter {
                engine: filter.engine.clone(),
                status: filter.status.clone(),
                instance_id: filter.instance_id.clone(),
                from_date: filter.from,
                to_date: filter.to,
            };
            remote.run(async |client| remote.print_list(client.dead_letters(&filter), extent, print).await)
        }
        Command::Show { engine, row_key, remote } => remote
            .run_for_resource(ResourceKind::DeadLetter, async |client| {
                remote.print_response(client.dead_letter(engine, row_key), print_one).await
            }),
    }
}

fn print(letters: &[DeadLetter]) {
    let mut table = TextTable::new(["ENGINE", "ROW KEY", "STATUS", "AGE", "REASON"]);
    for letter in letters {
        table.push_row([
            (&letter.engine).into(),
            (&letter.row_key).into(),
            TextCell::styled(&letter.status, status_style(&letter.status)),
            time_format::format_age(letter.last_failure_at_utc).into(),
            (&letter.error_message).into(),
        ]);
    }
    table.print("dead letters");
}

fn print_one(letter: &DeadLetter) {
    let field =
        |name: &str, value: &str| outln!("  {FAINT}{name:<12}{FAINT:#} {}", escape_control_chars(value));
    outln!(
        "{BOLD}{} {}{BOLD:#} {}",
        escape_control_chars(&letter.engine),
        escape_control_chars(&letter.row_key),
        escape_control_chars(&letter.status)
    );
    field("reason", &letter.error_message);
    field("instance", &letter.instance_id);
    field("queue", &letter.original_queue);
    field("attempts", &letter.dequeue_count.to_string());
    field("first failed", &time_format::format_timestamp(letter.first_failure_at_utc));
    field("last failed", &time_format::format_timestamp(letter.last_failure_at_utc));
    field("correlation", &letter.correlation_id);
    for (name, value) in [("resolved by", &letter.resolved_by), ("notes", &letter.resolution_notes)] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    outln!("");
    outln!("{}", format_message(letter.original_message.as_ref()));
}

/// The message, indented. It is JSON, or a string that contains JSON.
fn format_message(message: Option<&Value>) -> String {
    let parsed = match message {
        None => return "no message".to_owned(),
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(other) => other.clone(),
    };
    pretty_json(&parsed)
}
