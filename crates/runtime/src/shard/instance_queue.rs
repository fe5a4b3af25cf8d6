//! Processes the queue of an instance: each work item in the order it arrived, as soon as enough is loaded; then the
//! turns of the run.
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

use abide_ids::Sequence;
use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message};

use super::Shard;
use super::commit_queue::{BatchNumber, OnCommit};
use super::instance_slot::{
    InstanceSlot, MessageSource, PendingChild, QueuedMessage, SlotState, WorkItem, is_terminal,
};
use super::run_state::ResidentRun;
use crate::event::{Effect, LookupDepth};
use crate::request::{RequestError, ShardRequest};
use crate::run_message::RunMessage;

/// Rows and bytes that one work item adds at most, turns and large messages aside.
const ITEM_ROWS: usize = 8;
const ITEM_BYTES: usize = 64 * 1024;

impl Shard {
    /// Queues a work item and processes it as soon as enough of the instance is loaded, which may be at once.
    pub(super) fn enqueue(&mut self, id: &InstanceId, item: WorkItem) {
        match self.slots.get_mut(id) {
            Some(slot) => slot.queue.push_back(item),
            None => {
                let mut slot = InstanceSlot::new();
                slot.queue.push_back(item);
                self.slots.insert(id.clone(), slot);
            }
        }
        self.queued_items += 1;
        self.process_instance(id);
    }

    /// Queues the messages that turns have sent to instances of this shard.
    pub(super) fn process_local_messages(&mut self) {
        while let Some((id, item)) = self.local_messages.pop_front() {
            self.enqueue(&id, item);
        }
    }

    /// Processes the queue of an instance and runs its turns, as far as possible now.
    pub(super) fn process_instance(&mut self, id: &InstanceId) {
        let Some(mut slot) = self.slots.remove(id) else { return };
        loop {
            self.process_queue(id, &mut slot);
            let SlotState::Run(run) = &mut slot.state else { break };
            let outcome = self.run_turns(id, run);
            self.reply_to_end_waiters(run);
            let mut needs_turn = run.needs_turn();
            if let Err(corrupt) = outcome
                && let SlotState::Run(run) = std::mem::replace(&mut slot.state, SlotState::Unknown)
            {
                self.park(id, &mut slot, *run, corrupt.reason);
                (needs_turn, slot.blocked) = (false, true);
            }
            // Go on only with items that had to wait for these turns.
            if needs_turn || slot.queue.is_empty() || !slot.blocked {
                break;
            }
        }
        self.retain_slot(id, slot);
    }

    fn process_queue(&mut self, id: &InstanceId, slot: &mut InstanceSlot) {
        slot.blocked = false;
        self.queued_items += std::mem::take(&mut slot.recovered_items);
        while let Some(item) = slot.queue.front() {
            let depth = item.lookup_depth();
            match &mut slot.state {
                SlotState::LookingUp(_) | SlotState::SideLookup(_) => return,
                SlotState::LookupRetry(_, at) if *at > self.now.mono => return,
                SlotState::LookupRetry(depth, _) => {
                    let depth = depth.clone();
                    self.effects.push(Effect::LookUpInstance(id.clone(), depth.clone()));
                    slot.state = SlotState::LookingUp(depth);
                    return;
                }
                // The newest row is not durable yet: a lookup would return the old one.
                SlotState::Unknown if slot.written_batch > self.commits.durable_batch => {
                    let now = self
                        .commits
                        .defer_until_durable(slot.written_batch, OnCommit::ProcessInstance(id.clone()));
                    debug_assert!(now.is_none(), "it is not durable yet");
                    return;
                }
                SlotState::Unknown => {
                    self.effects.push(Effect::LookUpInstance(id.clone(), depth.clone()));
                    slot.state = SlotState::LookingUp(depth);
                    return;
                }
                // The run is needed and only the row is known: look it up again. Not if this owner wrote the row: the
                // store may still have the old one.
                SlotState::Row(Some(row))
                    if depth == LookupDepth::Run && !has_no_run(row.status, slot.written_batch) =>
                {
                    slot.state = SlotState::Unknown;
                    continue;
                }
                // An item that replaces the run waits for the messages before it. So does one that may repeat one of
                // them.
                SlotState::Run(run) if item.waits_for_turns() && run.needs_turn() => {
                    slot.blocked = true;
                    return;
                }
                _ => {}
            }
            if let Some(key) = slot.key_to_look_up()
                && self.uncommitted_reply(&key).is_none()
            {
                self.effects
                    .push(Effect::LookUpInstance(id.clone(), LookupDepth::Row { key_digest: Some(key) }));
                return slot.begin_side_lookup();
            }
            let Some(item) = slot.queue.pop_front() else { return };
            self.queued_items = self.queued_items.saturating_sub(1);
            self.process_item(id, slot, item);
        }
    }

