//! Evicts runs from memory: idle ones after a time or when they take too much memory, ended ones at once.
//!
//! A run is evicted only when the store has all of it and no work is queued for it. Loading it again is
//! [`load`](crate::shard::instances::load)'s task.

use abide_workflow::InstanceId;

use crate::lease::Monotonic;
use crate::shard::backoff::later;
use crate::shard::context::Context;
use crate::shard::instances::instance_slot::SlotState;
use crate::shard::instances::{IdleRun, Instances};
use crate::shard::run::run_state::ResidentRun;

/// Idle runs considered per call.
const EVICTIONS_PER_ROUND: usize = 64;

impl Instances {
    /// Notes that a run is idle, unless it needs a turn. Called whenever its slot has been processed, so that its idle
    /// time starts again.
    pub(in crate::shard) fn mark_idle(&mut self, now: Monotonic, id: &InstanceId, run: &mut ResidentRun) {
        if run.needs_turn() {
            return;
        }
        if run.idle_since.replace(now).is_none() {
            let bytes = run.memory_bytes();
            self.idle_bytes += bytes;
            self.idle_runs.push_back(IdleRun { since: now, id: id.clone(), bytes });
        }
    }

    /// Evicts runs that have been idle for too long, and the longest idle ones when all of them take too much memory.
    pub(in crate::shard) fn evict_idle_runs(&mut self, ctx: &Context) {
        for _ in 0..self.idle_runs.len().min(EVICTIONS_PER_ROUND) {
            let Some(oldest) = self.idle_runs.front() else { return };
            let expired = later(oldest.since, ctx.config.idle_max) <= ctx.now.mono;
            if !expired && self.idle_bytes <= ctx.config.idle_bytes_max {
                return;
            }
            let Some(mut oldest) = self.idle_runs.pop_front() else { return };
            self.idle_bytes = self.idle_bytes.saturating_sub(oldest.bytes);
            let Some(slot) = self.slots.get_mut(&oldest.id) else { continue };
            let idle = slot.queue.is_empty() && matches!(slot.state, SlotState::Run(_));
            let Some(run) = slot.run_mut() else { continue };
            if idle
                && run.idle_since == Some(oldest.since)
                && run.is_evictable(ctx.commits.durable_batch)
                && !run.in_ready_queue
            {
                self.slots.remove(&oldest.id);
                continue;
            }
            // It was used since, or is not durable yet: its idle time starts again.
            let moved = run.idle_since.filter(|since| *since > oldest.since);
            oldest.since = moved.unwrap_or(ctx.now.mono);
            run.idle_since = Some(oldest.since);
            oldest.bytes = run.memory_bytes();
            self.idle_bytes += oldest.bytes;
            self.idle_runs.push_back(oldest);
        }
    }

    /// Drops a slot that is not needed any more now that it is durable: an ended run, or a written row.
    pub(in crate::shard) fn evict_if_done(&mut self, ctx: &Context, id: &InstanceId) {
        let Some(slot) = self.slots.get(id) else { return };
        let done = match &slot.state {
            SlotState::Run(run) => {
                run.has_ended() && run.is_evictable(ctx.commits.durable_batch) && !run.in_ready_queue
            }
            SlotState::Unknown | SlotState::Row(_) | SlotState::Unreadable { .. } => {
                slot.written_batch <= ctx.commits.durable_batch
            }
            _ => false,
        };
        if done && slot.queue.is_empty() && slot.parked_items.is_empty() {
            self.slots.remove(id);
        }
    }
}
