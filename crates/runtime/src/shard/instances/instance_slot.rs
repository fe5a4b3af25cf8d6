//! An instance in the memory of a shard: the state known of it, and the work items queued for it.
//!
//! It runs nothing: `root::instance_queue` processes the items,
//! [`load`](crate::shard::instances::load) fills in the state. The run itself is in
//! [`run_state`](crate::shard::run::run_state).

use std::collections::VecDeque;

use abide_ids::{KeyDigest, PageNumber, Sequence};
use abide_store::tables::idempotency::IdempotencyRow;
use abide_store::tables::instances::InstanceRow;
use abide_workflow::InstanceId;

use crate::entity::SessionEvent;
use crate::event::{Effect, LookupDepth};
use crate::lease::Monotonic;
use crate::request::{RequestError, RequestId, ShardReply};
use crate::shard::commit::commit_queue::{BatchNumber, OnCommit};
use crate::shard::context::Context;
use crate::shard::run::run_state::{FirstTurnAction, ResidentRun};
use crate::shard::work_item::{PendingChild, WorkItem};

/// An instance that has work, or had some recently.
#[derive(Debug)]
pub(in crate::shard) struct InstanceSlot {
    pub(in crate::shard) state: SlotState,
    /// Work items that wait until enough of the instance is loaded.
    pub(in crate::shard) queue: VecDeque<WorkItem>,
    /// How many of them recovery queued since the slot was last processed. They do not count as queued.
    pub(in crate::shard) recovered_items: usize,
    /// The idempotency key that was looked up, and the reply stored under it. Valid until the request with the key is
    /// handled.
    pub(in crate::shard) looked_up_key: Option<KeyDigest>,
    pub(in crate::shard) stored_reply: Option<IdempotencyRow>,
    /// Work items of a parked run, until it is resumed.
    pub(in crate::shard) parked_items: VecDeque<WorkItem>,
    /// The first work item waits for the turns of the run.
    pub(in crate::shard) blocked: bool,
    /// The idempotency key that is to be looked up again at this time.
    pub(in crate::shard) key_lookup_retry: Option<(Monotonic, KeyDigest)>,
    /// A parked run is being loaded again, to resume or terminate it.
    pub(in crate::shard) resuming: bool,
    /// The batch with the newest row of the instance, if there is no run in memory with its own number.
    pub(in crate::shard) written_batch: BatchNumber,
    /// A child run whose plan is being looked up.
    pub(in crate::shard) pending_child: Option<PendingChild>,
    /// A session event that is to start a run whose plan is being looked up, with the sequence of its inbox row.
    pub(in crate::shard) pending_event: Option<(Sequence, Box<SessionEvent>)>,
}

/// The state of an instance, as far as it is known.
#[derive(Debug)]
pub(in crate::shard) enum SlotState {
    Unknown,
    LookingUp(LookupDepth),
    /// The lookup failed and is repeated at this time.
    LookupRetry(LookupDepth, Monotonic),
    /// The row of its id, if there is one.
    Row(Option<InstanceRow>),
    /// The run is in memory.
    Run(Box<ResidentRun>),
    /// The boxed state holds, and something else is being looked up: a plan, or a stored reply.
    SideLookup(Box<SlotState>),
    /// The instance exists, but its run is parked, was terminated without being read, or cannot be read.
    Unreadable {
        row: Option<Box<InstanceRow>>,
        last_page: PageNumber,
        last_event: Option<u64>,
        reason: String,
    },
}

impl InstanceSlot {
    pub(in crate::shard) fn new() -> Self {
        Self {
            state: SlotState::Unknown,
            queue: VecDeque::new(),
            recovered_items: 0,
            looked_up_key: None,
            stored_reply: None,
            parked_items: VecDeque::new(),
            blocked: false,
            key_lookup_retry: None,
            resuming: false,
            written_batch: BatchNumber::NONE,
            pending_child: None,
            pending_event: None,
        }
    }

    /// Queues an item. A request to end the run comes before everything but earlier ones.
    pub(in crate::shard) fn push(&mut self, item: WorkItem) {
        if !item.terminates() {
            return self.queue.push_back(item);
        }
        let earlier = self.queue.iter().take_while(|item| item.terminates()).count();
        self.queue.insert(earlier, item);
    }

