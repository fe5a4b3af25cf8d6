//! What receivers' own stores say was done: read straight from the files of a process that has ended.
//!
//! An effect and the record of its answer must be there both or not at all, whenever the process was killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use abide_dispatch::Metadata;
use abide_dispatch::metadata::{EXECUTION_ID, IDEMPOTENCY_KEY};
use abide_receiver::{Clock, Effects, Receiver, Request};
use abide_store_embedded::{EmbeddedStore, Options};
use serde_json::Value;
use tokio::process::Command;

use super::lines::Who;

const READ_STORE: &str = include_str!("workers/read_store.py");
const LEDGER: &[u8] = b"ledger/";
const RUNS: &[u8] = b"conformance/";

/// An entry of a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub execution: String,
    pub key: String,
    /// The delivery that made it.
    pub attempt: u32,
}

/// All that a receiver did.
#[derive(Default, Debug)]
pub(crate) struct Done {
    /// Entries by the tags of their calls.
    pub entries: BTreeMap<String, Vec<Entry>>,
    /// How often something ran, by tag.
    pub runs: BTreeMap<String, u64>,
    /// Entries without a recorded answer, and answers without an entry.
    pub torn: Vec<String>,
}

/// Reads a store that nobody uses.
pub(crate) async fn read(who: Who, store: &Path) -> Result<Done, String> {
    match who {
        Who::Rust => of_receiver(store).await,
        _ => of_worker(store).await,
    }
}

async fn of_worker(store: &Path) -> Result<Done, String> {
    let database = store.join("worker.db");
    if !database.exists() {
        return Ok(Done::default());
    }
    let output = Command::new("python3").arg("-c").arg(READ_STORE).arg(database).output().await;
    let output = output.map_err(|error| format!("python3: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut done = Done::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let told: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        if told.get("hollow").is_some() {
            done.torn.push(format!("an answer without its effect: {line}"));
        } else if let (Some(tag), Some(runs)) = (text(&told, "tag"), told.get("runs").and_then(Value::as_u64))
        {
            done.runs.insert(tag, runs);
        } else {
            if told.get("recorded") != Some(&Value::Bool(true)) {
                done.torn.push(format!("an effect without the record of its answer: {line}"));
            }
            let execution = text(&told, "execution").unwrap_or_default();
            let key = text(&told, "key").unwrap_or_default();
            let entry = Entry { execution, key, attempt: number(&told, "attempt") };
            done.entries.entry(text(&told, "tag").unwrap_or_default()).or_default().push(entry);
        }
    }
    Ok(done)
}

async fn of_receiver(store: &Path) -> Result<Done, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", store.display());
    let opened = EmbeddedStore::open(store, Options::default()).map_err(|error| failed(&error))?;
    let builder = Receiver::builder(Arc::new(opened), Clock::system());
    let effects = builder.effects().map_err(|error| failed(&error))?;
    let receiver = builder.open().await.map_err(|error| failed(&error))?;
    let mut done = Done::default();
    for (key, value) in rows(&effects, RUNS).await? {
        let runs = value.as_slice().try_into().map_or(0, u64::from_be_bytes);
        done.runs.insert(String::from_utf8_lossy(key.get(RUNS.len()..).unwrap_or_default()).into(), runs);
    }
    for (_, value) in rows(&effects, LEDGER).await? {
        let told: Value = serde_json::from_slice(&value).map_err(|error| failed(&error))?;
        let execution = text(&told, "executionId").unwrap_or_default();
        let key = text(&told, "idempotencyKey").unwrap_or_default();
        // Only the control records under another key than it was sent.
        let recorded = text(&told, "recordedUnder").unwrap_or_else(|| key.clone());
        let pairs = [(EXECUTION_ID, execution.as_bytes()), (IDEMPOTENCY_KEY, recorded.as_bytes())];
        let request = Request {
            activity: text(&told, "activity").unwrap_or_default(),
            metadata: Metadata::decode(pairs),
            input: None,
        };
        if receiver.probe(request).await.answer.is_err() {
            done.torn.push(format!("an effect without the record of its answer: {told}"));
        }
        let tag = told.pointer("/input/account").and_then(Value::as_str).unwrap_or_default().to_owned();
        let entry = Entry { execution, key, attempt: number(&told, "attempt") };
        done.entries.entry(tag).or_default().push(entry);
    }
    Ok(done)
}

/// All rows whose keys begin so.
async fn rows(effects: &Effects<EmbeddedStore>, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, String> {
    let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
    loop {
        let page = effects.page(prefix, after.as_deref()).await.map_err(|error| error.to_string())?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.key.as_bytes().to_vec());
        all.extend(page.into_iter().map(|row| (row.key.as_bytes().to_vec(), row.value.to_vec())));
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn number(value: &Value, name: &str) -> u32 {
    value.get(name).and_then(Value::as_u64).and_then(|number| number.try_into().ok()).unwrap_or_default()
}
