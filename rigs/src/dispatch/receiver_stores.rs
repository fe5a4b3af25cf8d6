//! Reads the receivers' own stores, directly from the files of a process that has ended.
//!
//! An effect and the record of its result must both exist or both be missing, whenever the process was killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use abide_dispatch::Metadata;
use abide_dispatch::metadata::{EXECUTION_ID, IDEMPOTENCY_KEY};
use abide_receiver::{ActivityRequest, HandlerRows, Receiver, ReceiverClock};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::Value;
use tokio::process::Command;

use super::receiver_wires::RigProcess;

const READ_STORE: &str = include_str!("workers/read_store.py");
const LEDGER: &[u8] = b"ledger/";
const RUNS: &[u8] = b"conformance/";

/// An entry in the ledger of a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LedgerEntry {
    pub execution: String,
    pub key: String,
    /// The number of the attempt that made it.
    pub attempt: u32,
}

/// The effects in a receiver's store.
#[derive(Default, Debug)]
pub(crate) struct ReceiverState {
    /// Ledger entries by the tags of their calls.
    pub entries: BTreeMap<String, Vec<LedgerEntry>>,
    /// How often a call ran, by tag.
    pub runs: BTreeMap<String, u64>,
    /// Entries without a recorded result, and recorded results without an entry.
    pub half_written: Vec<String>,
}

/// Reads the store of a receiver that has ended.
pub(crate) async fn read(who: RigProcess, store: &Path) -> Result<ReceiverState, String> {
    match who {
        RigProcess::Rust => of_receiver(store).await,
        _ => read_worker_store(store).await,
    }
}

async fn read_worker_store(store: &Path) -> Result<ReceiverState, String> {
    let database = store.join("worker.db");
    if !database.exists() {
        return Ok(ReceiverState::default());
    }
    let output = Command::new("python3").arg("-c").arg(READ_STORE).arg(database).output().await;
    let output = output.map_err(|error| format!("python3: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let mut state = ReceiverState::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let row: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        if row.get("hollow").is_some() {
            state.half_written.push(format!("a result without its effect: {line}"));
        } else if let (Some(tag), Some(runs)) = (text(&row, "tag"), row.get("runs").and_then(Value::as_u64)) {
            state.runs.insert(tag, runs);
        } else {
            if row.get("recorded") != Some(&Value::Bool(true)) {
                state.half_written.push(format!("an effect without the record of its result: {line}"));
            }
            let execution = text(&row, "execution").unwrap_or_default();
            let key = text(&row, "key").unwrap_or_default();
            let entry = LedgerEntry { execution, key, attempt: number(&row, "attempt") };
            state.entries.entry(text(&row, "tag").unwrap_or_default()).or_default().push(entry);
        }
    }
    Ok(state)
}

async fn of_receiver(store: &Path) -> Result<ReceiverState, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", store.display());
    let opened = EmbeddedStore::open(store, EmbeddedOptions::default()).map_err(|error| failed(&error))?;
    let builder = Receiver::builder(Arc::new(opened), ReceiverClock::system());
    let effects = builder.handler_rows().map_err(|error| failed(&error))?;
    let receiver = builder.open().await.map_err(|error| failed(&error))?;
    let mut state = ReceiverState::default();
    for (key, value) in rows(&effects, RUNS).await? {
        let runs = value.as_slice().try_into().map_or(0, u64::from_be_bytes);
        state.runs.insert(String::from_utf8_lossy(key.get(RUNS.len()..).unwrap_or_default()).into(), runs);
    }
    for (_, value) in rows(&effects, LEDGER).await? {
        let row: Value = serde_json::from_slice(&value).map_err(|error| failed(&error))?;
        let execution = text(&row, "executionId").unwrap_or_default();
        let key = text(&row, "idempotencyKey").unwrap_or_default();
        // Only the control records under another key than the one that was sent.
        let recorded = text(&row, "recordedUnder").unwrap_or_else(|| key.clone());
        let pairs = [(EXECUTION_ID, execution.as_bytes()), (IDEMPOTENCY_KEY, recorded.as_bytes())];
        let request = ActivityRequest {
            activity: text(&row, "activity").unwrap_or_default(),
            metadata: Metadata::decode(pairs),
            input: None,
        };
        if receiver.probe(request).await.result.is_err() {
            state.half_written.push(format!("an effect without the record of its result: {row}"));
        }
        let tag = row.pointer("/input/account").and_then(Value::as_str).unwrap_or_default().to_owned();
        let entry = LedgerEntry { execution, key, attempt: number(&row, "attempt") };
        state.entries.entry(tag).or_default().push(entry);
    }
    Ok(state)
}

/// All rows with this key prefix.
async fn rows(
    effects: &HandlerRows<EmbeddedStore>,
    prefix: &[u8],
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, String> {
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
