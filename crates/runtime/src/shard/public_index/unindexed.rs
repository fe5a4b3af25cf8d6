//! Tells whether the public index has caught up with a given moment, for clients that want a list with everything that
//! was durable then.
//!
//! It only compares revisions; it does not read the public table.

use std::collections::HashMap;

use super::PublicIndex;
use crate::shard::public_index::index_change::MarkerId;

/// The states that were not in the public index at some moment: the latest revision of each run.
#[derive(Debug)]
pub(crate) struct UnindexedRuns(HashMap<MarkerId, u64>);

impl UnindexedRuns {
    /// The states that are not in the public index now.
    pub(in crate::shard) fn of(index: &PublicIndex) -> Self {
        Self(index.latest.iter().map(|(marker, latest)| (*marker, latest.revision)).collect())
    }

    /// Forgets the states that are in the public index by now, each in that revision or a later one. True if none is
    /// left.
    pub(in crate::shard) fn remove_indexed(&mut self, index: &PublicIndex) -> bool {
        // A run without a marker is up to date.
        self.0.retain(|marker, revision| {
            index.latest.get(marker).is_some_and(|latest| latest.written_revision < Some(*revision))
        });
        self.0.is_empty()
    }
}
