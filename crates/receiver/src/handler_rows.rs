//! The handlers' own rows, beside the records of the same receiver: read at any time, written only with a result.
//!
//! Their keys have their own prefix in the partition, so no handler can touch a record. Rows stay until a handler
//! deletes them; retention covers only results.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use abide_store::rows::{Batch, Key, Partition, PrivateRows, Row, RowVersion, Scan, StoreError};

use crate::rows;

/// One row to change. Every write states the version it expects, so two handlers never overwrite each other unnoticed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandlerWrite {
    key: Vec<u8>,
    op: WriteOp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum WriteOp {
    Create(Vec<u8>),
    Replace(RowVersion, Vec<u8>),
    Delete(RowVersion),
}

impl HandlerWrite {
    /// Creates a row, which must not exist yet.
    pub fn create(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), op: WriteOp::Create(value.into()) }
    }

    /// Replaces a row, which must still have this version.
    pub fn replace(key: impl Into<Vec<u8>>, version: RowVersion, value: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), op: WriteOp::Replace(version, value.into()) }
    }

    /// Deletes a row, which must still have this version.
    pub fn delete(key: impl Into<Vec<u8>>, version: RowVersion) -> Self {
        Self { key: key.into(), op: WriteOp::Delete(version) }
    }

    pub(crate) fn add_to(self, batch: Batch) -> Batch {
        let key = rows::handler_row_key(&self.key);
        match self.op {
            WriteOp::Create(value) => batch.create(key, value),
            WriteOp::Replace(version, value) => batch.replace(key, version, value),
            WriteOp::Delete(version) => batch.delete_if_at(key, version),
        }
    }
}

/// Reads the handlers' rows.
pub struct HandlerRows<S> {
    store: Arc<S>,
    partition: Partition,
}

impl<S> Clone for HandlerRows<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), partition: self.partition.clone() }
    }
}

impl<S> fmt::Debug for HandlerRows<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRows").field("partition", &self.partition).finish_non_exhaustive()
    }
}

impl<S: PrivateRows> HandlerRows<S> {
    pub(crate) fn new(store: Arc<S>, partition: Partition) -> Self {
        Self { store, partition }
    }

    /// Reads one row by the handler's own key.
    pub async fn read(&self, key: &[u8]) -> Result<Option<Row>, StoreError> {
        let row = self.store.read(&self.partition, &rows::handler_row_key(key)).await?;
        Ok(row.and_then(with_handler_key))
    }

    /// Reads a page of the rows whose keys have this prefix, in key order, after the last key of the page before. An
    /// empty page is the end.
    pub async fn page(&self, prefix: &[u8], after: Option<&[u8]>) -> Result<Vec<Row>, StoreError> {
        let mut scan = Scan::prefix(rows::handler_row_key(prefix).as_bytes());
        if let Some(after) = after {
            scan.from = Bound::Excluded(rows::handler_row_key(after));
        }
        let page = self.store.scan(&self.partition, scan).await?;
        Ok(page.rows.into_iter().filter_map(with_handler_key).collect())
    }
}

/// The row with its stored key replaced by the handler's own key.
fn with_handler_key(row: Row) -> Option<Row> {
    let key = Key::new(rows::handler_key(&row.key)?);
    Some(Row { key, ..row })
}
