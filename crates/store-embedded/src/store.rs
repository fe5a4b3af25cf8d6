//! The store as the seam sees it: checks what is asked, queues what is written, reads what is durable.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;

use abide_store::notice::{Notices, Tick};
use abide_store::public::TableSchema;
use abide_store::public::{
    Page, PublicKey, PublicRow, PublicTables, PublicWrite, PutError, Query, QueryError,
};
use abide_store::rows::{Batch, Capabilities, CommitOutcome, Health, Key, Limits, Partition, PrivateRows};
use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::backup::{self, BackupError};
use crate::committer::{self, Request, Work, put_bytes};
use crate::engine::Engine;
use crate::folder::{Folder, OpenError};
use crate::journal::Settled;
use crate::options::Options;
use crate::public;
use crate::state::{BACKGROUND_FAILED, Shared, State};

/// A store in a folder, open in this process and no other. Closed in order when it is dropped.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Request>>,
    room: Arc<Semaphore>,
    committer: Option<JoinHandle<()>>,
    settled: Settled,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("folder", &self.shared.folder.path()).finish_non_exhaustive()
    }
}

/// Requests that may wait; their bytes are bounded besides, by [`Options::queue_bytes`].
const QUEUE_REQUESTS_MAX: usize = 16 * 1024;

impl EmbeddedStore {
    /// Opens the store in a folder, making it if there is none.
    pub fn open(folder: &Path, options: Options) -> Result<Self, OpenError> {
        let folder = Folder::take(folder)?;
        let (engine, settled) = folder.open_engine(&options)?;
        let shared = Arc::new(Shared {
            folder,
            options,
            notices: Notices::default(),
            state: RwLock::new(State::Open(Arc::new(engine))),
            #[cfg(feature = "faults")]
            fault: std::sync::Mutex::default(),
        });
        let (queue, mut requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let thread = std::thread::Builder::new().name("abide-committer".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || committer::run(&shared, &mut requests)
        });
        let committer =
            thread.map_err(|source| OpenError::Io { folder: shared.folder.path().to_owned(), source })?;
        let room = Arc::new(Semaphore::new(options.queue_bytes.div_ceil(ROOM_UNIT)));
        Ok(Self { shared, queue: Some(queue), room, committer: Some(committer), settled })
    }

    /// What opening the store did to its journals: a salvaged store tells here what it lost.
    pub fn settled(&self) -> Settled {
        self.settled
    }

    /// Opens the engine anew after a failure, without ending the process. Nothing happens if it is open.
    pub async fn reopen(&self) -> Result<(), OpenError> {
        let closed = || OpenError::Io {
            folder: self.shared.folder.path().to_owned(),
            source: std::io::Error::other("the committer has ended"),
        };
        let (reply, answer) = oneshot::channel();
        self.send(Work::Reopen { reply }, None).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Copies one moment of the store into a new folder, which is a store of its own, while this one goes on. `copied` hears of
    /// every slice, in bytes.
    pub fn backup(&self, to: &Path, copied: impl FnMut(u64)) -> Result<(), BackupError> {
        match self.shared.state() {
            State::Open(engine) | State::ReadOnly(engine, _) => {
                backup::copy(&engine, to, &self.shared.options, copied)
            }
            State::Closed { reason, .. } => Err(BackupError::Unavailable { reason }),
        }
    }

    /// Makes the next group fail, after it was applied or before, as a failed sync would.
    #[cfg(feature = "faults")]
    pub fn make_next_commit_unknown(&self, applied: bool) {
        *self.shared.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(applied);
    }

    fn reading<T>(&self, read: impl FnOnce(&Engine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.shared.state() {
            State::Open(engine) | State::ReadOnly(engine, _) => read(&engine),
            State::Closed { reason, .. } => {
                self.revive();
                Err(StoreError::Unavailable { reason })
            }
        }
    }

    /// Asks the committer to open the engine again, if it would. The queue being full is as good: whatever is in it asks too.
    fn revive(&self) {
        if let Some(queue) = &self.queue {
            drop(queue.try_send(Request { work: Work::Revive, room: None }));
        }
    }

    async fn send(&self, work: Work, room: Option<OwnedSemaphorePermit>) -> Result<(), String> {
        let ended = || "the committer has ended".to_owned();
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        queue.send(Request { work, room }).await.map_err(|_| ended())
    }

    /// Waits until the queue has room for so many bytes.
    async fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let most = self.shared.options.queue_bytes.div_ceil(ROOM_UNIT);
        let units = u32::try_from(bytes.div_ceil(ROOM_UNIT).clamp(1, most)).unwrap_or(1);
        Arc::clone(&self.room).acquire_many_owned(units).await.ok()
    }
}

/// Room in the queue is counted in units of this many bytes.
const ROOM_UNIT: usize = 256;

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(committer) = self.committer.take() {
            drop(committer.join());
        }
    }
}

