//! What can come of a commit or a read.
//!
//! The outcomes of a commit are distinct kinds of knowledge, not degrees of failure: who gets `Unknown` must ask, who gets
//! `Unavailable` may repeat, who gets `Fenced` must stop.

use super::{BatchError, Key, Partition, Version};

/// The versions a commit gave its rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Of the head: what the next commit of this partition must expect.
    pub head: Option<Version>,
    /// Of the other rows, in the order they were written; `None` for deletions.
    pub rows: Vec<Option<Version>>,
}

/// What came of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitOutcome {
    /// Durable.
    Committed(Receipt),
    /// Not applied: the head is not at the expected version. Another owner has the partition; stop, do not reload and retry.
    Fenced,
    /// Not applied: these rows were not as expected, and the head, if there was one, was.
    Conflict(Vec<Key>),
    /// Not applied and never will be: the batch itself is wrong.
    Refused(BatchError),
    /// Surely not applied; may be tried again.
    Unavailable {
        /// What the backend said.
        reason: String,
    },
    /// May or may not be applied. Read the head, or the row that was to be created, before doing anything else.
    Unknown {
        /// What the backend said.
        reason: String,
    },
}

/// A read that could not be answered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend cannot be reached or is poisoned; the same read may succeed later.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What the backend said.
        reason: String,
    },
    /// Stored bytes fail their checksum or their encoding. Never retried, never guessed around; other rows can be read.
    #[error("row {key} of partition {partition} is damaged: {reason}")]
    Corrupt {
        /// Where.
        partition: Partition,
        /// Which row; for a scan, the last one before the damage, or no bytes if it is at the beginning.
        key: Key,
        /// What was wrong with it.
        reason: String,
    },
}
