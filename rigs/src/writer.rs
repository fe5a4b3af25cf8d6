//! The writer: commits as fast as it can on all partitions at once and prints every acknowledgement.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::public::{PublicTables, PublicWrite};
use abide_store::rows::{CommitOutcome, PrivateRows, RowVersion, StoreError};
use abide_store_embedded::{EmbeddedOptions, EmbeddedStore, SyncMode};
use tokio::task::JoinSet;

use crate::ledger::WriterLine;
use crate::workload;

#[derive(clap::Args, Clone)]
pub(crate) struct WriterArgs {
    #[arg(long)]
    pub folder: PathBuf,
    #[arg(long, default_value_t = 16)]
    pub partitions: u64,
    #[arg(long)]
    pub without_sync: bool,
    /// If the store is new: use small buffers, so that flushes and compactions happen all the time.
    #[arg(long)]
    pub small_buffers: bool,
    #[arg(long, default_value_t = 0)]
    pub disk_reserve_bytes: u64,
    /// After a failure, read the head and continue, until this many requests in a row were refused.
    #[arg(long, default_value_t = 0)]
    pub refusals_max: u32,
    /// The control: report every commit as acknowledged before the store has answered.
    #[arg(long)]
    pub acknowledge_early: bool,
}

impl WriterArgs {
    pub(crate) fn options(&self) -> EmbeddedOptions {
        EmbeddedOptions {
            sync: if self.without_sync { SyncMode::OperatingSystem } else { SyncMode::EveryCommit },
            write_buffer_bytes: buffer_bytes(self.small_buffers),
            disk_reserve_bytes: self.disk_reserve_bytes,
            ..EmbeddedOptions::default()
        }
    }
}

/// A store keeps the buffer size it was created with, so the first open must use the right one.
pub(crate) fn buffer_bytes(small: bool) -> u64 {
    if small { 2 * 1024 * 1024 } else { 32 * 1024 * 1024 }
}

pub(crate) fn run(settings: &WriterArgs) -> Result<(), String> {
    let store =
        EmbeddedStore::open(&settings.folder, settings.options()).map_err(|error| error.to_string())?;
    let store = Arc::new(store);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..settings.partitions {
            let head = head(&store, number).await.map_err(|error| error.to_string())?;
            tasks.spawn(write(Arc::clone(&store), number, head, settings.clone()));
        }
        // The first partition that panics ends the writer.
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// Commits to one partition, one commit after the other, until too many were refused or an outcome was false.
async fn write(store: Arc<EmbeddedStore>, number: u64, head: Head, settings: WriterArgs) {
    let refusals_max = settings.refusals_max;
    let partition = workload::partition(number);
    let (mut commit, mut version) = head;
    print_line(&WriterLine::Started { partition: number, commit });
    let mut refusals = 0;
    while refusals <= refusals_max {
        let next = commit + 1;
        if settings.acknowledge_early {
            print_line(&WriterLine::Committed { partition: number, commit: next });
        }
        let failed = match store.commit(&partition, workload::batch(number, next, version.clone())).await {
            CommitOutcome::Committed(receipt) => {
                (commit, version, refusals) = (next, receipt.head_version, 0);
                print_line(&WriterLine::Committed { partition: number, commit });
                put(&store, number, commit).await;
                continue;
            }
            CommitOutcome::Unknown { .. } => WriterLine::Unknown { partition: number, commit: next },
            CommitOutcome::Unavailable { reason } => {
                WriterLine::Unavailable { partition: number, commit: next, reason: one_line(&reason) }
            }
            // This partition has no other writer, and the batch is valid.
            other => return report_false_outcome(number, next, &format!("its only writer got {other:?}")),
        };
        print_line(&failed);
        // Nothing is assumed: the head shows whether the commit was applied.
        let Some(read) = read_head_with_retry(&store, number, next, &mut refusals, refusals_max).await else {
            return;
        };
        let newest = if matches!(failed, WriterLine::Unknown { .. }) { next } else { commit };
        if read.0 > newest {
            return report_false_outcome(
                number,
                next,
                &format!("the head is at {} after {}", read.0, failed.to_text()),
            );
        }
        (commit, version) = read;
        print_line(&WriterLine::Started { partition: number, commit });
    }
}

/// Puts the public row of a commit, if it has one.
async fn put(store: &EmbeddedStore, number: u64, commit: u64) {
    if let Some(row) = workload::public_row(number, commit)
        && store.put(workload::PUBLIC, vec![PublicWrite::Put(row)]).await.is_ok()
    {
        print_line(&WriterLine::Put { partition: number, commit });
    }
}

/// Reads the head after a failure, as soon as it can be read; `None` after too many refusals.
async fn read_head_with_retry(
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
            Ok(head) => return Some(head),
            Err(_) if *refusals > refusals_max => return None,
            Err(error) => {
                let reason = one_line(&error.to_string());
                print_line(&WriterLine::Unread { partition: number, commit, reason });
            }
        }
    }
}

fn report_false_outcome(partition: u64, commit: u64, what: &str) {
    print_line(&WriterLine::FalseOutcome { partition, commit, what: one_line(what) });
}

fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', " ")
}

/// The last commit of a partition, and the version of its head.
type Head = (u64, Option<RowVersion>);

async fn head(store: &EmbeddedStore, number: u64) -> Result<Head, StoreError> {
    let row = store.read(&workload::partition(number), &workload::head()).await?;
    let commit = row.as_ref().and_then(|row| row.value.clone().try_into().ok()).map_or(0, u64::from_be_bytes);
    Ok((commit, row.map(|row| row.version)))
}

/// Waits a few milliseconds, so that a store that is down is not polled all the time.
#[expect(clippy::disallowed_methods, reason = "a rig works in real time")]
async fn pause() {
    let sleeping = tokio::task::spawn_blocking(|| std::thread::sleep(std::time::Duration::from_millis(5)));
    drop(sleeping.await);
}

static OUTPUT: Mutex<()> = Mutex::new(());

/// Prints a line with one write, so that the rig never reads half of it unless the writer was killed.
fn print_line(line: &WriterLine) {
    let _one_at_a_time = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    drop(std::io::stdout().write_all(line.to_text().as_bytes()));
}
