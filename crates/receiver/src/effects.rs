//! Rows of the handlers' own, beside the records of the same receiver: read whenever, written only with an answer.
//!
//! Keys begin where the handlers' part of the partition begins, so no handler can touch a record. Rows are kept until a handler deletes
//! them; retention is about answers only.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use abide_store::rows::{Batch, Key, Partition, PrivateRows, Row, Scan, StoreError, Version};

use crate::rows;

/// One row to be changed. Every change says what it expects, so two handlers never overwrite each other unseen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    key: Vec<u8>,
    change: Change,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    Create(Vec<u8>),
    Replace(Version, Vec<u8>),
    Delete(Version),
}

impl Effect {
    /// A row that must not exist yet.
    pub fn create(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), change: Change::Create(value.into()) }
    }

    /// A row that must be as it was read.
    pub fn replace(key: impl Into<Vec<u8>>, version: Version, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), change: Change::Replace(version, value.into()) }
    }

    /// The end of a row that must be as it was read.
    pub fn delete(key: impl Into<Vec<u8>>, version: Version) -> Self {
        Self { key: key.into(), change: Change::Delete(version) }
    }

    pub(crate) fn add_to(self, batch: Batch) -> Batch {
        let key = rows::effect(&self.key);
        match self.change {
            Change::Create(value) => batch.create(key, value),
            Change::Replace(version, value) => batch.replace(key, version, value),
            Change::Delete(version) => batch.delete_at(key, version),
        }
    }
}

/// Reads the handlers' rows.
pub struct Effects<S> {
    store: Arc<S>,
    partition: Partition,
}

impl<S> Clone for Effects<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), partition: self.partition.clone() }
    }
}

impl<S> fmt::Debug for Effects<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects").field("partition", &self.partition).finish_non_exhaustive()
    }
}

impl<S: PrivateRows> Effects<S> {
    pub(crate) fn new(store: Arc<S>, partition: Partition) -> Self {
        Self { store, partition }
    }

    /// One row, by the handler's own key.
    pub async fn read(&self, key: &[u8]) -> Result<Option<Row>, StoreError> {
        let row = self.store.read(&self.partition, &rows::effect(key)).await?;
        Ok(row.and_then(own))
    }

    /// A page of the rows whose keys begin so, in the order of their keys, behind the one that was last. An empty page is the end.
    pub async fn page(&self, prefix: &[u8], after: Option<&[u8]>) -> Result<Vec<Row>, StoreError> {
        let mut scan = Scan::prefix(rows::effect(prefix).as_bytes());
        if let Some(after) = after {
            scan.from = Bound::Excluded(rows::effect(after));
        }
        let page = self.store.scan(&self.partition, scan).await?;
        Ok(page.rows.into_iter().filter_map(own).collect())
    }
}

/// A row under the key that its handler knows.
fn own(row: Row) -> Option<Row> {
    let key = Key::new(rows::own_key(&row.key)?);
    Some(Row { key, ..row })
}
