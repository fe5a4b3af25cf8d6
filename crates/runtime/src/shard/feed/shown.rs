//! Whether the public table has what was durable at some moment: what is asked before runs are counted in it.

use std::collections::HashMap;

use super::Feed;
use crate::shard::Shard;

/// States that were on their way to the public table at some moment: of each run, the newest.
#[derive(Debug)]
pub(crate) struct Unshown(HashMap<u64, u64>);

impl Shard {
    /// What is on its way now; none if the shard is not at work and cannot know.
    pub(crate) fn unshown(&self) -> Option<Unshown> {
        self.is_working().then(|| Unshown::of(&self.feed))
    }

    /// Whether all of it has been shown by now, each run in that state or a later one.
    pub(crate) fn has_shown(&self, unshown: &mut Unshown) -> bool {
        unshown.look_at(&self.feed);
        unshown.0.is_empty()
    }
}

impl Unshown {
    fn of(feed: &Feed) -> Self {
        Self(feed.newest.iter().map(|(run, newest)| (*run, newest.revision)).collect())
    }

    fn look_at(&mut self, feed: &Feed) {
        // A run without a marker is shown as it is.
        self.0.retain(|run, revision| feed.newest.get(run).is_some_and(|newest| newest.shown < *revision));
    }
}