    /// Keeps the state while something else is looked up.
    pub(in crate::shard) fn begin_side_lookup(&mut self) {
        let state = std::mem::replace(&mut self.state, SlotState::Unknown);
        self.state = SlotState::SideLookup(Box::new(state));
    }

    /// Restores the state after the side lookup. False if there was none.
    pub(in crate::shard) fn end_side_lookup(&mut self) -> bool {
        match std::mem::replace(&mut self.state, SlotState::Unknown) {
            SlotState::SideLookup(state) => {
                self.state = *state;
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    /// Drops the state, to look it up again later. The lookup waits until the newest rows of a dropped run are durable:
    /// before that the store has the run as it was.
    pub(in crate::shard) fn look_up_later(&mut self, depth: LookupDepth, at: Monotonic) {
        if let Some(run) = self.run_mut() {
            self.written_batch = run.written_batch;
        }
        self.state = SlotState::LookupRetry(depth, at);
    }

    /// The idempotency key of the first request in the queue, if it has not been looked up yet. The run may be in
    /// memory; the stored reply is in the store.
    pub(in crate::shard) fn key_to_look_up(&self) -> Option<KeyDigest> {
        let Some(WorkItem::Request(_, request)) = self.queue.front() else { return None };
        let key = request.idempotency().map(|idempotency| idempotency.key_digest)?;
        (self.looked_up_key != Some(key)).then_some(key)
    }

    /// Sends a reply once the present state of the instance is durable: at once, with its last commit, or with the
    /// first turn of its run.
    pub(in crate::shard) fn reply_when_durable(
        &mut self,
        ctx: &mut Context,
        request_id: RequestId,
        reply: ShardReply,
    ) {
        let effect = Effect::Reply(request_id, reply);
        let written = match self.run_mut() {
            Some(run) if !run.first_turn_actions.is_empty() => {
                return run.first_turn_actions.push(FirstTurnAction::OnCommit(OnCommit::Effect(effect)));
            }
            Some(run) => run.written_batch,
            None => self.written_batch,
        };
        ctx.send_when_durable(written, effect);
    }

    /// Refuses because of a state that may be ahead of the store. The refusal waits until that state is durable, so
    /// that a crash cannot contradict it.
    pub(in crate::shard) fn refuse_when_durable(
        &mut self,
        ctx: &mut Context,
        request_id: RequestId,
        refusal: RequestError,
    ) {
        self.reply_when_durable(ctx, request_id, ShardReply::Refused(refusal));
    }

    /// Returns whether something is to be done: an item, or a turn of the run.
    pub(in crate::shard) fn has_work(&mut self) -> bool {
        !self.queue.is_empty() || self.run_mut().is_some_and(|run| run.needs_turn())
    }

    /// Queues the items of a parked run again, because it is resumed or has been terminated.
    pub(in crate::shard) fn requeue_parked_items(&mut self) {
        self.queue.append(&mut self.parked_items);
    }

    /// A unit with the newest rows of the instance was merged into this batch.
    pub(in crate::shard) fn set_written_batch(&mut self, batch: BatchNumber) {
        match &mut self.state {
            SlotState::Run(run) => run.written_batch = batch,
            _ => self.written_batch = batch,
        }
    }

    /// When a failed lookup is to be repeated.
    pub(in crate::shard) fn lookup_retry_at(&self) -> Option<Monotonic> {
        match &self.state {
            SlotState::LookupRetry(_, at) => Some(*at),
            _ => self.key_lookup_retry.map(|(at, _)| at),
        }
    }

    /// The run in memory, also during a side lookup.
    pub(in crate::shard) fn run_mut(&mut self) -> Option<&mut ResidentRun> {
        let mut state = &mut self.state;
        loop {
            match state {
                SlotState::Run(run) => return Some(run),
                SlotState::SideLookup(inner) => state = inner,
                _ => return None,
            }
        }
    }
}

/// The refusal of a request that needs a run, when the state is known and has none.
pub(in crate::shard) fn unavailable_refusal(id: &InstanceId, state: &SlotState) -> RequestError {
    match state {
        SlotState::Unreadable { row: Some(_), reason, .. } => {
            RequestError::Parked { instance_id: id.clone(), reason: reason.clone() }
        }
        SlotState::Unreadable { reason, .. } => {
            RequestError::Damaged { instance_id: id.clone(), reason: reason.clone() }
        }
        _ => RequestError::NotFound { instance_id: id.clone() },
    }
}
