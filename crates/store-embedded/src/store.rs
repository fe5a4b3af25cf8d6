//! The embedded store behind the storage interface: checks requests, queues writes, reads durable rows.
//!
//! It writes nothing itself: the committer does.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;

use abide_store::change_notify::{ChangeNotifier, ChangeTick};
use abide_store::public::TableSchema;
use abide_store::public::{
    PublicKey, PublicPage, PublicPutError, PublicQuery, PublicQueryError, PublicRow, PublicTables,
    PublicWrite,
};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Key, Partition, PrivateRows, StoreHealth, StoreLimits,
};
use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::backup::{self, StoreBackupError};
use crate::committer::{self, CommitterRequest, QueuedRequest, public_write_bytes};
use crate::engine::Engine;
use crate::export;
use crate::folder::{StoreFolder, StoreOpenError};
use crate::journal_recovery::JournalRecovery;
use crate::options::EmbeddedOptions;
use crate::public_tables;
use crate::state::{BACKGROUND_FAILED, EngineState, StoreShared};
use crate::working_copy::{self, WorkingCopy};

/// A store in a folder, open in this process and no other. Dropping it closes it cleanly.
pub struct EmbeddedStore {
    shared: Arc<StoreShared>,
    queue: Option<mpsc::Sender<QueuedRequest>>,
    queue_permits: Arc<Semaphore>,
    committer: Option<JoinHandle<()>>,
    journal_recovery: JournalRecovery,
    /// The folder that is open instead of a read-only one; removed last.
    working_copy: Option<WorkingCopy>,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("folder", &self.shared.folder.path()).finish_non_exhaustive()
    }
}

/// The most requests in the queue. Their bytes are bounded as well, by [`EmbeddedOptions::queue_bytes`].
const QUEUE_REQUESTS_MAX: usize = 16 * 1024;

impl EmbeddedStore {
    /// Opens the store in a folder; creates it if there is none.
    pub fn open(folder: &Path, options: EmbeddedOptions) -> Result<Self, StoreOpenError> {
        let folder = StoreFolder::lock(folder)?;
        let (engine, journal_recovery) = folder.open_engine(&options)?;
        let shared = Arc::new(StoreShared {
            folder,
            options,
            change_notifier: ChangeNotifier::default(),
            state: RwLock::new(EngineState::Open(Arc::new(engine))),
            #[cfg(feature = "faults")]
            next_group_fault: std::sync::Mutex::default(),
        });
        let (queue, mut requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let thread = std::thread::Builder::new().name("abide-committer".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || committer::run(&shared, &mut requests)
        });
        let committer = thread
            .map_err(|source| StoreOpenError::Io { folder: shared.folder.path().to_owned(), source })?;
        let queue_permits = Arc::new(Semaphore::new(options.queue_bytes.div_ceil(QUEUE_PERMIT_BYTES)));
        Ok(Self {
            shared,
            queue: Some(queue),
            queue_permits,
            committer: Some(committer),
            journal_recovery,
            working_copy: None,
        })
    }

    /// Opens an existing store to read it. If its folder cannot be written, because it is on a read-only medium, a
    /// working copy beside it is opened, which is removed with the store.
    pub fn open_to_read(folder: &Path, options: EmbeddedOptions) -> Result<Self, StoreOpenError> {
        if working_copy::is_writable(folder) {
            return Self::open(folder, options);
        }
        Self::open_working_copy(folder, options)
    }

    /// Opens a working copy of a store and leaves its folder as it is. Damage is reported as in the working copy.
    pub fn open_working_copy(folder: &Path, options: EmbeddedOptions) -> Result<Self, StoreOpenError> {
        let working_copy = WorkingCopy::make(folder)?;
        let mut store =
            Self::open(working_copy.path(), options).map_err(|error| working_copy.name_original(error))?;
        store.working_copy = Some(working_copy);
        Ok(store)
    }

    /// The bytes that were removed from the journals when the store was opened, including those that salvage lost.
    pub fn journal_recovery(&self) -> JournalRecovery {
        self.journal_recovery
    }

