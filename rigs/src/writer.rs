//! The writer: commits as fast as it can on every partition at once, and says what was acknowledged.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::public::{PublicTables, PublicWrite};
use abide_store::rows::{CommitOutcome, PrivateRows, StoreError, Version};
use abide_store_embedded::{EmbeddedStore, Options, SyncMode};
use tokio::task::JoinSet;

use crate::ledger::Line;
use crate::workload;

#[derive(clap::Args, Clone)]
pub(crate) struct Settings {
    #[arg(long)]
    pub folder: PathBuf,
    #[arg(long, default_value_t = 16)]
    pub partitions: u64,
    #[arg(long)]
    pub without_sync: bool,
    /// If the store is new: small buffers, so that flushes and compactions happen all the time.
    #[arg(long)]
    pub small_buffers: bool,
    #[arg(long, default_value_t = 0)]
    pub disk_reserve_bytes: u64,
    /// Go on after failures, asking what came of a commit, until this many in a row were refused.
    #[arg(long, default_value_t = 0)]
    pub refusals_max: u32,
}

impl Settings {
    pub(crate) fn options(&self) -> Options {
        Options {
            sync: if self.without_sync { SyncMode::OperatingSystem } else { SyncMode::EveryCommit },
            write_buffer_bytes: buffer_bytes(self.small_buffers),
            disk_reserve_bytes: self.disk_reserve_bytes,
            ..Options::default()
        }
    }
}

/// A store keeps the buffers it was made with, so whoever opens it first must ask for the right ones.
pub(crate) fn buffer_bytes(small: bool) -> u64 {
    if small { 2 * 1024 * 1024 } else { 32 * 1024 * 1024 }
}

pub(crate) fn run(settings: &Settings) -> Result<(), String> {
    let store =
        EmbeddedStore::open(&settings.folder, settings.options()).map_err(|error| error.to_string())?;
    let store = Arc::new(store);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..settings.partitions {
            let head = head(&store, number).await.map_err(|error| error.to_string())?;
            tasks.spawn(write(Arc::clone(&store), number, head, settings.refusals_max));
        }
        // The first partition that panics ends the writer.
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// One partition's commits, one after the other, until too many were refused or the store has lied.
async fn write(store: Arc<EmbeddedStore>, number: u64, head: Head, refusals_max: u32) {
    let partition = workload::partition(number);
    let (mut commit, mut version) = head;
    say(&Line::Started { partition: number, commit });
    let mut refusals = 0;
    while refusals <= refusals_max {
        let next = commit + 1;
        let failed = match store.commit(&partition, workload::batch(number, next, version.clone())).await {
            CommitOutcome::Committed(receipt) => {
                (commit, version, refusals) = (next, receipt.head, 0);
                say(&Line::Committed { partition: number, commit });
                put(&store, number, commit).await;
                continue;
            }
            CommitOutcome::Unknown { .. } => Line::Unknown { partition: number, commit: next },
            CommitOutcome::Unavailable { reason } => {
                Line::Unavailable { partition: number, commit: next, reason: one_line(&reason) }
            }
            // Nobody else writes this partition, and there is nothing wrong with the batch.
            other => return lied(number, next, &format!("its only writer was told {other:?}")),
        };
        say(&failed);
        // Nothing is assumed: the head tells what came of it.
        let Some(found) = ask(&store, number, next, &mut refusals, refusals_max).await else { return };
        let newest = if matches!(failed, Line::Unknown { .. }) { next } else { commit };
        if found.0 > newest {
            return lied(number, next, &format!("the head is at {} after {}", found.0, failed.to_text()));
        }
        (commit, version) = found;
        say(&Line::Started { partition: number, commit });
    }
}

/// The public row that follows a commit, if one does.
async fn put(store: &EmbeddedStore, number: u64, commit: u64) {
    if let Some(row) = workload::public_row(number, commit)
        && store.put(workload::PUBLIC, vec![PublicWrite::Put(row)]).await.is_ok()
    {
        say(&Line::Put { partition: number, commit });
    }
}

/// The head after a failure, as soon as it can be read; `None` when too much was refused.
async fn ask(
    store: &EmbeddedStore,
    number: u64,
    commit: u64,
    refusals: &mut u32,
    refusals_max: u32,
) -> Option<Head> {
    loop {
        *refusals += 1;
        pause().await;
        match head(store, number).await {
            Ok(found) => return Some(found),
            Err(_) if *refusals > refusals_max => return None,
            Err(error) => {
                let reason = one_line(&error.to_string());
                say(&Line::Unread { partition: number, commit, reason });
            }
        }
    }
}

fn lied(partition: u64, commit: u64, what: &str) {
    say(&Line::Lied { partition, commit, what: one_line(what) });
}

fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', " ")
}

/// The last commit of a partition, and the version of its head.
type Head = (u64, Option<Version>);

async fn head(store: &EmbeddedStore, number: u64) -> Result<Head, StoreError> {
    let row = store.read(&workload::partition(number), &workload::head()).await?;
    let commit = row.as_ref().and_then(|row| row.value.clone().try_into().ok()).map_or(0, u64::from_be_bytes);
    Ok((commit, row.map(|row| row.version)))
}

/// A moment, so that a store that is down is not asked all the time.
#[expect(clippy::disallowed_methods, reason = "a rig works in real time")]
async fn pause() {
    let slept = tokio::task::spawn_blocking(|| std::thread::sleep(std::time::Duration::from_millis(5)));
    drop(slept.await);
}

static OUTPUT: Mutex<()> = Mutex::new(());

/// One line, one write: what the rig has read was said whole.
fn say(line: &Line) {
    let _one_at_a_time = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    drop(std::io::stdout().write_all(line.to_text().as_bytes()));
}
