//! Careful recovery in the root: what must wait for a mark in the head, which instance is named next, and what becomes
//! of one that was named when the process ended.
//!
//! While the head names an instance, nothing else of the shard is evaluated that was stored: no turn of another run, no
//! check of another input. The state is in [`careful`](crate::shard::ownership::careful). See docs/adr/0023.

use abide_workflow::InstanceId;

use crate::shard::Shard;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::park;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::work_item::{MessageSource, WorkItem};

impl Shard {
    /// Returns whether an item must wait until the head names its instance: it would load a run, or check the input of
    /// a new one. The turns of a run in memory wait by themselves.
    pub(in crate::shard) fn waits_for_mark(
        &mut self,
        id: &InstanceId,
        state: &SlotState,
        item: &WorkItem,
    ) -> bool {
        let is_live = matches!(state, SlotState::Run(run) if !run.has_ended());
        !is_live
            && item.does_stored_work()
            && self.ctx.careful.must_wait(
                id,
                self.ctx.commits.durable_batch,
                matches!(item, WorkItem::Request(..)),
            )
    }

    /// Returns whether a run may take a turn now. Its first one waits for its mark; every later one, while the head
    /// names another instance, which would be blamed if the process ended.
    pub(in crate::shard) fn may_take_turn(&mut self, id: &InstanceId, run: &mut ResidentRun) -> bool {
        let durable = self.ctx.commits.durable_batch;
        if self.ctx.careful.is_named(id, durable) {
            return true;
        }
        if !run.is_proven && self.ctx.careful.is_on() {
            let for_client = matches!(run.sources.back(), Some(MessageSource::Client(..)));
            if self.ctx.careful.must_wait(id, durable, for_client) {
                return false;
            }
        }
        if self.ctx.careful.names_another(id) {
            // Also one that is to end: in front, it would keep the named run from its turn.
            self.queue_ready_run_last(id, run);
            return false;
        }
        true
    }

    /// Names the next instance that waits. Its work begins once that is durable.
    pub(in crate::shard) fn drive_careful_recovery(&mut self) {
        if self.ctx.careful.unclean_claims() == 0 {
            return;
        }
        self.ctx.careful.drive(self.ctx.now.mono);
        while let Some(id) = self.ctx.careful.next_waiting(&self.ctx.config.turnstile) {
            if self.instances.slots.get_mut(&id).is_some_and(InstanceSlot::has_work) {
                self.ctx.careful.name(id.clone(), self.ctx.commits.batch_number());
                self.ctx.commits.on_commit(OnCommit::ProcessInstance(id));
                return;
            }
        }
    }

    /// The instance has been processed: if its mark allowed that and it waits for nothing more, the next commit, which
    /// has its rows, no longer names it.
    pub(in crate::shard) fn finish_marked_work(&mut self, id: &InstanceId) {
        if !self.ctx.careful.is_active() || !self.ctx.careful.is_named(id, self.ctx.commits.durable_batch) {
            return;
        }
        let is_done = self.instances.slots.get(id).is_none_or(|slot| match &slot.state {
            SlotState::LookingUp(_) | SlotState::SideLookup(_) => false,
            SlotState::Unknown => slot.queue.is_empty(),
            SlotState::Run(run) => run.is_proven || !run.needs_turn(),
            // A lookup that failed is repeated later, under another mark.
            SlotState::LookupRetry(..) | SlotState::Row(_) | SlotState::Unreadable { .. } => true,
        });
        if is_done {
            self.clear_mark();
        }
    }

    fn clear_mark(&mut self) {
        self.ctx.careful.finish(self.ctx.commits.batch_number());
        self.ctx.commits.mark_urgent();
    }

    /// Recovery is complete. The instance that the last owner had named is parked before anything else is done.
    pub(in crate::shard) fn park_inherited(&mut self) {
        if let Some(id) = self.ctx.careful.inherited().cloned() {
            self.instances.push_first(&id, WorkItem::ParkMarked);
            self.process_instance(&id);
        }
    }

    /// Parks the run of an instance that was named when the process ended, or refuses the message that was to start it.
    pub(in crate::shard) fn park_marked(&mut self, id: &InstanceId, slot: &mut InstanceSlot) {
        self.work_on(id, slot, |work, _, slot| park::park_marked(work, id, slot));
        self.clear_mark();
    }
}
