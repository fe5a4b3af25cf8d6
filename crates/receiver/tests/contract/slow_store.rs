//! A store that yields before every read and commit, so that other tasks run in between and races happen.

use std::ops::Deref;
use std::sync::Arc;

use abide_store::ChangeTick;
use abide_store::memory::{BackendProfile, MemoryStore};
use abide_store::rows::{
    Batch, Capabilities, CommitOutcome, Key, Partition, PrivateRows, Row, Scan, ScanPage, StoreError,
    StoreHealth,
};

#[derive(Debug)]
pub(crate) struct SlowStore(MemoryStore);

impl SlowStore {
    pub(crate) fn new(profile: BackendProfile) -> Self {
        Self(MemoryStore::new(profile))
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

    fn health(&self) -> StoreHealth {
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

    async fn wait_for_change(&self, partition: &Partition, seen: ChangeTick) -> ChangeTick {
        self.0.wait_for_change(partition, seen).await
    }
}
