//! `abide send`: events to the server, from flags, from a file, or line by line from standard input.
//!
//! Events go in batches, one after the other, so that those of one session stay in order. Events are recognised by source and id: what
//! was sent before is answered as before. A line that says no id gets one that is made from its source and its text, so a file can be mended
//! and sent again after an error; see [`LineIds`].

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use abide_client::{Client, CloudEvent, Receipt, ReceiptStatus};
use anstyle::{AnsiColor, Style};
use serde_json::Value;
use uuid::Uuid;

use super::exit;
use crate::files::{self, FileError};
use crate::line_ids::LineIds;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remote::Remote;
use crate::say::{say, visible};
use crate::table::grouped;

const BAD: Style = AnsiColor::Red.on_default();
/// Bytes of one event's line.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of a batch; servers take 1 MiB unless told otherwise.
const BATCH_BYTES_MAX: usize = 512 * 1024;
/// Dead letters that are told one by one.
const TOLD_MAX: u64 = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events, a JSON object per line, or - for standard input; without it, one event from the flags. A line of a file that says no id has one
    /// made from its source and its text: sent again, it is there already; another --source sends it anew
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The type of events that do not say theirs
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// The source of events that do not say theirs
    #[arg(long, value_name = "SOURCE", default_value = "abide-cli")]
    source: String,
    /// The id of the event; without it a new one
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    id: Option<String>,
    /// The subject of events that do not say theirs
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,
    /// The session of events that do not say theirs; without it the subject is
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// The event's data: JSON, or @FILE
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    data: Option<String>,
    /// Send so many at once, from 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    #[command(flatten)]
    remote: Remote,
}

/// What came of it so far.
#[derive(Default)]
struct Tally {
    recorded: u64,
    duplicate: u64,
    dead: u64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    args.remote.run(async |client| {
        let mut tally = Tally::default();
        let sent = match &args.file {
            None => send(args, client, &[args.single()?], &mut tally).await,
            Some(path) => lines(args, client, path, &mut tally).await,
        };
        if !args.remote.json {
            let Tally { recorded, duplicate, dead } = tally;
            let [recorded, duplicate, dead] = [recorded, duplicate, dead].map(grouped);
            say!("{recorded} recorded, {duplicate} there already, {dead} dead-lettered");
            if tally.dead > 0 {
                say!("`abide dlq list` shows why; `abide route put` routes a type of event");
            }
        }
        sent?;
        Ok(if tally.dead == 0 { exit::OK } else { exit::NOT_OK })
    })
}

/// Sends a file's events batch by batch.
async fn lines(args: &Args, client: &Client, path: &Path, tally: &mut Tally) -> Result<(), Problem> {
    let (mut reader, bytes) = open(path)?;
    let mut progress = Progress::begin(if bytes.is_some() { "bytes" } else { "events" }, bytes);
    let (mut batch, mut batch_bytes, mut number) = (Vec::new(), 0, 0_u64);
    let mut ids = LineIds::new();
    let is_file = path != Path::new("-");
    while let Some(line) = next_line(&mut *reader, path)? {
        number += 1;
        if !line.trim().is_empty() {
            let event = args
                .complete(&line, |source| match is_file {
                    true => ids.next(source, &line, number),
                    // What comes by a pipe now may have come by another before, and is not the same.
                    false => Uuid::now_v7(),
                })
                .map_err(|reason| Problem::Usage(format!("{}, line {number}: {reason}", path.display())));
            let event = match event {
                Ok(event) => event,
                // What came before it is sent: the file can be mended and sent again.
                Err(problem) => {
                    send(args, client, &batch, tally).await?;
                    return Err(problem);
                }
            };
            batch.push(event);
            batch_bytes += line.len();
        }
        if batch.len() >= usize::from(args.batch) || batch_bytes >= BATCH_BYTES_MAX {
            send(args, client, &batch, tally).await?;
            progress.add(if bytes.is_some() { batch_bytes as u64 } else { batch.len() as u64 });
            (batch, batch_bytes) = (Vec::new(), 0);
        }
    }
    send(args, client, &batch, tally).await
}

async fn send(args: &Args, client: &Client, batch: &[CloudEvent], tally: &mut Tally) -> Result<(), Problem> {
    if batch.is_empty() {
        return Ok(());
    }
    let received = client.send(batch).await?;
    for receipt in &received.items {
        match receipt.status {
            ReceiptStatus::Recorded => tally.recorded += 1,
            ReceiptStatus::Duplicate => tally.duplicate += 1,
            ReceiptStatus::DeadLettered => tally.dead += 1,
            ReceiptStatus::Unknown => {}
        }
        if args.remote.json {
            say!("{}", serde_json::to_string(receipt).unwrap_or_default());
        } else if receipt.status == ReceiptStatus::DeadLettered && tally.dead <= TOLD_MAX {
            tell_dead(receipt);
        }
    }
    Ok(())
}

fn tell_dead(receipt: &Receipt) {
    let reason = receipt.reason.as_deref().unwrap_or("no reason given");
    say!(
        "{BAD}dead-lettered{BAD:#} {} of {}: {}",
        visible(&receipt.id),
        visible(&receipt.source),
        visible(reason)
    );
}

impl Args {
    /// The event that the flags describe.
    fn single(&self) -> Result<CloudEvent, Problem> {
        let kind = self.kind.as_deref();
        let kind = kind.ok_or_else(|| Problem::Usage("say --type, or give a FILE of events".to_owned()))?;
        let id = self.id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        let mut event = CloudEvent::new(&self.source, id, kind);
        if let Some(data) = &self.data {
            event = event.data(files::json_argument("--data", data)?);
        }
        Ok(self.fill(event))
    }

    /// An event from a line, with what it does not say itself. `id` makes one for a line of this source that has none.
    fn complete(&self, line: &str, id: impl FnOnce(&str) -> Uuid) -> Result<CloudEvent, String> {
        let json = abide_workflow::json::parse(line).map_err(|error| error.to_string())?;
        let Value::Object(mut members) = json else { return Err("it is not a JSON object".to_owned()) };
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
            .map(|event| self.fill(event))
            .map_err(|error| error.to_string())
    }

    fn fill(&self, mut event: CloudEvent) -> CloudEvent {
        if event.subject.is_none() {
            event.subject.clone_from(&self.subject);
        }
        if let Some(session) = &self.session {
            event.more.entry("sessionid").or_insert(Value::String(session.clone()));
        }
        event
    }
}

/// A file's reader, and how long it is if that is known.
fn open(path: &Path) -> Result<(Box<dyn BufRead>, Option<u64>), FileError> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(std::io::stdin())), None));
    }
    let unreadable = |reason| FileError::Unreadable { path: path.to_owned(), reason };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    Ok((Box::new(BufReader::new(file)), about.is_file().then_some(about.len())))
}

fn next_line(reader: &mut dyn BufRead, path: &Path) -> Result<Option<String>, FileError> {
    use std::io::Read;
    let mut line = String::new();
    let read = reader.take(LINE_BYTES_MAX).read_line(&mut line);
    let read = read.map_err(|reason| FileError::Unreadable { path: path.to_owned(), reason })?;
    if read as u64 == LINE_BYTES_MAX {
        return Err(FileError::TooLarge { path: path.to_owned(), limit: LINE_BYTES_MAX });
    }
    Ok((read > 0).then_some(line))
}
