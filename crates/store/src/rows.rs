//! Private rows: `(partition, key) → (value, version)`, the only storage the runtime decides on.
//!
//! A logical table is a key prefix, so that all rows of a partition may live in one physical table. This file does not know
//! what any key or value means.

use std::fmt;
use std::future::Future;

use crate::commit::{Batch, CommitOutcome};

/// The unit of atomicity and of ownership: one shard, one registry, one poller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition(pub String);

/// A row's place in its partition. Keys sort by their bytes, on every backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub Vec<u8>);

/// What a row was when it was read. Opaque: compared for equality only, because a backend may use an ETag, a counter or a
/// transaction id. Order comes from sequence numbers in values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(pub Vec<u8>);

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Version(")?;
        for byte in &self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// A row as read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where it is.
    pub key: Key,
    /// Its bytes, in an encoding only the table's own file knows.
    pub value: Vec<u8>,
    /// What a later write of this row must name as its expectation.
    pub version: Version,
}

/// Which rows to scan, in which direction, and how many at most.
#[derive(Clone, Debug)]
pub struct ScanRange {
    /// First key of the range, included.
    pub from: Key,
    /// End of the range, excluded.
    pub until: Key,
    /// Last key first.
    pub backwards: bool,
    /// At most this many rows; ask again from the last key for more.
    pub rows_max: usize,
}

/// What a backend can take in one commit. A value over `value_bytes_max` is chunked inside the backend, never above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Rows in one commit.
    pub commit_rows_max: usize,
    /// Bytes in one commit, keys included.
    pub commit_bytes_max: usize,
    /// Bytes of one value.
    pub value_bytes_max: usize,
}

/// A read that could not be answered. Commits answer with [`CommitOutcome`] instead, because they may have happened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend cannot be reached or is poisoned; the same read may succeed later.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What the backend said.
        reason: String,
    },
    /// Stored bytes fail their checksum or their encoding. Never retried, never guessed around.
    #[error("row {key:?} of partition {partition:?} is corrupt: {reason}")]
    Corrupt {
        /// Where.
        partition: Partition,
        /// Which row.
        key: Key,
        /// What was wrong with it.
        reason: String,
    },
}

/// Reads and fenced, atomic writes of one namespace.
pub trait PrivateRows: Send + Sync {
    /// The limits a batch must keep.
    fn limits(&self) -> Limits;

    /// One row, or `None`.
    fn read(
        &self,
        partition: &Partition,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// Rows of a key range in key order, at most `range.rows_max` of them.
    fn scan(
        &self,
        partition: &Partition,
        range: ScanRange,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;

    /// Applies the batch as a whole or not at all. Durable when it answers `Committed`, never before.
    fn commit(&self, partition: &Partition, batch: Batch) -> impl Future<Output = CommitOutcome> + Send;

    /// Resolves when the partition may have changed since the last call: a hint, possibly spurious, never the only trigger.
    fn changed(&self, partition: &Partition) -> impl Future<Output = ()> + Send;
}
