//! The store of one node process. After a simulated crash it never responds again and writes nothing.
//!
//! Its rows are in a store that outlives the process. A crash is either right before a commit, or right after it: then
//! the commit is applied, but its outcome is never returned.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use abide_store::ChangeTick;
use abide_store::memory::MemoryStore;
use abide_store::public::{
    PublicKey, PublicPage, PublicPutError, PublicQuery, PublicQueryError, PublicRow, PublicTables,
    PublicWrite, TableSchema,
};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Key, Partition, PrivateRows, Row, Scan, ScanPage, StoreError,
    StoreHealth,
};
use tokio::sync::Notify;

/// Decides whether the process crashes at this commit, the n-th since the store was armed.
type AtCommit = Box<dyn FnMut(u64) -> bool + Send>;

/// When a process crashes.
pub(crate) enum CrashPoint {
    /// Before the commit, which is not applied.
    Before(AtCommit),
    /// After the commit is applied; its outcome is not returned.
    After(AtCommit),
}

pub(crate) struct CrashingStore {
    rows: Arc<MemoryStore>,
    crash_point: Mutex<Option<CrashPoint>>,
    commits: AtomicU64,
    crashed: AtomicBool,
    crash_notify: Notify,
}

impl CrashingStore {
    pub(crate) fn new(rows: Arc<MemoryStore>) -> Self {
        Self {
            rows,
            crash_point: Mutex::default(),
            commits: AtomicU64::new(0),
            crashed: AtomicBool::new(false),
            crash_notify: Notify::new(),
        }
    }

    /// Counts commits from here on, and crashes at the given point.
    pub(crate) fn arm(&self, crash_point: Option<CrashPoint>) {
        *self.crash_point.lock().unwrap() = crash_point;
        self.commits.store(0, Ordering::SeqCst);
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }

    /// Resolves when the process has crashed.
    pub(crate) async fn wait_for_crash(&self) {
        // Before the check, so that a crash in between is not missed.
        let crash = self.crash_notify.notified();
        if !self.has_crashed() {
            crash.await;
        }
    }

    /// Returns immediately, or never after a crash.
    async fn wait_if_crashed(&self) {
        if self.has_crashed() {
            pending::<()>().await;
        }
    }

    async fn crash(&self) -> CommitOutcome {
        self.crashed.store(true, Ordering::SeqCst);
        self.crash_notify.notify_waiters();
        pending().await
    }

    /// True if the process crashes at this commit, before it (`applied` is false) or after it.
    fn is_crash_point(&self, number: u64, applied: bool) -> bool {
        match (self.crash_point.lock().unwrap().as_mut(), applied) {
            (Some(CrashPoint::Before(at)), false) | (Some(CrashPoint::After(at)), true) => at(number),
            _ => false,
        }
    }
}

impl PrivateRows for CrashingStore {
    fn capabilities(&self) -> Capabilities {
        self.rows.capabilities()
    }

    fn health(&self) -> StoreHealth {
        self.rows.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.wait_if_crashed().await;
        self.rows.read_now(partition, key)
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.wait_if_crashed().await;
        self.rows.scan_now(partition, scan)
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        let batch = batch.into();
        self.wait_if_crashed().await;
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if self.is_crash_point(number, false) {
            return self.crash().await;
        }
        let outcome = self.rows.commit_now(partition, &batch);
        if self.is_crash_point(number, true) {
            return self.crash().await;
        }
        outcome
    }

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.rows.wait_for_change(partition, seen).await
    }
}

impl PublicTables for CrashingStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PublicPutError> {
        self.wait_if_crashed().await;
        self.rows.put(table, writes).await
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.rows.get(table, key).await
    }

    async fn get_first(
        &self,
        table: &'static TableSchema,
        prefix: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.rows.get_first(table, prefix).await
    }

    async fn query(
        &self,
        table: &'static TableSchema,
        query: &PublicQuery,
    ) -> Result<PublicPage, PublicQueryError> {
        self.rows.query(table, query).await
    }
}