    /// Why the synced length of the journal could not be recorded the last time, if so. The store works on, but a crash
    /// may cut off more of its journal unnoticed than otherwise.
    pub fn length_record_failure(&self) -> Option<String> {
        match self.shared.state() {
            EngineState::Open(engine) => engine.length_record_failure(),
            EngineState::ReadOnly(..) | EngineState::Closed { .. } => None,
        }
    }

    /// Reopens the engine after a failure, without restarting the process. Does nothing if the engine is open.
    pub async fn reopen(&self) -> Result<(), StoreOpenError> {
        let closed = || StoreOpenError::Io {
            folder: self.shared.folder.path().to_owned(),
            source: std::io::Error::other("the store is closed"),
        };
        let (reply, result) = oneshot::channel();
        self.enqueue(CommitterRequest::Reopen { reply }, None).await.map_err(|_| closed())?;
        result.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Copies the store as of one point in time into a new folder, which is a store of its own, while this one
    /// continues to work. `copied` is called for every slice with its bytes.
    pub fn backup(&self, to: &Path, copied: impl FnMut(u64)) -> Result<(), StoreBackupError> {
        match self.shared.state() {
            EngineState::Open(engine) | EngineState::ReadOnly(engine, _) => {
                backup::copy(&engine, to, &self.shared.options, copied)
            }
            EngineState::Closed { reason, .. } => Err(StoreBackupError::Unavailable { reason }),
        }
    }

    /// Hands out a copy of all rows as of one point in time, piece by piece, while the store continues to work; see
    /// [`StoreImport`](crate::StoreImport). Ends early if `on_piece` returns false. Blocks the calling thread.
    pub fn export(
        &self,
        attachment: &[u8],
        on_piece: &mut dyn FnMut(Vec<u8>) -> bool,
    ) -> Result<(), StoreBackupError> {
        match self.shared.state() {
            EngineState::Open(engine) | EngineState::ReadOnly(engine, _) => {
                export::export(&engine, attachment, on_piece)
            }
            EngineState::Closed { reason, .. } => Err(StoreBackupError::Unavailable { reason }),
        }
    }

    /// False if the engine must be released, because it has to be reopened.
    pub fn is_open(&self) -> bool {
        matches!(self.shared.state(), EngineState::Open(_))
    }

    /// Makes the next group fail as a failed sync would, after it was applied or before.
    #[cfg(feature = "faults")]
    pub fn make_next_commit_unknown(&self, applied: bool) {
        *self.shared.next_group_fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some(applied);
    }

    fn with_engine<T>(&self, read: impl FnOnce(&Engine) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.shared.state() {
            EngineState::Open(engine) | EngineState::ReadOnly(engine, _) => read(&engine),
            EngineState::Closed { reason, .. } => {
                self.request_reopen();
                Err(StoreError::Unavailable { reason })
            }
        }
    }

    /// Asks the committer to reopen the engine, if that may help. A full queue is no problem: the committer tries
    /// before every group.
    fn request_reopen(&self) {
        if let Some(queue) = &self.queue {
            drop(queue.try_send(QueuedRequest { request: CommitterRequest::TryReopen, queue_permit: None }));
        }
    }

    async fn enqueue(
        &self,
        request: CommitterRequest,
        queue_permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(), String> {
        let closed = || "the store is closed".to_owned();
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(QueuedRequest { request, queue_permit }).await.map_err(|_| closed())
    }

    /// Waits until the queue has room for this many bytes.
    async fn acquire_queue_permit(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits_max = self.shared.options.queue_bytes.div_ceil(QUEUE_PERMIT_BYTES);
        let permits = u32::try_from(bytes.div_ceil(QUEUE_PERMIT_BYTES).clamp(1, permits_max)).unwrap_or(1);
        Arc::clone(&self.queue_permits).acquire_many_owned(permits).await.ok()
    }
}

/// One permit of the queue stands for this many bytes.
const QUEUE_PERMIT_BYTES: usize = 256;

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(committer) = self.committer.take() {
            drop(committer.join());
        }
        self.working_copy = None;
    }
}

