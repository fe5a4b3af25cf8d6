//! One atomic commit: the rows it writes and their preconditions.
//!
//! A batch does not know the backend or the meaning of its rows. Either every row has a precondition, or the batch also
//! writes the partition's head with its expected version, which fences the unchecked rows. A batch that does neither is
//! rejected before any backend sees it.

use std::collections::HashSet;

use super::{Fence, Key, RowVersion, StoreLimits};

/// The condition that a row must meet for the commit to apply. Only rows written in the same commit can have one,
/// because Azure Tables checks no others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Precondition {
    /// The row does not exist.
    Absent,
    /// The row is at this version.
    VersionIs(RowVersion),
    /// The row itself is not checked: the head of the same batch fences it.
    Unchecked,
}

/// A write or deletion of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowWrite {
    pub key: Key,
    /// The new bytes, or `None` to delete the row. An unchecked deletion of a row that does not exist is no error.
    pub value: Option<Vec<u8>>,
    pub precondition: Precondition,
}

/// The rows of one partition that become durable together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The head, if the partition's owner commits.
    pub fence: Option<Fence>,
    /// The other rows, each key at most once.
    pub writes: Vec<RowWrite>,
}

/// Why a batch is rejected without being tried: the caller's mistake, so every attempt fails the same way.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    #[error("the batch is empty")]
    Empty,
    #[error("row {key} is written twice in one batch")]
    DuplicateKey { key: Key },
    /// A row without a precondition in a batch without a head.
    #[error("row {key} has no precondition and the batch has no fence")]
    BlindWithoutFence { key: Key },
    /// The batch exceeds a limit of the backend.
    #[error("{what} of {size} exceeds this store's limit of {limit}")]
    TooLarge {
        /// The measured quantity: rows or bytes of the commit, bytes of a value or of a key.
        what: &'static str,
        size: usize,
        limit: usize,
    },
}

impl Batch {
    /// A commit of the partition's owner: it replaces `head` at `expected_version` by `value`, and fences the rows
    /// added later.
    pub fn fenced(head: Key, expected_version: Option<RowVersion>, value: Vec<u8>) -> Self {
        Self { fence: Some(Fence { key: head, expected_version, value }), writes: Vec::new() }
    }

    /// A commit of any writer: every row must have a precondition.
    pub fn checked() -> Self {
        Self { fence: None, writes: Vec::new() }
    }

    /// Adds a row without a precondition.
    #[must_use]
    pub fn put(self, key: Key, value: Vec<u8>) -> Self {
        self.write(key, Some(value), Precondition::Unchecked)
    }

    /// Adds a row that must not exist yet.
    #[must_use]
    pub fn create(self, key: Key, value: Vec<u8>) -> Self {
        self.write(key, Some(value), Precondition::Absent)
    }

    /// Adds a row that must still be at this version.
    #[must_use]
    pub fn replace(self, key: Key, version: RowVersion, value: Vec<u8>) -> Self {
        self.write(key, Some(value), Precondition::VersionIs(version))
    }

    /// Adds a deletion without a precondition.
    #[must_use]
    pub fn delete(self, key: Key) -> Self {
        self.write(key, None, Precondition::Unchecked)
    }

    /// Adds a deletion of a row that must still be at this version.
    #[must_use]
    pub fn delete_if_at(self, key: Key, version: RowVersion) -> Self {
        self.write(key, None, Precondition::VersionIs(version))
    }

    fn write(mut self, key: Key, value: Option<Vec<u8>>, precondition: Precondition) -> Self {
        self.writes.push(RowWrite { key, value, precondition });
        self
    }

    /// The number of rows written, the head included.
    pub fn row_count(&self) -> usize {
        self.writes.len() + usize::from(self.fence.is_some())
    }

    /// The number of bytes of all keys and values, the head's included.
    pub fn size_bytes(&self) -> usize {
        let head = self.fence.as_ref().map_or(0, |fence| fence.key.as_bytes().len() + fence.value.len());
        let rows = self.writes.iter().map(|w| w.key.as_bytes().len() + w.value.as_ref().map_or(0, Vec::len));
        head + rows.sum::<usize>()
    }

    /// Checks that a store with these limits can try the batch. Backends call this first.
    pub fn check(&self, limits: &StoreLimits) -> Result<(), BatchError> {
        check_limit("a commit's number of rows", self.row_count(), limits.commit_rows_max)?;
        check_limit("a commit's bytes", self.size_bytes(), limits.commit_bytes_max)?;
        if self.row_count() == 0 {
            return Err(BatchError::Empty);
        }
        if let Some(fence) = &self.fence {
            check_row(&fence.key, Some(&fence.value), limits)?;
        }
        for write in &self.writes {
            check_row(&write.key, write.value.as_ref(), limits)?;
            if write.precondition == Precondition::Unchecked && self.fence.is_none() {
                return Err(BatchError::BlindWithoutFence { key: write.key.clone() });
            }
        }
        self.check_duplicate_keys()
    }

    /// Most batches list their rows in ascending order of keys: those cannot contain a key twice.
    fn check_duplicate_keys(&self) -> Result<(), BatchError> {
        let fence = self.fence.as_ref().map(|fence| &fence.key);
        let ascending = self.writes.is_sorted_by(|before, after| before.key < after.key);
        if ascending && self.writes.iter().all(|write| Some(&write.key) != fence) {
            return Ok(());
        }
        let mut seen = HashSet::with_capacity(self.row_count());
        let keys = fence.into_iter().chain(self.writes.iter().map(|write| &write.key));
        match keys.into_iter().find(|key| !seen.insert(*key)) {
            Some(key) => Err(BatchError::DuplicateKey { key: key.clone() }),
            None => Ok(()),
        }
    }
}

fn check_row(key: &Key, value: Option<&Vec<u8>>, limits: &StoreLimits) -> Result<(), BatchError> {
    check_limit("a key's bytes", key.as_bytes().len(), limits.key_bytes_max)?;
    check_limit("a value's bytes", value.map_or(0, Vec::len), limits.value_bytes_max)
}

fn check_limit(what: &'static str, size: usize, limit: usize) -> Result<(), BatchError> {
    if size > limit { Err(BatchError::TooLarge { what, size, limit }) } else { Ok(()) }
}
