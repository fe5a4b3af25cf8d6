//! Drains a shard: it accepts nothing new, finishes the work in flight, and releases the shard with its last commit.
//!
//! A released shard is taken over at once, without waiting for the lease to expire. So the release must be the very
//! last commit: rows of a later one would be lost. Draining does not withdraw attempts in flight; the driver does (the
//! shard task of the node, or the simulator), and the shard records each result.

use super::Shard;
use super::ownership::OwnershipPhase;
use crate::event::StopReason;

impl Shard {
    /// From now on the shard accepts nothing new.
    pub(super) fn begin_drain(&mut self) {
        match &self.phase {
            OwnershipPhase::Recovering(owned) | OwnershipPhase::Working(owned) => {
                self.phase = OwnershipPhase::Draining(owned.clone());
                // There must be at least one commit more: the last one releases the shard.
                self.commits.mark_urgent();
            }
            OwnershipPhase::Draining(_) => {}
            _ => self.stop(StopReason::Drained),
        }
    }

    /// Returns whether the commit that is about to be sent is the last one, and so releases the shard.
    pub(super) fn is_final_drain_commit(&self) -> bool {
        // No other rows may be pending: the next owner takes a released shard over at once, and they would be lost.
        self.commits.has_nothing_pending()
            && self.ready_runs.is_empty()
            && !self.has_ready_entities()
            && self.attempts_in_flight() == 0
            && self.queued_items == 0
    }

    /// Stops a draining shard once nothing is queued or in flight. Usually its last commit has released it; if the last
    /// requests wrote nothing, it stops unreleased, and the next owner waits for the lease to expire.
    pub(super) fn stop_if_drained(&mut self) {
        if !matches!(self.phase, OwnershipPhase::Draining(_))
            || !self.commits.is_idle()
            || !self.ready_runs.is_empty()
        {
            return;
        }
        if self.attempts_in_flight() == 0 && self.queued_items == 0 && self.local_messages.is_empty() {
            self.stop(StopReason::Drained);
        }
    }
}
