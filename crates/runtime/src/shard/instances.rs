//! The instances in the memory of a shard, and the queues of those that need something.
//!
//! Only data, with the counts that go with it: `root::instance_queue` processes the
//! items, [`eviction`] decides what leaves memory.

pub(super) mod eviction;
pub(super) mod index_runs;
pub(super) mod input_check;
pub(super) mod instance_slot;
pub(super) mod load;
pub(super) mod park;
pub(super) mod session_events;
pub(super) mod start;
pub(super) mod tree_orders;

use std::collections::{HashMap, VecDeque};

use abide_workflow::InstanceId;

use crate::lease::Monotonic;
use crate::shard::instances::instance_slot::InstanceSlot;
use crate::shard::work_item::WorkItem;

/// The instances in memory.
#[derive(Debug, Default)]
pub(super) struct Instances {
    pub(super) slots: HashMap<InstanceId, InstanceSlot>,
    /// Work items queued in all slots, without those that recovery found and has not scheduled yet.
    pub(super) queued: usize,
    /// Run messages from units of work to instances of this shard.
    pub(super) posted: VecDeque<(InstanceId, WorkItem)>,
    /// Instances whose lookup failed, and when to look them up again.
    pub(super) lookup_retries: VecDeque<(Monotonic, InstanceId)>,
    /// Runs that need a turn, but too many batches wait or other runs come first.
    pub(super) ready_runs: VecDeque<InstanceId>,
    /// Runs that are idle in memory, longest idle first.
    pub(super) idle_runs: VecDeque<IdleRun>,
    pub(super) idle_bytes: usize,
}

/// An idle run in memory.
#[derive(Debug)]
pub(super) struct IdleRun {
    pub(super) since: Monotonic,
    pub(super) id: InstanceId,
    pub(super) bytes: usize,
}

impl Instances {
    /// Queues an item in the slot of its instance. The root then processes the instance.
    pub(super) fn push(&mut self, id: &InstanceId, item: WorkItem) {
        match self.slots.get_mut(id) {
            Some(slot) => slot.push(item),
            None => {
                let mut slot = InstanceSlot::new();
                slot.push(item);
                self.slots.insert(id.clone(), slot);
            }
        }
        self.queued += 1;
    }

    /// Queues an item ahead of those that recovery found for the instance.
    pub(super) fn push_first(&mut self, id: &InstanceId, item: WorkItem) {
        let slot = self.slots.entry(id.clone()).or_insert_with(InstanceSlot::new);
        slot.queue.push_front(item);
        self.queued += 1;
    }

    /// Queues a recovered item in its slot, which the schedule processes later. The item counts as queued only from
    /// then on, so that many of them do not make the shard refuse clients.
    pub(super) fn push_recovered(&mut self, id: &InstanceId, item: WorkItem) {
        let slot = self.slots.entry(id.clone()).or_insert_with(InstanceSlot::new);
        slot.queue.push_back(item);
        slot.recovered_items += 1;
    }

    /// Counts what a unit of work did to the queue of one slot, by its length before and after.
    pub(super) fn count_queued(&mut self, before: usize, after: usize) {
        self.queued = (self.queued + after).saturating_sub(before);
    }
}
