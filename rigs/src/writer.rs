//! The writer: commits as fast as it can on every partition at once, and says what was acknowledged.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use abide_store::public::{PublicTables, PublicWrite};
use abide_store::rows::{CommitOutcome, PrivateRows, StoreError, Version};
use abide_store_embedded::{EmbeddedStore, Options, SyncMode};

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
    /// Small buffers, so that flushes and compactions happen all the time.
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
            write_buffer_bytes: if self.small_buffers { 2 * 1024 * 1024 } else { 32 * 1024 * 1024 },
            disk_reserve_bytes: self.disk_reserve_bytes,
            ..Options::default()
        }
    }
}

pub(crate) fn run(settings: &Settings) -> Result<(), String> {
    let store =
        EmbeddedStore::open(&settings.folder, settings.options()).map_err(|error| error.to_string())?;
    let store = Arc::new(store);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..settings.partitions)
            .map(|partition| tokio::spawn(write(Arc::clone(&store), partition, settings.refusals_max)))
            .collect();
        for task in tasks {
            task.await.map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// One partition's commits, one after the other.
async fn write(store: Arc<EmbeddedStore>, number: u64, refusals_max: u32) {
    let partition = workload::partition(number);
    let Ok((mut commit, mut version)) = head(&store, number).await else { return };
    say(&Line::Started { partition: number, commit });
    let mut refusals = 0;
    while refusals <= refusals_max {
        let next = commit + 1;
        let failed = match store.commit(&partition, workload::batch(number, next, version.clone())).await {
            CommitOutcome::Committed(receipt) => {
                (commit, version, refusals) = (next, receipt.head, 0);
                say(&Line::Committed { partition: number, commit });
                None
            }
            CommitOutcome::Unknown { .. } => Some(Line::Unknown { partition: number, commit: next }),
            CommitOutcome::Unavailable { reason } => {
                let reason = reason.replace('\n', " ");
                Some(Line::Unavailable { partition: number, commit: next, reason })
            }
            other => {
                return say(&Line::Unavailable {
                    partition: number,
                    commit: next,
                    reason: format!("{other:?}"),
                });
            }
        };
        if let Some(failed) = failed {
            say(&failed);
            // Nothing is assumed: the head tells what came of it.
            loop {
                refusals += 1;
                pause().await;
                match head(&store, number).await {
                    Ok(last) => {
                        (commit, version) = last;
                        break;
                    }
                    Err(_) if refusals > refusals_max => return,
                    Err(error) => {
                        let reason = error.to_string().replace('\n', " ");
                        say(&Line::Unavailable { partition: number, commit: next, reason });
                    }
                }
            }
        } else if let Some(row) = workload::public_row(number, commit)
            && store.put(workload::PUBLIC, vec![PublicWrite::Put(row)]).await.is_ok()
        {
            say(&Line::Put { partition: number, commit });
        }
    }
}

/// The last commit of a partition.
async fn head(store: &EmbeddedStore, number: u64) -> Result<(u64, Option<Version>), StoreError> {
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
