//! One atomic commit: what it writes, what it expects, and the five things that can come of it.
//!
//! The outcomes are distinct types of knowledge, not degrees of failure: the caller of `Unknown` must ask, the caller of
//! `Unavailable` may repeat, the caller of `Fenced` must stop.

use crate::rows::{Key, Version};

/// Names one commit, made by the caller and stored in the partition's head, so that an unknown outcome can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommitId(pub u128);

/// What must hold of a row for the commit to apply. Only rows written in the same commit may be named: Azure Tables checks
/// no others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expectation {
    /// The row does not exist.
    Absent,
    /// The row is at this version.
    At(Version),
    /// No check of its own: the partition head in the same batch, written with its expected version, fences this row.
    FencedByHead,
}

/// One row's change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Which row.
    pub key: Key,
    /// Its new bytes, or `None` to delete it.
    pub value: Option<Vec<u8>>,
    /// What must hold before.
    pub expect: Expectation,
}

/// All that becomes durable together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Stored in the head, asked for after an unknown outcome.
    pub id: CommitId,
    /// Each key at most once.
    pub writes: Vec<Write>,
}

/// What came of a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitOutcome {
    /// Durable. The new versions, in the order of the writes; `None` for deletions.
    Committed(Vec<Option<Version>>),
    /// Not applied: these rows were not as expected.
    Conflict(Vec<Key>),
    /// Not applied: the partition's head belongs to another owner now. Stop; do not reload and retry.
    Fenced,
    /// Surely not applied; may be tried again.
    Unavailable {
        /// What the backend said.
        reason: String,
    },
    /// May or may not be applied. Read the head and compare its commit id before doing anything else.
    Unknown {
        /// What the backend said.
        reason: String,
    },
}
