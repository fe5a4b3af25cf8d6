//! Applies the result of a lookup to the slot, and builds the run in memory. The driver reads the rows, in
//! [`run::load`](crate::run::RunReader).
//!
//! A run that cannot be read is parked here, with the reason in its row. Reading the rows is the driver's task;
//! deciding what must be looked up is `root::instance_queue`'s.

use abide_store::tables::instances::RunStatus;
use abide_workflow::InstanceId;

use crate::event::{InstanceLookup, LookupDepth, StoredReplyLookup};
use crate::request::RequestError;
use crate::run::StoredRun;
use crate::run::run_status::is_terminal;
use crate::shard::backoff::{backoff, later};
use crate::shard::calls::open_call::OpenCall;
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::context::Context;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::park;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::WorkItem;

impl ResidentRun {
    /// Builds a run from its stored rows. Attempts that were started before the run was evicted are not marked in its
    /// calls.
    pub(in crate::shard) fn from_stored(stored: StoredRun) -> Self {
        let mut run = Self::new(stored.row, stored.plan, stored.instance, BatchNumber::NONE);
        run.unfinished = false;
        run.bookkeeping = stored.bookkeeping;
        run.last_page = stored.last_page;
        for (name, bytes) in stored.unfolded {
            run.unfolded_bytes += name.len() + bytes.as_ref().map_or(0, Vec::len);
            run.unfolded_parts.insert(name, (bytes, stored.last_page));
        }
        for (key, row) in stored.calls {
            let mut call = OpenCall::from_row(key, row);
            let command = call.command;
            if let Some(failure) = run.instance.held_call_failure(command) {
                call.restore_held_failure(failure);
                run.held_calls.push(command);
            }
            run.calls.insert(command, call);
        }
        run
    }
}

/// Applies the result of a lookup to the slot that waits for it.
pub(in crate::shard) fn apply_lookup(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    found: InstanceLookup,
) {
    match &slot.state {
        SlotState::SideLookup(_) => apply_key_lookup(work.ctx, id, slot, found),
        SlotState::LookingUp(depth) => {
            let depth = depth.clone();
            apply_instance_lookup(work, id, slot, depth, found);
        }
        _ => {}
    }
}

/// Gives a slot that waits for a lookup the state that was found. A live run that cannot be read is parked.
fn apply_instance_lookup(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    depth: LookupDepth,
    found: InstanceLookup,
) {
    slot.state = match found {
        InstanceLookup::Unavailable(_) => {
            let at = later(work.ctx.now.mono, backoff(3));
            SlotState::LookupRetry(depth, at)
        }
        InstanceLookup::Row(row, stored_reply) => {
            apply_stored_reply(work.ctx, id, slot, &depth, stored_reply);
            SlotState::Row(row)
        }
        InstanceLookup::Run(None) => SlotState::Row(None),
        InstanceLookup::Run(Some(stored)) => slot_state_of(*stored, slot),
        InstanceLookup::Unreadable(unreadable, stored_reply) => {
            apply_stored_reply(work.ctx, id, slot, &depth, stored_reply);
            SlotState::Unreadable {
                row: unreadable.row.map(Box::new),
                last_page: unreadable.last_page,
                last_event: unreadable.last_event,
                reason: unreadable.reason,
            }
        }
    };
    // A live run that cannot be read is parked, and its row says so from now on.
    if let SlotState::Unreadable { row: Some(row), reason, .. } = &mut slot.state
        && row.status != RunStatus::Parked
        && !is_terminal(row.status)
    {
        park::write_parked(work, id, row, reason);
        work.note_newest_rows();
    }
}

/// The state for a stored run. A parked run stays parked until it is resumed. A run whose row says that it has ended
/// while its parts do not was terminated without being read, and never runs again.
fn slot_state_of(stored: StoredRun, slot: &mut InstanceSlot) -> SlotState {
    let ended = is_terminal(stored.row.status) && !stored.instance.status().is_terminal();
    if ended || stored.row.status == RunStatus::Parked && !slot.resuming {
        let reason = stored.row.park_reason.clone().unwrap_or_default();
        let row = Some(Box::new(stored.row));
        return SlotState::Unreadable { row, last_page: stored.last_page, last_event: None, reason };
    }
    slot.resuming = false;
    slot.requeue_parked_items();
    SlotState::Run(Box::new(ResidentRun::from_stored(stored)))
}

/// Applies the lookup of a stored reply for an instance whose state is already known.
fn apply_key_lookup(ctx: &mut Context, id: &InstanceId, slot: &mut InstanceSlot, found: InstanceLookup) {
    if slot.pending_child.is_some() || slot.pending_event.is_some() || !slot.end_side_lookup() {
        return;
    }
    let Some(key) = slot.key_to_look_up() else { return };
    match found {
        InstanceLookup::Row(_, stored_reply) | InstanceLookup::Unreadable(_, stored_reply) => {
            apply_stored_reply(ctx, id, slot, &LookupDepth::Row { key_digest: Some(key) }, stored_reply);
        }
        InstanceLookup::Run(_) | InstanceLookup::Unavailable(_) => {
            // Repeated after a delay. Until then the slot stays in the side lookup.
            slot.key_lookup_retry = Some((later(ctx.now.mono, backoff(3)), key));
            slot.begin_side_lookup();
        }
    }
}

/// Notes the stored reply, so that its key is not looked up again. If the record cannot be read, the waiting
/// request is refused: it may have been done before.
fn apply_stored_reply(
    ctx: &mut Context,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    depth: &LookupDepth,
    stored_reply: StoredReplyLookup,
) {
    let LookupDepth::Row { key_digest: Some(key) } = depth else { return };
    match stored_reply {
        Ok(record) => {
            slot.looked_up_key = Some(*key);
            slot.stored_reply = record;
        }
        Err(reason) => {
            if slot.key_to_look_up() == Some(*key)
                && let Some(WorkItem::Request(request_id, _)) = slot.queue.pop_front()
            {
                ctx.refuse(request_id, RequestError::Damaged { instance_id: id.clone(), reason });
            }
        }
    }
}
