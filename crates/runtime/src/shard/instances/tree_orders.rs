//! Orders to end a run with all its descendants, which travel down the tree of runs from parent to child.
//!
//! ```text
//!  order ──> run: noted in the turn that consumes it ──> awaited children while it closes, the others when it ended
//!                                                            └──> order ──> child: the same
//! ```
//!
//! Every hop is a run message, so it is durable with the unit that sends it and taken once. A run that was ordered to
//! end starts no child after that, so when it has ended, its entries name all children that are left. How a run closes
//! is the interpreter's business. A child is reached as long as its parent has an entry for it.

use abide_ids::Sequence;
use abide_store::tables::inbox;
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, InstanceId, Message, MessageRefusal, RunNumber};

use crate::fault_check::fault_injected;
use crate::run::EntryChange;
use crate::run::run_status::is_terminal;
use crate::run_message::RunMessage;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::park;
use crate::shard::messages::{put_in_inbox, send_run_message};
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::{MessageSource, QueuedMessage, WorkItem};

/// Children named in one message: their orders are sent in one unit, which must fit into any commit.
const CHILDREN_PER_MESSAGE: usize = 16;

/// Applies the order of a parent: to the run, or to a parked run as a client's request to terminate it. An order for a
/// run that is gone, or has another parent, is outdated.
pub(in crate::shard) fn apply_order(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    sequence: Sequence,
    parent: ParentLink,
    reason: String,
) {
    match &mut slot.state {
        SlotState::Run(run) if run.instance.origin().parent.as_ref() == Some(&parent) => {
            if run.row.park_reason.is_some() {
                // A suspended run takes no further step, so the turn that made it park is not repeated.
                run.instance.suspend_unconditionally();
            }
            let message = Message::TerminateTree { reason };
            run.push_message(QueuedMessage { message, source: MessageSource::Inbox(sequence) });
        }
        SlotState::Unreadable { row: Some(row), last_page, last_event, .. } if !is_terminal(row.status) => {
            if !slot.resuming {
                // It may be readable by now: load it again, then apply this order.
                slot.resuming = true;
                slot.state = SlotState::Unknown;
                let message = RunMessage::TerminateTree { parent, reason };
                return slot.queue.push_front(WorkItem::RunMessage { sequence, message });
            }
            slot.resuming = false;
            work.delete(inbox::key(sequence));
            if row.parent.as_deref().and_then(park::stored_parent_link).as_ref() == Some(&parent) {
                let (row, last) = (row.clone(), (*last_page, *last_event));
                park::terminate_unreadable(work, id, slot, *row, last, &reason);
            }
        }
        _ => work.delete(inbox::key(sequence)),
    }
}

/// Notes the order in the run, in the turn that consumes it. False if there is nothing to be ordered: the run has ended
/// and no child is left.
pub(in crate::shard) fn note_order(
    run: &mut ResidentRun,
    message: &Message,
    refusal: Option<&MessageRefusal>,
    changes: &mut Vec<EntryChange>,
) -> bool {
    let Message::TerminateTree { reason } = message else { return false };
    if refusal.is_some() && run.bookkeeping.children.is_empty() {
        return false;
    }
    if run.bookkeeping.tree_order.is_none() {
        changes.push(run.bookkeeping.set_tree_order(reason));
    }
    true
}

/// Once the run has ended: passes the order on to the children that it did not end itself.
pub(in crate::shard) fn order_remaining_children(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    changes: &mut Vec<EntryChange>,
) {
    let Some(reason) = run.bookkeeping.tree_order.clone().filter(|_| run.has_ended()) else { return };
    let origin = run.instance.origin();
    let (parent_id, parent_run) = (origin.instance_id.clone(), origin.run);
    let commands: Vec<CommandId> = run.bookkeeping.children.keys().copied().collect();
    for commands in commands.chunks(CHILDREN_PER_MESSAGE) {
        let mut children = Vec::with_capacity(commands.len());
        for command in commands {
            if let Some((child, change)) = run.bookkeeping.clear_child(*command) {
                changes.push(change);
                children.push((*command, child));
            }
        }
        let message = RunMessage::OrderChildren {
            parent_id: parent_id.clone(),
            parent_run,
            children,
            reason: reason.clone(),
        };
        put_in_inbox(work, parent_id.clone(), message);
    }
}

/// Sends the order to children whose parent has ended.
pub(in crate::shard) fn order_children(
    work: &mut UnitOfWork<'_>,
    sequence: Sequence,
    (parent_id, parent_run): (InstanceId, RunNumber),
    children: Vec<(CommandId, InstanceId)>,
    reason: &str,
) {
    work.delete(inbox::key(sequence));
    if fault_injected!(work.ctx, TreeOrderForgotten) {
        return;
    }
    for (command, child) in children {
        let parent = ParentLink { instance_id: parent_id.clone(), run: parent_run, command };
        send_run_message(work, child, RunMessage::TerminateTree { parent, reason: reason.to_owned() });
    }
}