impl PrivateRows for EmbeddedStore {
    fn capabilities(&self) -> Capabilities {
        let durability = self.shared.options.sync.durability();
        Capabilities { limits: StoreLimits::LOCAL, durability, shared: false }
    }

    /// Takes the engine's journal lock, which a sync holds too: if the disk hangs, this hangs as well, so a probe
    /// should have a time limit.
    fn health(&self) -> StoreHealth {
        let health = match self.shared.state() {
            EngineState::Closed { reason, .. } => StoreHealth::Unusable { reason },
            EngineState::ReadOnly(_, reason) => StoreHealth::ReadOnly { reason },
            EngineState::Open(engine) if engine.is_poisoned() => {
                StoreHealth::ReadOnly { reason: BACKGROUND_FAILED.to_owned() }
            }
            EngineState::Open(_) => self
                .shared
                .disk_full_reason()
                .map_or(StoreHealth::Usable, |reason| StoreHealth::ReadOnly { reason }),
        };
        if health != StoreHealth::Usable {
            self.request_reopen();
        }
        health
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.with_engine(|engine| engine.read(partition, key))
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.with_engine(|engine| engine.scan(partition, scan))
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        let batch = batch.into();
        if let Err(error) = batch.check(&StoreLimits::LOCAL) {
            return CommitOutcome::InvalidBatch(error);
        }
        let permit = self.acquire_queue_permit(batch.size_bytes()).await;
        let (reply, outcome) = oneshot::channel();
        let request = CommitterRequest::Commit { partition: partition.clone(), batch, reply };
        if let Err(reason) = self.enqueue(request, permit).await {
            return CommitOutcome::Unavailable { reason };
        }
        let unacknowledged = |_| CommitOutcome::Unknown {
            reason: "the store was closed before the commit was acknowledged".to_owned(),
        };
        outcome.await.unwrap_or_else(unacknowledged)
    }

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.shared.change_notifier.wait_for_change(partition, seen).await
    }
}

impl PublicTables for EmbeddedStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PublicPutError> {
        PublicWrite::check_all(&writes, table)?;
        let permit = self.acquire_queue_permit(writes.iter().map(public_write_bytes).sum()).await;
        let (reply, result) = oneshot::channel();
        let unavailable = |reason| PublicPutError::Store(StoreError::Unavailable { reason });
        self.enqueue(CommitterRequest::Put { table, writes, reply }, permit).await.map_err(unavailable)?;
        let unacknowledged =
            |_| Err(unavailable("the store was closed before the put was acknowledged".to_owned()));
        result.await.unwrap_or_else(unacknowledged)
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.with_engine(|engine| {
            let key = public_tables::row_key(table, key);
            let stored = engine
                .public_snapshot()
                .get(&key)
                .map_err(|error| public_tables::public_read_error(&error, table, &key))?;
            let decode = |stored: Vec<u8>| {
                public_tables::decode_row(&stored).ok_or_else(|| public_tables::undecodable(table, &key))
            };
            stored.map(decode).transpose()
        })
    }

    async fn get_first(
        &self,
        table: &'static TableSchema,
        prefix: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.with_engine(|engine| {
            let prefix = public_tables::row_key(table, prefix);
            let stored = engine
                .public_snapshot()
                .first(&prefix)
                .map_err(|error| public_tables::public_read_error(&error, table, &prefix))?;
            let decode = |(key, stored): (Vec<u8>, Vec<u8>)| {
                public_tables::decode_row(&stored).ok_or_else(|| public_tables::undecodable(table, &key))
            };
            stored.map(decode).transpose()
        })
    }

    async fn query(
        &self,
        table: &'static TableSchema,
        query: &PublicQuery,
    ) -> Result<PublicPage, PublicQueryError> {
        let mut result = Err(PublicQueryError::InvalidContinuation);
        self.with_engine(|engine| {
            result = public_tables::query(&engine.public_snapshot(), table, query, engine.token_key());
            Ok(())
        })?;
        result
    }
}
