//! Tells whether the public index has caught up with a given moment, so that runs can be counted in it.
//!
//! It only compares revisions; it does not read the public table.

use std::collections::HashMap;

use super::{MarkerId, PublicIndex};
use crate::shard::Shard;

/// The states that were not in the public index at some moment: the latest revision of each run.
#[derive(Debug)]
pub(crate) struct UnindexedRuns(HashMap<MarkerId, u64>);

impl Shard {
    /// The states that are not in the public index now; none if the shard is not working and cannot know.
    pub(crate) fn unindexed_runs(&self) -> Option<UnindexedRuns> {
        self.is_working().then(|| UnindexedRuns::of(&self.public_index))
    }

    /// Returns whether all of them are in the public index by now, each in that revision or a later one.
    pub(crate) fn has_indexed(&self, unindexed: &mut UnindexedRuns) -> bool {
        unindexed.remove_indexed(&self.public_index);
        unindexed.0.is_empty()
    }
}

impl UnindexedRuns {
    fn of(index: &PublicIndex) -> Self {
        Self(index.latest.iter().map(|(marker, latest)| (*marker, latest.revision)).collect())
    }

    fn remove_indexed(&mut self, index: &PublicIndex) {
        // A run without a marker is up to date.
        self.0.retain(|marker, revision| {
            index.latest.get(marker).is_some_and(|latest| latest.written_revision < Some(*revision))
        });
    }
}
