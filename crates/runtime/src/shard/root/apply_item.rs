//! Applies one work item to its instance, by its kind: a request, a message, an attempt, an expiry.
//!
//! It only routes: what an item does is in the files it calls. An item for a run that is gone, or has been replaced, is
//! dropped here.

use abide_ids::Sequence;
use abide_store::tables::inbox;
use abide_workflow::{InstanceId, Message};

use crate::run::run_status::is_terminal;
use crate::run_message::RunMessage;
use crate::shard::calls::{attempt_results, hold, retry};
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::{index_runs, session_events, start, tree_orders};
use crate::shard::requests::InstanceReads;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::timers::stuck;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::{MessageSource, PendingChild, QueuedMessage, WorkItem};
use crate::shard::{requests, retention, timers};

/// Applies one item to its instance, which is loaded as far as the item needs. A run in memory gets its turns
/// afterwards.
pub(in crate::shard) fn apply_item(
    work: &mut UnitOfWork<'_>,
    reads: &InstanceReads<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    item: WorkItem,
) {
    match item {
        WorkItem::Request(request_id, request) => {
            requests::handle_request(work, reads, id, slot, request_id, request);
        }
        WorkItem::RefreshIndex { run_id, revision, needs_run } => {
            index_runs::refresh_index(work, reads.index, id, slot, (run_id, revision), needs_run);
        }
        WorkItem::Expire { ended, expiry } => {
            retention::expire_run(work, reads.index, id, slot, &ended, &expiry);
        }
        WorkItem::RunMessage { sequence, message: RunMessage::LegacyStartChild(start) } => {
            let child = PendingChild { inbox_sequence: sequence, parent_item: None, lineage: None, start };
            start::find_child_plan(work, id, slot, child);
        }
        WorkItem::RunMessage { sequence, message: RunMessage::StartChildOf { item, start } } => {
            let child =
                PendingChild { inbox_sequence: sequence, parent_item: Some(item), lineage: None, start };
            start::find_child_plan(work, id, slot, child);
        }
        WorkItem::RunMessage { sequence, message: RunMessage::StartDescendant { item, lineage, start } } => {
            let child = PendingChild {
                inbox_sequence: sequence,
                parent_item: Some(item),
                lineage: Some(lineage),
                start,
            };
            start::find_child_plan(work, id, slot, child);
        }
        WorkItem::RunMessage { sequence, message: RunMessage::SessionEvent(session_event) } => {
            session_events::deliver_session_event(work, id, slot, sequence, session_event);
        }
        WorkItem::RunMessage { sequence, message: RunMessage::TerminateTree { parent, reason } } => {
            tree_orders::apply_order(work, id, slot, sequence, parent, reason);
        }
        WorkItem::RunMessage {
            sequence,
            message: RunMessage::OrderChildren { parent_id, parent_run, children, reason },
        } => tree_orders::order_children(work, sequence, (parent_id, parent_run), children, &reason),
        item => match &mut slot.state {
            SlotState::Run(run) => apply_to_run(work, reads, run, item),
            // The run may be resumed, and then needs the item.
            SlotState::Unreadable { row, .. } if row.as_ref().is_none_or(|row| !is_terminal(row.status)) => {
                slot.parked_items.push_back(item);
            }
            _ => discard(work, item),
        },
    }
}

/// Applies an item to the run in memory. An item for an earlier run is discarded.
fn apply_to_run(work: &mut UnitOfWork<'_>, reads: &InstanceReads<'_>, run: &mut ResidentRun, item: WorkItem) {
    match item {
        WorkItem::Message { run_id, mut envelope } => {
            if run_id != run.row.run_id {
                return discard(work, WorkItem::Message { run_id, envelope });
            }
            attempt_results::record_result(work, run, &mut envelope);
            run.push_message(envelope);
        }
        WorkItem::TakeUpCall { run_id, command } if run_id == run.row.run_id => {
            retry::take_up_call(work, reads.attempts, run, command);
        }
        WorkItem::WithdrawAttempt { run_id, command, attempt } if run_id == run.row.run_id => {
            attempt_results::withdraw_attempt(work, run, command, attempt);
        }
        WorkItem::HoldCall(report) if report.run_id == run.row.run_id => hold::hold_call(work, run, *report),
        WorkItem::ConfirmSend { run_id, command, attempt, ticket } if run_id == run.row.run_id => {
            hold::confirm_send(work, run, command, (attempt, ticket));
        }
        WorkItem::StuckTimer(timer) if timer.run_id == run.row.run_id => {
            stuck::on_stuck_timer(work, run, &timer);
        }
        WorkItem::WatchStuck { run_id } if run_id == run.row.run_id => stuck::watch_slow_run(work, run),
        WorkItem::RunMessage { sequence, message } => apply_run_message(work, run, sequence, message),
        other => discard(work, other),
    }
}

/// Hands a message from the inbox to the run it is addressed to. A message for an earlier run of the instance, or
/// from a run that is not its parent, is outdated: its row is deleted. Starts of children, orders for trees and session
/// events never come here.
fn apply_run_message(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    inbox_sequence: Sequence,
    message: RunMessage,
) {
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
                work.delete(inbox::key(previous));
            }
            return;
        }
        _ => {
            work.delete(inbox::key(inbox_sequence));
            return;
        }
    };
    run.push_message(QueuedMessage { message, source: MessageSource::Inbox(inbox_sequence) });
}

/// Drops an item whose run is gone or has been replaced, and deletes its row if it has one.
fn discard(work: &mut UnitOfWork<'_>, item: WorkItem) {
    match item {
        WorkItem::Message { envelope, .. } => match envelope.source {
            MessageSource::Timer(timer) => timers::delete_timer(work, &timer),
            MessageSource::Inbox(sequence) | MessageSource::SessionEvent(sequence, _) => {
                work.delete(inbox::key(sequence));
            }
            MessageSource::Client(..) | MessageSource::Call { .. } => {}
        },
        WorkItem::RunMessage { sequence, .. } => work.delete(inbox::key(sequence)),
        WorkItem::StuckTimer(timer) => timers::delete_timer(work, &timer),
        _ => {}
    }
}