    /// Keeps the slot in memory if it is needed, or may be soon.
    fn retain_slot(&mut self, id: &InstanceId, mut slot: InstanceSlot) {
        let keep = match &mut slot.state {
            SlotState::Run(run) => {
                let over = run.has_ended() && run.is_evictable(self.commits.durable_batch);
                if !over {
                    self.mark_idle(id, run);
                }
                !over
            }
            SlotState::SideLookup(_) | SlotState::LookingUp(_) => true,
            _ => slot.written_batch > self.commits.durable_batch || !slot.parked_items.is_empty(),
        };
        if keep || !slot.queue.is_empty() {
            self.slots.insert(id.clone(), slot);
        }
    }

    /// Processes one item, with enough of the instance loaded.
    fn process_item(&mut self, id: &InstanceId, slot: &mut InstanceSlot, item: WorkItem) {
        self.commits.reserve(ITEM_ROWS, ITEM_BYTES);
        match item {
            WorkItem::Request(request_id, request) => self.handle_request(id, slot, request_id, request),
            WorkItem::RefreshIndex { run_id: run, revision, needs_run } => {
                self.refresh_index(id, slot, (run, revision), needs_run)
            }
            WorkItem::Expire { ended, expiry } => self.expire_run(id, slot, &ended, &expiry),
            WorkItem::CheckDamage => self.check_run_for_damage(id, slot),
            WorkItem::RunMessage { sequence, message: RunMessage::LegacyStartChild(start) } => {
                self.find_child_plan(
                    id,
                    slot,
                    PendingChild { inbox_sequence: sequence, parent_item: None, start },
                );
            }
            WorkItem::RunMessage { sequence, message: RunMessage::StartChildOf { item, start } } => {
                self.find_child_plan(
                    id,
                    slot,
                    PendingChild { inbox_sequence: sequence, parent_item: Some(item), start },
                );
            }
            WorkItem::RunMessage { sequence, message: RunMessage::SessionEvent(session_event) } => {
                self.deliver_session_event(id, slot, sequence, session_event);
            }
            item => match &mut slot.state {
                SlotState::Run(run) => self.apply_to_run(run, item),
                // The run may be resumed, and then needs the item.
                SlotState::Unreadable { row, .. }
                    if row.as_ref().is_none_or(|row| !is_terminal(row.status)) =>
                {
                    slot.parked_items.push_back(item);
                }
                _ => self.discard(item),
            },
        }
    }

    /// Queues the items of a parked run again.
    pub(super) fn requeue_parked_items(&mut self, slot: &mut InstanceSlot) {
        self.queued_items += slot.parked_items.len();
        slot.queue.append(&mut slot.parked_items);
    }

