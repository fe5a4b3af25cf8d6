//! A store that takes its time: others get their turn before every read and before every commit, so that races happen.

use std::ops::Deref;
use std::sync::Arc;

use abide_store::Tick;
use abide_store::memory::{MemoryStore, Personality};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Health, Key, Partition, PrivateRows, Row, Scan, ScanPage, StoreError,
};

#[derive(Debug)]
pub(crate) struct SlowStore(MemoryStore);

impl SlowStore {
    pub(crate) fn new(personality: Personality) -> Self {
        Self(MemoryStore::new(personality))
    }
}

impl Deref for SlowStore {
    type Target = MemoryStore;

    fn deref(&self) -> &MemoryStore {
        &self.0
    }
}

impl PrivateRows for SlowStore {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    async fn read(&self, partition: &Partition, key: &Key) -> Result<Option<Row>, StoreError> {
        tokio::task::yield_now().await;
        self.0.read_now(partition, key)
    }

    async fn scan(&self, partition: &Partition, scan: Scan) -> Result<ScanPage, StoreError> {
        tokio::task::yield_now().await;
        self.0.scan_now(partition, scan)
    }

    async fn commit(&self, partition: &Partition, batch: impl Into<Arc<Batch>> + Send) -> CommitOutcome {
        let batch = batch.into();
        tokio::task::yield_now().await;
        self.0.commit_now(partition, &batch)
    }

    async fn changed(&self, partition: &Partition, seen: Tick) -> Tick {
        self.0.changed(partition, seen).await
    }
}
