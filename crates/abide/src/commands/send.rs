//! `abide send`: sends events that are given by flags, by a file, or line by line on standard input.
//!
//! Batches are sent one after the other, so that the events of a session stay in order. The server recognises an event
//! by source and id, and a repeated one has no effect. A line of a file without an id gets one made from its source and
//! its text, so a file can be corrected and sent again after an error; see [`LineIds`].

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_client::{Client, CloudEvent, EventReceipt, EventReceiptStatus};
use anstyle::{AnsiColor, Style};
use serde_json::Value;
use uuid::Uuid;

use super::exit;
use crate::errors::CliError;
use crate::files::{self, FileError};
use crate::line_ids::LineIds;
use crate::output::{escape_control_chars, outln};
use crate::progress::Progress;
use crate::server_args::ServerArgs;
use crate::table::group_digits;

const ERROR_STYLE: Style = AnsiColor::Red.on_default();
/// The longest accepted line.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// A batch is sent when it reaches this size. Servers accept 1 MiB by default.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// The number of dead letters that are printed one by one.
const DEAD_LETTERS_SHOWN_MAX: u64 = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file with one event (a JSON object) per line, or - for standard input; without it, one event from the flags. A
    /// line of a file without an id gets one made from its source and its text: sent again, it is a duplicate; with
    /// another --source it is a new event
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The type of events without one
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// The source of events without one
    #[arg(long, value_name = "SOURCE", default_value = "abide-cli")]
    source: String,
    /// The id of the event; without it a new one is generated
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    id: Option<String>,
    /// The subject of events without one
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// The session of events without one; without it the subject is the session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// The event's data: JSON, or @FILE
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    data: Option<String>,
    /// The number of events per request, from 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    #[command(flatten)]
    remote: ServerArgs,
}

/// The outcomes of the events sent so far.
#[derive(Default)]
struct SendTally {
    recorded: u64,
    duplicate: u64,
    dead_lettered: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        let mut tally = SendTally::default();
        let sent = match &args.file {
            None => send_batch(args, client, &[args.event_from_args()?], &mut tally).await,
            Some(path) => send_file(args, client, path, &mut tally).await,
        };
        if !args.remote.json {
            let SendTally { recorded, duplicate, dead_lettered } = tally;
            let [recorded, duplicate, dead_lettered] = [recorded, duplicate, dead_lettered].map(group_digits);
            outln!("{recorded} recorded, {duplicate} duplicate, {dead_lettered} dead-lettered");
            if tally.dead_lettered > 0 {
                outln!("`abide dlq list` has the reasons; `abide route put` sets the route of an event type");
            }
        }
        sent?;
        Ok(if tally.dead_lettered == 0 { exit::OK } else { exit::FAILED })
    })
}

/// Sends a file's events batch by batch.
async fn send_file(args: &Args, client: &Client, path: &Path, tally: &mut SendTally) -> Result<(), CliError> {
    let (mut reader, bytes) = open(path)?;
    let mut progress = Progress::start(if bytes.is_some() { "bytes" } else { "events" }, bytes);
    let mut batch = Vec::new();
    let mut batch_bytes = 0;
    let mut number = 0_u64;
    let mut ids = LineIds::new();
    let is_file = path != Path::new("-");
    while let Some(line) = next_line(&mut *reader, path)? {
        number += 1;
        if !line.trim().is_empty() {
            let event = args
                .event_from_line(&line, |source| match is_file {
                    true => ids.next_id(source, &line, number),
                    // An equal line of another pipe is a different event.
                    false => Uuid::now_v7(),
                })
                .map_err(|reason| CliError::Usage(format!("{}, line {number}: {reason}", path.display())));
            let event = match event {
                Ok(event) => event,
                // The events before it are sent: the file can be corrected and sent again.
                Err(error) => {
                    send_batch(args, client, &batch, tally).await?;
                    return Err(error);
                }
            };
            batch.push(event);
            batch_bytes += line.len();
        }
        if batch.len() >= usize::from(args.batch) || batch_bytes >= BATCH_BYTES_MAX {
            send_batch(args, client, &batch, tally).await?;
            progress.add(if bytes.is_some() { batch_bytes as u64 } else { batch.len() as u64 });
            (batch, batch_bytes) = (Vec::new(), 0);
        }
    }
    send_batch(args, client, &batch, tally).await
}

