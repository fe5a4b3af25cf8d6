//! The node's store, as one process has it: from the moment the process dies nothing is answered any more, and nothing is written.
//!
//! The rows are those of a store that outlives processes. A death is right before a commit or right after it: applied, and its outcome
//! never told.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use abide_store::Tick;
use abide_store::memory::MemoryStore;
use abide_store::public::{
    Page, PublicKey, PublicRow, PublicTables, PublicWrite, PutError, Query, QueryError, TableSchema,
};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Health, Key, Partition, PrivateRows, Row, Scan, ScanPage, StoreError,
};
use tokio::sync::Notify;

/// Whether a process dies at this commit, the n-th since it began to work.
type AtCommit = Box<dyn FnMut(u64) -> bool + Send>;

/// When a process dies.
pub(crate) enum Death {
    /// With the commit not applied.
    Before(AtCommit),
    /// With the commit applied, and its outcome not told.
    After(AtCommit),
}

pub(crate) struct MortalStore {
    rows: Arc<MemoryStore>,
    death: Mutex<Option<Death>>,
    commits: AtomicU64,
    dead: AtomicBool,
    died: Notify,
}

impl MortalStore {
    pub(crate) fn new(rows: Arc<MemoryStore>) -> Self {
        Self {
            rows,
            death: Mutex::default(),
            commits: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            died: Notify::new(),
        }
    }

    /// Commits are counted from here on, and one of them may be the last.
    pub(crate) fn begin(&self, death: Option<Death>) {
        *self.death.lock().unwrap() = death;
        self.commits.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Resolves when the process has died.
    pub(crate) async fn died(&self) {
        // Before the look, so that a death in between is not missed.
        let died = self.died.notified();
        if !self.is_dead() {
            died.await;
        }
    }

    /// Nothing, or for ever.
    async fn alive(&self) {
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    async fn dies(&self) -> CommitOutcome {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_waiters();
        pending().await
    }

    /// Whether the process dies now, if it is to die at such a moment.
    fn is_last(&self, number: u64, applied: bool) -> bool {
        match (self.death.lock().unwrap().as_mut(), applied) {
            (Some(Death::Before(at)), false) | (Some(Death::After(at)), true) => at(number),
            _ => false,
        }
    }
}

impl PrivateRows for MortalStore {
    fn capabilities(&self) -> Capabilities {
        self.rows.capabilities()
    }

    fn health(&self) -> Health {
        self.rows.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        self.alive().await;
        self.rows.read_now(partition, key)
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        self.alive().await;
        self.rows.scan_now(partition, scan)
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        let batch = batch.into();
        self.alive().await;
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if self.is_last(number, false) {
            return self.dies().await;
        }
        let outcome = self.rows.commit_now(partition, &batch);
        if self.is_last(number, true) {
            return self.dies().await;
        }
        outcome
    }

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.rows.changed(partition, seen).await
    }
}

impl PublicTables for MortalStore {
    async fn put(&self, table: &'static TableSchema, writes: Vec<PublicWrite>) -> Result<(), PutError> {
        self.alive().await;
        self.rows.put(table, writes).await
    }

    async fn get(
        &self,
        table: &'static TableSchema,
        key: &PublicKey,
    ) -> Result<Option<PublicRow>, StoreError> {
        self.rows.get(table, key).await
    }

    async fn query(&self, table: &'static TableSchema, query: &Query) -> Result<Page, QueryError> {
        self.rows.query(table, query).await
    }
}
