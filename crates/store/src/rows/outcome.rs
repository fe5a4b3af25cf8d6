//! The outcomes of a commit or a read.
//!
//! The outcomes of a commit are distinct kinds of knowledge, not degrees of failure. After `Unknown` the caller must
//! read before it acts, after `Unavailable` it may retry, after `Fenced` it must stop. Callers decide what follows;
//! nothing here retries.

use super::{BatchError, Key, Partition, RowVersion};

/// The versions that a commit gave its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitReceipt {
    /// The head's version: the one that the next fenced commit of this partition must expect.
    pub head_version: Option<RowVersion>,
    /// The versions of the other rows, in the order they were written; `None` for deletions.
    pub row_versions: Vec<Option<RowVersion>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitOutcome {
    /// Applied and durable.
    Committed(CommitReceipt),
    /// Not applied: the head is not at the expected version. Another owner has the partition; the caller must stop, not
    /// reload and retry.
    Fenced,
    /// Not applied: these rows did not meet their preconditions. The head, if the batch had one, was at its expected
    /// version.
    Conflict(Vec<Key>),
    /// Not applied, now or later: the batch itself is invalid.
    InvalidBatch(BatchError),
    /// Certainly not applied; may be retried.
    Unavailable { reason: String },
    /// May or may not be applied. Read the head, or the row that was to be created, before doing anything else.
    Unknown { reason: String },
}

/// Why a read failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend cannot be reached or is poisoned; the same read may succeed later.
    #[error("the store is unavailable: {reason}")]
    Unavailable { reason: String },
    /// Stored bytes fail their checksum or cannot be decoded. A retry does not help and nothing is guessed; other rows
    /// can be read.
    #[error("row {key} of partition {partition} is damaged: {reason}")]
    Corrupt {
        partition: Partition,
        /// The damaged row. For a scan: the last row before the damage, or no bytes if the damage is at the beginning.
        key: Key,
        reason: String,
    },
}
