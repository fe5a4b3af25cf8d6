//! The fence of a commit: the partition's head, expected and renewed. A writer that no longer owns the partition
//! expects an old version, and its whole commit is refused. This file does not know what a head contains: see
//! [`crate::tables::heads`]. Each backend checks it when it commits; the outcome is `CommitOutcome::Fenced`.

use super::key::{Key, RowVersion};

/// The write of the partition's head: one row whose version every commit checks and renews, in place of a check of
/// every other row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The key of the head row.
    pub key: Key,
    /// The version that the writer expects the head to have, or `None` to create the first head.
    pub expected_version: Option<RowVersion>,
    /// The new bytes of the head.
    pub value: Vec<u8>,
}
