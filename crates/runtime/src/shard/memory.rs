//! Which runs stay in memory while they rest, and for how long.

use abide_workflow::InstanceId;

use super::slot::{Known, Run};
use super::{Shard, later};
use crate::lease::Monotonic;

/// A run that rests in memory.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) since: Monotonic,
    id: InstanceId,
    bytes: usize,
}

/// Resting runs looked at in one go.
const LOOK_AT_ONCE: usize = 64;

impl Shard {
    /// Remembers that a run rests.
    pub(super) fn note_resting(&mut self, id: &InstanceId, run: &mut Run) {
        if run.wants_turn() {
            return;
        }
        if run.resting.replace(self.now.mono).is_none() {
            let bytes = run.bytes();
            self.resting_bytes += bytes;
            self.resting.push_back(Resting { since: self.now.mono, id: id.clone(), bytes });
        }
    }

    /// Drops runs that have rested long enough, and the oldest ones when there is no room for so many.
    pub(super) fn drop_resting(&mut self) {
        for _ in 0..self.resting.len().min(LOOK_AT_ONCE) {
            let Some(oldest) = self.resting.front() else { return };
            let long = later(oldest.since, self.config.resting_max) <= self.now.mono;
            if !long && self.resting_bytes <= self.config.resting_bytes_max {
                return;
            }
            let Some(mut oldest) = self.resting.pop_front() else { return };
            self.resting_bytes = self.resting_bytes.saturating_sub(oldest.bytes);
            let Some(slot) = self.slots.get_mut(&oldest.id) else { continue };
            let idle = slot.items.is_empty() && matches!(slot.known, Known::Run(_));
            let Some(run) = slot.run_mut() else { continue };
            if idle && run.resting == Some(oldest.since) && run.rests(self.commits.durable) && !run.queued {
                self.slots.remove(&oldest.id);
                continue;
            }
            // It has moved since, or is not durable yet: it begins to rest anew.
            let moved = run.resting.filter(|since| *since > oldest.since);
            oldest.since = moved.unwrap_or(self.now.mono);
            run.resting = Some(oldest.since);
            oldest.bytes = run.bytes();
            self.resting_bytes += oldest.bytes;
            self.resting.push_back(oldest);
        }
    }

    /// Forgets what need not stay in memory now that it is durable: a run that has ended, a row that was written.
    pub(super) fn forget(&mut self, id: &InstanceId) {
        let Some(slot) = self.slots.get(id) else { return };
        let done = match &slot.known {
            Known::Run(run) => run.has_ended() && run.rests(self.commits.durable) && !run.queued,
            Known::Row(_) | Known::Unreadable { .. } => slot.written <= self.commits.durable,
            _ => false,
        };
        if done && slot.items.is_empty() && slot.set_aside.is_empty() {
            self.slots.remove(id);
        }
    }
}
