//! Parks runs that cannot continue, with the reason in the instance row, and terminates runs that cannot be read.
//!
//! The stored state of a parked run stays as it is, and its work items wait until it is resumed or terminated. Other
//! runs are not affected. Deciding *that* a run cannot continue happens elsewhere: in its turn, or when it is loaded.

use abide_ids::PageNumber;
use abide_store::tables::encode;
use abide_store::tables::history_pages::{self, HistoryPageRow};
use abide_store::tables::instances::{self, InstanceRow, RunStatus};
use abide_workflow::instance::ParentLink;
use abide_workflow::{Failure, Instance, InstanceId, Message, MessageRefusal, Status};

use crate::event::OperatorEvent;
use crate::request::RequestError;
use crate::run::run_status::is_terminal;
use crate::run_message::RunMessage;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::instances::{index_runs, session_events, start};
use crate::shard::messages::send_run_message;
use crate::shard::requests::idempotency;
use crate::shard::run::run_rows;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::{MessageSource, QueuedMessage, WorkItem};

/// Parks a run whose turn failed or was dropped. Clients that wait for it are refused; its other messages wait until it
/// is resumed.
pub(in crate::shard) fn park(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    mut run: ResidentRun,
    reason: String,
) {
    // It was parked before, should be terminated, and could not even run that turn.
    if run.row.park_reason.is_some() {
        return terminate_unrunnable(work, id, slot, run);
    }
    if run.last_page == PageNumber::ZERO {
        write_before_first_turn(work, &mut run);
    }
    let run_id = run.row.run_id;
    let last_page = run.last_page;
    let refused = RequestError::Parked { instance_id: id.clone(), reason: reason.clone() };
    if let Some(sequence) = run.continuation_row {
        slot.parked_items
            .push_back(WorkItem::RunMessage { sequence, message: RunMessage::Continue { run_id } });
    }
    for (message, source) in run.messages.into_iter().zip(run.sources) {
        match source {
            MessageSource::Client(request_id, _) => work.refuse_on_commit(request_id, refused.clone()),
            // Not for this run, but for the one that is live when the event can be delivered.
            MessageSource::SessionEvent(sequence, session_event) => {
                slot.parked_items.push_back(WorkItem::RunMessage {
                    sequence,
                    message: RunMessage::SessionEvent(session_event),
                });
            }
            source => {
                let envelope = QueuedMessage { message, source };
                slot.parked_items.push_back(WorkItem::Message { run_id, envelope });
            }
        }
    }
    work.add(Step::RefuseEndWaiters(id.clone(), refused));
    let mut row = run.row;
    write_parked(work, id, &mut row, &reason);
    work.note_newest_rows();
    slot.state = SlotState::Unreadable { row: Some(Box::new(row)), last_page, last_event: None, reason };
}

/// Why a run is parked, or a message refused, that the head of the shard named when the process ended.
const ENDED_MEANWHILE: &str = "the server ended while it worked on this run";

/// The process ended while it did the work of this instance, of which only the row is known. Parks its run without
/// loading it. If no run is live, the message that was to start one is refused: an event is dead-lettered, a child
/// fails.
pub(in crate::shard) fn park_marked(work: &mut UnitOfWork<'_>, id: &InstanceId, slot: &mut InstanceSlot) {
    if let SlotState::Row(Some(row)) = &mut slot.state
        && !is_terminal(row.status)
    {
        if row.status != RunStatus::Parked {
            write_parked(work, id, row, ENDED_MEANWHILE);
            work.note_newest_rows();
        }
        // The last page of the run is not known, so whoever needs the run looks it up.
        slot.state = SlotState::Unknown;
        return;
    }
    let starts_run = |item: &WorkItem| match item {
        WorkItem::RunMessage { message: RunMessage::SessionEvent(event), .. } => event.starts_run,
        WorkItem::RunMessage { message, .. } => message.starts_child(),
        _ => false,
    };
    let Some(at) = slot.queue.iter().position(starts_run) else { return };
    let Some(WorkItem::RunMessage { sequence, message }) = slot.queue.remove(at) else { return };
    match message {
        RunMessage::SessionEvent(event) => {
            session_events::dead_letter_event(work, sequence, &event, ENDED_MEANWHILE);
        }
        RunMessage::LegacyStartChild(start)
        | RunMessage::StartChildOf { start, .. }
        | RunMessage::StartDescendant { start, .. } => {
            start::refuse_child(work, sequence, start, Failure::permanent("ServerEnded", ENDED_MEANWHILE));
        }
        _ => {}
    }
}

/// The first turn of the run failed, so nothing of it is stored yet. Writes the run as it was before that turn, does
/// what the commit of the first turn would have done besides, such as the reply to the start, and leaves a continuation
/// row, so that the turn runs again when the run is resumed.
fn write_before_first_turn(work: &mut UnitOfWork<'_>, run: &mut ResidentRun) {
    let origin = run.instance.origin().clone();
    run.instance = Instance::pending(origin, run.row.created_at);
    // Encoding cannot fail for values that were decoded from JSON.
    let parts = run.instance.take_changes().unwrap_or_default();
    start::apply_first_turn_actions(work, run);
    run_rows::write_initial_state(work, run, parts);
}

