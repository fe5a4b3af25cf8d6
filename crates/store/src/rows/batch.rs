//! One atomic commit: what it writes and what it expects.
//!
//! Either every row is checked by itself, or the partition's head is written too, with its expected version, and fences the
//! rows that are written blind. A batch that is neither is refused before any backend sees it.

use std::collections::HashSet;

use super::{Key, Limits, Version};

/// What must hold of a row for the commit to apply. Only rows written in the same commit can be named: Azure Tables checks no
/// others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expect {
    /// The row does not exist.
    Absent,
    /// The row is at this version.
    At(Version),
    /// No check of its own: the head of the same batch fences it.
    Anything,
}

/// One row's change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Which row.
    pub key: Key,
    /// Its new bytes, or `None` to delete it. Deleting a row that does not exist, blind, is no error.
    pub value: Option<Vec<u8>>,
    /// What must hold before.
    pub expect: Expect,
}

/// The partition's head: one row whose version, expected and renewed in every commit, is the version check of all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Which row is the head.
    pub key: Key,
    /// The version the writer believes it has, or `None` to make the first head.
    pub expect: Option<Version>,
    /// Its new bytes.
    pub value: Vec<u8>,
}

/// All that becomes durable together in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The head, if this is a commit of the partition's owner.
    pub fence: Option<Fence>,
    /// The other rows, each key at most once.
    pub writes: Vec<Write>,
}

/// Why a batch is refused without being tried: the caller's mistake, the same on every attempt.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    /// Nothing to write.
    #[error("the batch is empty")]
    Empty,
    /// Two writes of one row.
    #[error("row {key} is written twice in one batch")]
    RepeatedKey {
        /// Which.
        key: Key,
    },
    /// A row without an expectation in a batch without a head.
    #[error("row {key} is written blind, but the batch has no head to fence it")]
    BlindWithoutFence {
        /// Which.
        key: Key,
    },
    /// A limit of the backend.
    #[error("{what} of {size} is over this store's limit of {limit}")]
    TooLarge {
        /// Rows, bytes of the commit, bytes of a value or of a key.
        what: &'static str,
        /// How much it is.
        size: usize,
        /// How much it may be.
        limit: usize,
    },
}

impl Batch {
    /// A commit of the partition's owner: `head` goes from `expect` to `value`, and the rows added later go with it.
    pub fn fenced(head: Key, expect: Option<Version>, value: Vec<u8>) -> Self {
        Self { fence: Some(Fence { key: head, expect, value }), writes: Vec::new() }
    }

    /// A commit by anybody: every row must be expected.
    pub fn checked() -> Self {
        Self { fence: None, writes: Vec::new() }
    }

    /// Adds a row written blind.
    #[must_use]
    pub fn put(self, key: Key, value: Vec<u8>) -> Self {
        self.write(key, Some(value), Expect::Anything)
    }

    /// Adds a row that must not exist yet.
    #[must_use]
    pub fn create(self, key: Key, value: Vec<u8>) -> Self {
        self.write(key, Some(value), Expect::Absent)
    }

    /// Adds a row that must be as it was read.
    #[must_use]
    pub fn replace(self, key: Key, version: Version, value: Vec<u8>) -> Self {
        self.write(key, Some(value), Expect::At(version))
    }

    /// Adds a blind deletion.
    #[must_use]
    pub fn delete(self, key: Key) -> Self {
        self.write(key, None, Expect::Anything)
    }

    /// Adds a deletion of a row that must be as it was read.
    #[must_use]
    pub fn delete_at(self, key: Key, version: Version) -> Self {
        self.write(key, None, Expect::At(version))
    }

    fn write(mut self, key: Key, value: Option<Vec<u8>>, expect: Expect) -> Self {
        self.writes.push(Write { key, value, expect });
        self
    }

    /// How many rows it writes.
    pub fn rows(&self) -> usize {
        self.writes.len() + usize::from(self.fence.is_some())
    }

    /// How many bytes of keys and values it writes.
    pub fn bytes(&self) -> usize {
        let head = self.fence.as_ref().map_or(0, |fence| fence.key.as_bytes().len() + fence.value.len());
        let rows = self.writes.iter().map(|w| w.key.as_bytes().len() + w.value.as_ref().map_or(0, Vec::len));
        head + rows.sum::<usize>()
    }

    /// Whether the batch is one that a store with these limits can try. Backends call it first.
    pub fn check(&self, limits: &Limits) -> Result<(), BatchError> {
        within("a commit's number of rows", self.rows(), limits.commit_rows_max)?;
        within("a commit's bytes", self.bytes(), limits.commit_bytes_max)?;
        if self.rows() == 0 {
            return Err(BatchError::Empty);
        }
        if let Some(fence) = &self.fence {
            check_row(&fence.key, Some(&fence.value), limits)?;
        }
        for write in &self.writes {
            check_row(&write.key, write.value.as_ref(), limits)?;
            if write.expect == Expect::Anything && self.fence.is_none() {
                return Err(BatchError::BlindWithoutFence { key: write.key.clone() });
            }
        }
        self.check_repeats()
    }

    /// Rows in order of their keys, as most batches have them, cannot repeat.
    fn check_repeats(&self) -> Result<(), BatchError> {
        let fence = self.fence.as_ref().map(|fence| &fence.key);
        let ascending = self.writes.is_sorted_by(|before, after| before.key < after.key);
        if ascending && self.writes.iter().all(|write| Some(&write.key) != fence) {
            return Ok(());
        }
        let mut seen = HashSet::with_capacity(self.rows());
        let keys = fence.into_iter().chain(self.writes.iter().map(|write| &write.key));
        match keys.into_iter().find(|key| !seen.insert(*key)) {
            Some(key) => Err(BatchError::RepeatedKey { key: key.clone() }),
            None => Ok(()),
        }
    }
}

fn check_row(key: &Key, value: Option<&Vec<u8>>, limits: &Limits) -> Result<(), BatchError> {
    within("a key's bytes", key.as_bytes().len(), limits.key_bytes_max)?;
    within("a value's bytes", value.map_or(0, Vec::len), limits.value_bytes_max)
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<(), BatchError> {
    if size > limit { Err(BatchError::TooLarge { what, size, limit }) } else { Ok(()) }
}