impl PrivateRows for EmbeddedStore {
    fn capabilities(&self) -> Capabilities {
        let durability = self.shared.options.sync.durability();
        Capabilities { limits: Limits::LOCAL, durability, shared: false }
    }

    /// Looks at the engine's journal lock, which a sync holds: asked of a disk that hangs, it hangs too, and a probe should have a
    /// time limit.
    fn health(&self) -> Health {
        let health = match self.shared.state() {
            State::Closed { reason, .. } => Health::Unusable { reason },
            State::ReadOnly(_, reason) => Health::ReadOnly { reason },
            State::Open(engine) if engine.is_poisoned() => {
                Health::ReadOnly { reason: BACKGROUND_FAILED.to_owned() }
            }
            State::Open(_) => {
                self.shared.disk_full().map_or(Health::Usable, |reason| Health::ReadOnly { reason })
            }
        };
        if health != Health::Usable {
            self.revive();
        }
        health
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.reading(|engine| engine.read(partition, key))
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.reading(|engine| engine.scan(partition, scan))
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        let batch = batch.into();
        if let Err(error) = batch.check(&Limits::LOCAL) {
            return CommitOutcome::Refused(error);
        }
        let room = self.room_for(batch.bytes()).await;
        let (reply, answer) = oneshot::channel();
        let work = Work::Commit { partition: partition.clone(), batch, reply };
        if let Err(reason) = self.send(work, room).await {
            return CommitOutcome::Unavailable { reason };
        }
        let ended =
            |_| CommitOutcome::Unknown { reason: "the committer ended before it answered".to_owned() };
        answer.await.unwrap_or_else(ended)
    }

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.shared.notices.changed(partition, seen).await
    }
}

impl PublicTables for EmbeddedStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PutError> {
        PublicWrite::check_all(&writes, table)?;
        let room = self.room_for(writes.iter().map(put_bytes).sum()).await;
        let (reply, answer) = oneshot::channel();
        let unavailable = |reason| PutError::Store(StoreError::Unavailable { reason });
        self.send(Work::Put { table, writes, reply }, room).await.map_err(unavailable)?;
        let ended = |_| Err(unavailable("the committer ended before it answered".to_owned()));
        answer.await.unwrap_or_else(ended)
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.reading(|engine| {
            let key = public::row_key(table, key);
            let stored =
                engine.public_view().get(&key).map_err(|error| public::damaged(&error, table, &key))?;
            let decode =
                |stored: Vec<u8>| public::decode_row(&stored).ok_or_else(|| public::unreadable(table, &key));
            stored.map(decode).transpose()
        })
    }

    async fn query(&self, table: &'static TableSchema, query: &Query) -> Result<Page, QueryError> {
        let mut answer = Err(QueryError::Continuation);
        self.reading(|engine| {
            answer = public::query(&engine.public_view(), table, query, engine.token_key());
            Ok(())
        })?;
        answer
    }
}