/// Writes the instance row of a parked run, with the reason, and tells the public index and the operator. The caller
/// changes the slot; the run leaves memory once this is durable.
pub(in crate::shard) fn write_parked(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    row: &mut InstanceRow,
    reason: &str,
) {
    row.status = RunStatus::Parked;
    row.park_reason = Some(reason.to_owned());
    row.updated_at = work.ctx.now.wall;
    work.put(instances::key(id.as_str()), encode(row));
    index_runs::index_row(work, id, row);
    let notice = OperatorEvent::Parked { instance_id: id.clone(), reason: reason.to_owned() };
    work.notify_on_commit(notice);
    work.on_commit(OnCommit::Evict(id.clone()));
}

/// Terminates a run that should be terminated but cannot run a turn, in the same way as one that cannot be read.
fn terminate_unrunnable(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    run: ResidentRun,
) {
    let mut terminate = None;
    let run_id = run.row.run_id;
    for (message, source) in run.messages.into_iter().zip(run.sources) {
        match (message, source) {
            (
                Message::Terminate { reason } | Message::TerminateTree { reason },
                MessageSource::Client(request_id, idempotency),
            ) if terminate.is_none() => {
                terminate = Some((request_id, idempotency, reason));
            }
            (_, MessageSource::Client(request_id, _)) => {
                let ended = MessageRefusal::RunEnded { status: Status::Terminated };
                work.refuse_on_commit(request_id, RequestError::Message(ended));
            }
            (_, MessageSource::SessionEvent(sequence, session_event)) => {
                slot.parked_items.push_back(WorkItem::RunMessage {
                    sequence,
                    message: RunMessage::SessionEvent(session_event),
                });
            }
            (message, source) => {
                let envelope = QueuedMessage { message, source };
                slot.parked_items.push_back(WorkItem::Message { run_id, envelope });
            }
        }
    }
    let reason = terminate.as_ref().map_or("", |(.., reason)| reason);
    terminate_unreadable(work, id, slot, run.row, (run.last_page, None), reason);
    if let Some((request_id, idempotency, _)) = terminate {
        idempotency::reply_accepted(work, request_id, idempotency);
    }
}

/// Terminates a run that cannot be read or cannot run: adds the event to its history, notifies its parent, stops its
/// attempts, and frees its id. Its own children are unknown, so they go on; the rows of its calls stay until it is
/// purged, and lead to nothing. The caller replies.
pub(in crate::shard) fn terminate_unreadable(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    mut row: InstanceRow,
    (last_page, last_event): (PageNumber, Option<u64>),
    reason: &str,
) {
    let mut event = serde_json::json!({
        "timestamp": work.ctx.now.wall.to_string(), "eventType": "ExecutionTerminated", "reason": reason,
    });
    // The event is numbered only if the number of the last event is known.
    let sequence = last_event.map(|last| last.saturating_add(1));
    if let (Some(sequence), Some(event)) = (sequence, event.as_object_mut()) {
        event.insert("sequence".to_owned(), sequence.into());
    }
    let page = HistoryPageRow {
        first_event: sequence.unwrap_or(HistoryPageRow::UNNUMBERED),
        event_count: 1,
        turn_at: work.ctx.now.wall,
        events: serde_json::json!([event]).to_string().into_bytes(),
        part_changes: Vec::new(),
        settled_calls: Vec::new(),
        call_failures: Vec::new(),
    };
    work.put(history_pages::key(row.run_id, last_page.next()), encode(&page));
    row.status = RunStatus::Terminated;
    row.park_reason = None;
    row.updated_at = work.ctx.now.wall;
    work.put(instances::key(id.as_str()), encode(&row));
    index_runs::index_row(work, id, &row);
    if let Some(parent) = row.parent.as_deref().and_then(stored_parent_link) {
        let failure = Failure::permanent("Terminated", reason);
        let message = Message::ChildFailed { command: parent.command, failure };
        send_run_message(work, parent.instance_id.clone(), RunMessage::ChildEnded { parent, message });
    }
    work.add(Step::CancelAttemptsOf(row.run_id));
    let notice = OperatorEvent::RunEnded { status: Status::Terminated, duration_ms: 0 };
    work.notify_on_commit(notice);
    work.on_commit(OnCommit::Evict(id.clone()));
    work.note_newest_rows();
    slot.state = SlotState::Row(Some(row));
    slot.requeue_parked_items();
}

/// The parent in an instance row; none if its id is not valid.
pub(in crate::shard) fn stored_parent_link(parent: &instances::ParentRun) -> Option<ParentLink> {
    let instance_id = InstanceId::new(parent.instance_id.clone()).ok()?;
    Some(ParentLink { instance_id, run: parent.run_number, command: parent.command })
}
