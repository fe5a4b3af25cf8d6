//! Processes the queue of an instance: each work item in the order it arrived, as soon as enough is loaded; then the
//! [`turns`](super::turns) of the run.
//!
//! ```text
//!  enqueue ──> slot.queue ──> known enough? ── no ──> Effect::LookUpInstance, continued by `load`
//!                                  │ yes
//!                                  ▼
//!                             process_item ──> run_turns ──> retain the slot, or drop it
//! ```
//!
//! It does not know what a request does. An item that replaces the run waits until the messages before it
//! are consumed.

use std::sync::Arc;

use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Plan};

use crate::event::{Effect, InstanceLookup, LookupDepth, PlanError};
use crate::shard::Shard;
use crate::shard::commit::commit_queue::{BatchNumber, OnCommit};
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::{load, park, session_events, start};
use crate::shard::requests::InstanceReads;
use crate::shard::root::apply_item::apply_item;
use crate::shard::root::turns::Unrunnable;
use crate::shard::schedule::DueKey;
use crate::shard::unit_of_work::{FilledUnit, UnitOfWork};
use crate::shard::work_item::WorkItem;

impl Shard {
    /// Queues a work item and processes it as soon as enough of the instance is loaded, which may be at once.
    pub(in crate::shard) fn enqueue(&mut self, id: &InstanceId, item: WorkItem) {
        self.instances.push(id, item);
        self.process_instance(id);
    }

    /// Queues the messages that units of work have posted to instances of this shard.
    pub(in crate::shard) fn process_posted(&mut self) {
        while let Some((id, item)) = self.instances.posted.pop_front() {
            self.enqueue(&id, item);
        }
    }

    /// Fills a unit of work for an instance, merges it, and counts what that did to the queue of the instance.
    pub(super) fn work_on(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        fill: impl FnOnce(&mut UnitOfWork<'_>, &InstanceReads<'_>, &mut InstanceSlot),
    ) {
        self.work_on_from(FilledUnit::default(), id, slot, fill);
    }

    /// As [`Self::work_on`], from a unit that has been begun.
    fn work_on_from(
        &mut self,
        unit: FilledUnit,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        fill: impl FnOnce(&mut UnitOfWork<'_>, &InstanceReads<'_>, &mut InstanceSlot),
    ) {
        let (queued, retry_at) = (slot.queue.len(), slot.lookup_retry_at());
        let mut work = UnitOfWork::resume(&mut self.ctx, unit);
        let reads = InstanceReads { index: &self.index, replies: &self.replies, attempts: &self.attempts };
        fill(&mut work, &reads, slot);
        let unit = work.finish();
        let written = unit.has_newest_rows;
        let batch = self.merge(unit);
        if written {
            slot.set_written_batch(batch);
        }
        self.instances.count_queued(queued, slot.queue.len());
        if let Some(at) = slot.lookup_retry_at().filter(|at| retry_at != Some(*at)) {
            self.instances.lookup_retries.push_back((at, id.clone()));
        }
    }

    /// The driver has looked up an instance, or a stored reply for it: goes on with the queue of the instance.
    pub(in crate::shard) fn on_instance_looked_up(&mut self, id: &InstanceId, found: InstanceLookup) {
        let Some(mut slot) = self.instances.slots.remove(id) else { return };
        self.work_on(id, &mut slot, |work, _, slot| load::apply_lookup(work, id, slot, found));
        self.instances.slots.insert(id.clone(), slot);
        self.process_instance(id);
    }

    /// The driver has looked up the plan that a session event or a child in the slot waits for.
    pub(in crate::shard) fn on_plan_found(&mut self, id: &InstanceId, result: Result<Arc<Plan>, PlanError>) {
        let Some(mut slot) = self.instances.slots.remove(id) else { return };
        if slot.pending_event.is_some() && slot.end_side_lookup() {
            self.work_on(id, &mut slot, |work, reads, slot| {
                session_events::on_session_plan_found(work, reads.index, id, slot, result);
            });
        } else if slot.pending_child.is_some() && slot.end_side_lookup() {
            self.work_on(id, &mut slot, |work, reads, slot| {
                start::on_child_plan_found(work, reads.index, id, slot, result);
            });
        }
        self.instances.slots.insert(id.clone(), slot);
        self.process_instance(id);
    }

    /// Repeats the lookups that failed.
    pub(in crate::shard) fn retry_lookups(&mut self) {
        while self.instances.lookup_retries.front().is_some_and(|(at, _)| *at <= self.ctx.now.mono) {
            let Some((_, id)) = self.instances.lookup_retries.pop_front() else { return };
            if let Some(slot) = self.instances.slots.get_mut(&id)
                && let Some((_, key)) = slot.key_lookup_retry.take()
            {
                let depth = LookupDepth::Row { key_digest: Some(key) };
                self.ctx.effects.push(Effect::LookUpInstance(id.clone(), depth));
                continue;
            }
            self.process_instance(&id);
        }
    }

    /// Processes the queue of an instance and runs its turns, as far as possible now. Its slot is out of the map
    /// meanwhile, so a unit that is merged in here must post items for the same instance, not enqueue them.
    pub(in crate::shard) fn process_instance(&mut self, id: &InstanceId) {
        let Some(mut slot) = self.instances.slots.remove(id) else { return self.finish_marked_work(id) };
        loop {
            self.process_queue(id, &mut slot);
            let SlotState::Run(run) = &mut slot.state else { break };
            let outcome = self.run_turns(id, run);
            // The interpreter state after a dropped turn may show an end that never happens.
            if outcome.is_ok() {
                self.reply_to_end_waiters(run);
            }
            let mut needs_turn = run.needs_turn();
            if let Err(Unrunnable { reason, unit }) = outcome
                && let SlotState::Run(run) = std::mem::replace(&mut slot.state, SlotState::Unknown)
            {
                self.work_on_from(unit, id, &mut slot, |work, _, slot| {
                    park::park(work, id, slot, *run, reason)
                });
                (needs_turn, slot.blocked) = (false, true);
            }
            // Go on only with items that had to wait for these turns.
            if needs_turn || slot.queue.is_empty() || !slot.blocked {
                break;
            }
        }
        self.retain_slot(id, slot);
        self.finish_marked_work(id);
    }