async fn send_batch(
    args: &Args,
    client: &Client,
    batch: &[CloudEvent],
    tally: &mut SendTally,
) -> Result<(), CliError> {
    if batch.is_empty() {
        return Ok(());
    }
    let receipts = client.send_events(batch).await?;
    for receipt in &receipts.items {
        match receipt.status {
            EventReceiptStatus::Recorded => tally.recorded += 1,
            EventReceiptStatus::Duplicate => tally.duplicate += 1,
            EventReceiptStatus::DeadLettered => tally.dead_lettered += 1,
            EventReceiptStatus::Unknown => {}
        }
        if args.remote.json {
            outln!("{}", serde_json::to_string(receipt).unwrap_or_default());
        } else if receipt.status == EventReceiptStatus::DeadLettered
            && tally.dead_lettered <= DEAD_LETTERS_SHOWN_MAX
        {
            print_dead_letter(receipt);
        }
    }
    Ok(())
}

fn print_dead_letter(receipt: &EventReceipt) {
    let reason = receipt.reason.as_deref().unwrap_or("no reason given");
    outln!(
        "{ERROR_STYLE}dead-lettered{ERROR_STYLE:#} {} of {}: {}",
        escape_control_chars(&receipt.id),
        escape_control_chars(&receipt.source),
        escape_control_chars(reason)
    );
}

impl Args {
    /// The event described by the flags.
    fn event_from_args(&self) -> Result<CloudEvent, CliError> {
        let kind = self.kind.as_deref();
        let kind = kind.ok_or_else(|| CliError::Usage("give --type, or a FILE of events".to_owned()))?;
        let id = self.id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let mut event = CloudEvent::new(&self.source, id, kind);
        if let Some(data) = &self.data {
            event = event.data(files::parse_json_argument("--data", data)?);
        }
        Ok(self.apply_defaults(event))
    }

    /// The event of a line, with defaults for missing attributes. `id` makes an id for a line of this source without
    /// one.
    fn event_from_line(&self, line: &str, id: impl FnOnce(&str) -> Uuid) -> Result<CloudEvent, String> {
        let json = abide_workflow::json::parse(line).map_err(|error| error.to_string())?;
        let Value::Object(mut members) = json else {
            return Err("the event is not a JSON object".to_owned());
        };
        let mut default = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                members.entry(name).or_insert(Value::String(value));
            }
        };
        default("specversion", Some("1.0".to_owned()));
        default("source", Some(self.source.clone()));
        default("type", self.kind.clone());
        if !members.contains_key("id") {
            let source = members.get("source").and_then(Value::as_str).unwrap_or_default();
            let id = id(source).to_string();
            members.insert("id".to_owned(), Value::String(id));
        }
        serde_json::from_value(Value::Object(members))
            .map(|event| self.apply_defaults(event))
            .map_err(|error| error.to_string())
    }

    fn apply_defaults(&self, mut event: CloudEvent) -> CloudEvent {
        if event.subject.is_none() {
            event.subject.clone_from(&self.subject);
        }
        if let Some(session) = &self.session {
            event.attributes.entry("sessionid").or_insert(Value::String(session.clone()));
        }
        event
    }
}

/// A reader of the file, and the file's length if it is known.
fn open(path: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), FileError> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(std::io::stdin())), None));
    }
    let unreadable = |reason| FileError::Io { path: path.to_owned(), reason };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    Ok((Box::new(BufReader::new(file)), about.is_file().then_some(about.len())))
}

fn next_line(reader: &mut dyn BufRead, path: &Path) -> Result<Option<String>, FileError> {
    use std::io::Read;
    let mut line = String::new();
    let read = reader.take(LINE_BYTES_MAX).read_line(&mut line);
    let read = read.map_err(|reason| FileError::Io { path: path.to_owned(), reason })?;
    if read as u64 == LINE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned(), limit: LINE_BYTES_MAX });
    }
    Ok((read > 0).then_some(line))
}
