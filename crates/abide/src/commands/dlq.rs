//! `abide dlq`: what could not be delivered, and why.

use std::process::ExitCode;

use abide_client::{DeadLetter, DeadLetterFilter, Timestamp};
use serde_json::Value;

use crate::problem::Sought;
use crate::remote::{Extent, Remote};
use crate::say::{pretty, say, visible};
use crate::styles::{BOLD, FAINT};
use crate::table::{Cell, Table, status_style};
use crate::times;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List dead letters, the last to fail first
    List {
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show a dead letter with its message
    Show {
        /// Whose it is, such as ingress
        #[arg(value_name = "ENGINE")]
        engine: String,
        /// Its key, as the list has it
        #[arg(value_name = "ROW_KEY")]
        row_key: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(clap::Args)]
pub(crate) struct Filter {
    /// Only of this engine, such as ingress
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Only of this status: Pending, Resolved or Expired
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only for this instance
    #[arg(long, value_name = "ID")]
    instance_id: Option<String>,
    /// Only those that failed last then or later: a timestamp, or how long ago, such as 2h
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
    from: Option<Timestamp>,
    /// Only those that failed last before then
    #[arg(long, value_name = "MOMENT", value_parser = times::moment)]
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
            remote.run(async |client| remote.list(client.dead_letters(&filter), extent, print).await)
        }
        Command::Show { engine, row_key, remote } => remote.run_on(Sought::DeadLetter, async |client| {
            remote.answer(client.dead_letter(engine, row_key), print_one).await
        }),
    }
}

fn print(letters: &[DeadLetter]) {
    let mut table = Table::new(["ENGINE", "ROW KEY", "STATUS", "AGE", "REASON"]);
    for letter in letters {
        table.row([
            (&letter.engine).into(),
            (&letter.row_key).into(),
            Cell::styled(&letter.status, status_style(&letter.status)),
            times::ago(letter.last_failure_at_utc).into(),
            (&letter.error_message).into(),
        ]);
    }
    table.print("dead letters");
}

fn print_one(letter: &DeadLetter) {
    let field = |name: &str, value: &str| say!("  {FAINT}{name:<12}{FAINT:#} {}", visible(value));
    say!(
        "{BOLD}{} {}{BOLD:#} {}",
        visible(&letter.engine),
        visible(&letter.row_key),
        visible(&letter.status)
    );
    field("reason", &letter.error_message);
    field("instance", &letter.instance_id);
    field("queue", &letter.original_queue);
    field("attempts", &letter.dequeue_count.to_string());
    field("first failed", &times::stamp(letter.first_failure_at_utc));
    field("last failed", &times::stamp(letter.last_failure_at_utc));
    field("correlation", &letter.correlation_id);
    for (name, value) in [("resolved by", &letter.resolved_by), ("notes", &letter.resolution_notes)] {
        if let Some(value) = value {
            field(name, value);
        }
    }
    say!("");
    say!("{}", message(letter.original_message.as_ref()));
}

/// The message, indented: it is JSON in a string, or JSON.
fn message(message: Option<&Value>) -> String {
    let parsed = match message {
        None => return "no message".to_owned(),
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(other) => other.clone(),
    };
    pretty(&parsed)
}