    /// Processes items from the front of the queue until one must wait: for a lookup, a durable row, or the turns of
    /// the run.
    fn process_queue(&mut self, id: &InstanceId, slot: &mut InstanceSlot) {
        slot.blocked = false;
        // Items that recovery queued count only from now on.
        self.instances.queued += std::mem::take(&mut slot.recovered_items);
        while let Some(item) = slot.queue.front() {
            if self.ctx.careful.is_on() && self.waits_for_mark(id, &slot.state, item) {
                return;
            }
            let depth = item.lookup_depth();
            match &mut slot.state {
                SlotState::LookingUp(_) | SlotState::SideLookup(_) => return,
                SlotState::LookupRetry(_, at) if *at > self.ctx.now.mono => return,
                // The newest row is not durable yet: a lookup would return the old one.
                SlotState::Unknown if slot.written_batch > self.ctx.commits.durable_batch => {
                    let now = self
                        .ctx
                        .commits
                        .defer_until_durable(slot.written_batch, OnCommit::ProcessInstance(id.clone()));
                    debug_assert!(now.is_none(), "it is not durable yet");
                    return;
                }
                SlotState::LookupRetry(..) if slot.written_batch > self.ctx.commits.durable_batch => {
                    slot.state = SlotState::Unknown;
                    continue;
                }
                SlotState::LookupRetry(depth, _) => {
                    let depth = depth.clone();
                    self.ctx.effects.push(Effect::LookUpInstance(id.clone(), depth.clone()));
                    slot.state = SlotState::LookingUp(depth);
                    return;
                }
                SlotState::Unknown => {
                    let depth = if slot.resuming && depth == LookupDepth::Run {
                        LookupDepth::ParkedRun
                    } else {
                        depth
                    };
                    self.ctx.effects.push(Effect::LookUpInstance(id.clone(), depth.clone()));
                    slot.state = SlotState::LookingUp(depth);
                    return;
                }
                // The run is needed and only the row is known: look it up again, unless there is no run behind the row.
                SlotState::Row(Some(row))
                    if depth == LookupDepth::Run && !has_no_run(row.status, slot.written_batch) =>
                {
                    slot.state = SlotState::Unknown;
                    continue;
                }
                // An item that replaces the run waits for the messages before it. So does one that may repeat one of
                // them; one that ends the run only if it does.
                SlotState::Run(run)
                    if item.waits_for_turns()
                        && run.needs_turn()
                        && (!item.terminates() || run.has_queued_key(item.key_digest())) =>
                {
                    slot.blocked = true;
                    return;
                }
                _ => {}
            }
            if let Some(key) = slot.key_to_look_up()
                && self.replies.get(&key, self.ctx.commits.durable_batch).is_none()
            {
                self.ctx
                    .effects
                    .push(Effect::LookUpInstance(id.clone(), LookupDepth::Row { key_digest: Some(key) }));
                return slot.begin_side_lookup();
            }
            let Some(item) = slot.queue.pop_front() else { return };
            self.instances.queued = self.instances.queued.saturating_sub(1);
            self.process_item(id, slot, item);
        }
    }

    /// Keeps the slot in memory if it is needed, or may be soon.
    fn retain_slot(&mut self, id: &InstanceId, mut slot: InstanceSlot) {
        let keep = match &mut slot.state {
            SlotState::Run(run) => {
                let over = run.has_ended() && run.is_evictable(self.ctx.commits.durable_batch);
                if !over {
                    self.instances.mark_idle(self.ctx.now.mono, id, run);
                }
                !over
            }
            SlotState::SideLookup(_) | SlotState::LookingUp(_) => true,
            _ => slot.written_batch > self.ctx.commits.durable_batch || !slot.parked_items.is_empty(),
        };
        if keep || !slot.queue.is_empty() {
            self.instances.slots.insert(id.clone(), slot);
        }
    }

    /// Processes one item, with enough of the instance loaded.
    fn process_item(&mut self, id: &InstanceId, slot: &mut InstanceSlot, item: WorkItem) {
        match item {
            WorkItem::CheckDamage => return self.check_run_for_damage(id, slot),
            WorkItem::ParkMarked => return self.park_marked(id, slot),
            _ => {}
        }
        self.work_on(id, slot, |work, reads, slot| apply_item(work, reads, id, slot, item));
    }

    /// Damage was found that may concern a run. A run that cannot be read has been parked by now; the timers that a
    /// scan cannot find are kept in memory.
    fn check_run_for_damage(&mut self, id: &InstanceId, slot: &InstanceSlot) {
        self.components.damage.on_run_checked();
        let SlotState::Run(run) = &slot.state else { return };
        for timer in run.bookkeeping.timer_rows(run.row.run_id) {
            if self.components.damage.hides_timer(&timer.key()) {
                self.due.schedule.add(DueKey::of_timer(&timer), id.clone());
            }
        }
    }
}

/// Returns whether there is no run to load behind a row: it is purged, or this owner terminated it without reading it.
fn has_no_run(status: RunStatus, written_batch: BatchNumber) -> bool {
    status == RunStatus::Purged || written_batch != BatchNumber::NONE
}
