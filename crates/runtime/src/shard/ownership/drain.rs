//! Drains a shard: it accepts nothing new, finishes the work in flight, and releases itself with its last commit, so
//! that it is taken over at once.
//!
//! The attempts in flight are not withdrawn here. The driver does that (the shard task of the node, or the simulator),
//! and the shard records each result.

use crate::event::StopReason;
use crate::shard::context::Context;
use crate::shard::ownership::OwnershipPhase;

impl Context {
    /// From now on the shard accepts nothing new. An error if it is not owned: it has nothing to drain and stops at
    /// once.
    pub(in crate::shard) fn begin_drain(&mut self) -> Result<(), StopReason> {
        match &self.phase {
            OwnershipPhase::Recovering(owned) | OwnershipPhase::Working(owned) => {
                self.phase = OwnershipPhase::Draining(owned.clone());
                // There must be at least one commit more: the last one releases the shard.
                self.commits.mark_urgent();
            }
            OwnershipPhase::Draining(_) => {}
            _ => return Err(StopReason::Drained),
        }
        Ok(())
    }
}