    /// Applies an item to the run in memory.
    fn apply_to_run(&mut self, run: &mut ResidentRun, item: WorkItem) {
        match item {
            WorkItem::Message { run_id, mut envelope } => {
                if run_id != run.row.run_id {
                    return self.discard(WorkItem::Message { run_id, envelope });
                }
                self.record_result(run, &mut envelope);
                run.push_message(envelope);
            }
            WorkItem::AttemptCall { run_id, command } if run_id == run.row.run_id => {
                self.attempt_call(run, command);
            }
            WorkItem::WithdrawAttempt { run_id, command, attempt } if run_id == run.row.run_id => {
                self.withdraw_attempt(run, command, attempt);
            }
            WorkItem::StuckTimer(timer) if timer.run_id == run.row.run_id => self.on_stuck_timer(run, &timer),
            WorkItem::WatchStuck { run_id } if run_id == run.row.run_id => self.watch_slow_run(run),
            WorkItem::RunMessage { sequence, message } => self.apply_run_message(run, sequence, message),
            other => self.discard(other),
        }
    }

    /// Hands a message from the inbox to the run it is addressed to. A message for an earlier run of the instance, or
    /// from a run that is not its parent, is outdated: its row is deleted. Starts of children and session events never
    /// come here.
    fn apply_run_message(&mut self, run: &mut ResidentRun, inbox_sequence: Sequence, message: RunMessage) {
        let origin = run.instance.origin();
        let message = match message {
            RunMessage::ChildEnded { parent, message } if parent.run == origin.run => message,
            RunMessage::TerminateChild { parent, reason } if origin.parent.as_ref() == Some(&parent) => {
                Message::Terminate { reason }
            }
            RunMessage::Continue { run_id } if run_id == run.row.run_id => {
                run.unfinished = true;
                // One continuation row is enough.
                let previous = run.continuation_row.replace(inbox_sequence);
                if let Some(previous) = previous.filter(|previous| *previous != inbox_sequence) {
                    self.commits.delete(inbox::key(previous));
                }
                return;
            }
            _ => {
                self.commits.delete(inbox::key(inbox_sequence));
                return;
            }
        };
        run.push_message(QueuedMessage { message, source: MessageSource::Inbox(inbox_sequence) });
    }

    /// Drops an item whose run is gone or has been replaced, and deletes its row if it has one.
    fn discard(&mut self, item: WorkItem) {
        match item {
            WorkItem::Message { envelope, .. } => match envelope.source {
                MessageSource::Timer(timer) => self.delete_timer(&timer),
                MessageSource::Inbox(sequence) | MessageSource::SessionEvent(sequence, _) => {
                    self.commits.delete(inbox::key(sequence));
                }
                MessageSource::Client(..) | MessageSource::Call { .. } => {}
            },
            WorkItem::RunMessage { sequence, .. } => self.commits.delete(inbox::key(sequence)),
            WorkItem::StuckTimer(timer) => self.delete_timer(&timer),
            _ => {}
        }
    }

    /// The refusal for a request to an instance in this state.
    pub(super) fn unavailable_refusal(id: &InstanceId, state: &SlotState) -> RequestError {
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
}

impl WorkItem {
    /// Returns whether the item replaces or removes the current run, or may repeat a message that still waits for a
    /// turn.
    fn waits_for_turns(&self) -> bool {
        match self {
            Self::Request(
                _,
                ShardRequest::Restart { .. }
                | ShardRequest::Purge { .. }
                | ShardRequest::PurgeEarlierRun { .. }
                | ShardRequest::Start(_),
            ) => true,
            Self::Request(_, request) => request.idempotency().is_some(),
            Self::Expire { .. } | Self::RunMessage { message: RunMessage::SessionEvent(_), .. } => true,
            Self::RunMessage { message, .. } => message.starts_child(),
            _ => false,
        }
    }
}

/// Returns whether there is no run to load behind a row: it is purged, or this owner terminated it without reading it.
fn has_no_run(status: RunStatus, written_batch: BatchNumber) -> bool {
    status == RunStatus::Purged || written_batch != BatchNumber::NONE
}
