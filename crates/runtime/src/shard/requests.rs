//! Handles the requests of clients: messages and control operations, restart, purge, and waiting for the end of a run.
//!
//! A reply is sent only when the state it describes is durable. Starting a run is in
//! [`start`], repeated requests are in
//! [`idempotency`], operations on entities in
//! [`entities`](crate::shard::entities).

pub(super) mod end_waiters;
pub(super) mod idempotency;

use abide_ids::RunId;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message, RunNumber};

use crate::fault_check::fault_injected;
use crate::request::{
    IdempotentReply, RequestError, RequestId, RequestIdempotency, ShardReply, ShardRequest,
};
use crate::run::run_status::{is_terminal, row_status};
use crate::shard::calls::attempts_in_flight::AttemptsInFlight;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState, unavailable_refusal};
use crate::shard::instances::{index_runs, park, start};
use crate::shard::public_index::PublicIndex;
use crate::shard::requests::idempotency::UncommittedReplies;
use crate::shard::retention;
use crate::shard::run::run_rows;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::{MessageSource, QueuedMessage, WorkItem};

/// What work on an instance may read of other components.
#[derive(Debug)]
pub(super) struct InstanceReads<'s> {
    pub(super) index: &'s PublicIndex,
    pub(super) replies: &'s UncommittedReplies,
    pub(super) attempts: &'s AttemptsInFlight,
}

/// Handles one request, with enough of its instance loaded.
pub(super) fn handle_request(
    work: &mut UnitOfWork<'_>,
    reads: &InstanceReads<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    request: ShardRequest,
) {
    let idempotency = request.idempotency();
    if let Some(idempotency) = idempotency
        && let Some(reply) = reads.replies.find(work.ctx, slot, idempotency, request.starts_run())
    {
        return replay_reply(work, id, slot, request_id, request, reply);
    }
    let request = if let ShardRequest::Idempotent(_, request) = request { *request } else { request };
    match request {
        ShardRequest::Start(mut start) => {
            start.idempotency = idempotency;
            start::handle_start(work, reads.index, slot, request_id, *start);
        }
        ShardRequest::SendMessage { message, .. } => {
            handle_message(work, id, slot, request_id, message, idempotency)
        }
        ShardRequest::Restart { .. } => handle_restart(work, reads.index, id, slot, request_id, idempotency),
        ShardRequest::Purge { run_number: run, .. } => {
            handle_purge(work, id, slot, request_id, run, idempotency)
        }
        ShardRequest::PurgeEarlierRun { run_number: run, run_id, .. } => {
            handle_purge_earlier(work, id, slot, request_id, (run, run_id));
        }
        ShardRequest::AwaitEnd { run_number: run, .. } => handle_await_end(work, id, slot, request_id, run),
        ShardRequest::GetStoredReply { .. } => {
            work.ctx.refuse(request_id, RequestError::NotFound { instance_id: id.clone() })
        }
        // A request has one idempotency key, and an operation on an entity brings its own.
        ShardRequest::Idempotent(..) | ShardRequest::Operate(_) => {
            work.ctx.refuse(request_id, RequestError::KeyReused)
        }
    }
}

/// Replies to a repeated request as to the first one.
fn replay_reply(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    request: ShardRequest,
    reply: ShardReply,
) {
    if let (ShardRequest::Start(start), ShardReply::Started(started)) = (request, &reply)
        && let Some(awaiting) = start.await_end
    {
        // The run may not be in memory; this request then looks it up.
        let request =
            ShardRequest::AwaitEnd { instance_id: id.clone(), run_number: Some(started.run_number) };
        slot.queue.push_front(WorkItem::Request(awaiting, request));
    }
    slot.reply_when_durable(work.ctx, request_id, reply);
}

/// Lets the request wait for the end of the run. If the run has ended already, the root replies after this unit.
fn handle_await_end(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    wanted: Option<RunNumber>,
) {
    match (&slot.state, wanted) {
        (SlotState::Run(run), Some(wanted)) if run.row.run_number != wanted => {
            work.ctx
                .refuse(request_id, RequestError::NotCurrent { instance_id: id.clone(), run_number: wanted });
        }
        (SlotState::Run(_), _) => work.add(Step::AwaitEnd(id.clone(), request_id)),
        (other, _) => {
            let refusal = unavailable_refusal(id, other);
            slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
    }
}

/// Queues a message for the run; the turn that consumes it replies. A parked run is loaded again to be resumed or
/// terminated, and is terminated without a turn if it cannot be read.
fn handle_message(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    message: Message,
    idempotency: Option<RequestIdempotency>,
) {
    match &mut slot.state {
        SlotState::Run(run) => {
            let resumes = matches!(message, Message::Resume { .. });
            if run.row.park_reason.is_some() && message.terminates() {
                // A suspended run takes no further step, so the turn that made it park is not repeated.
                run.instance.suspend_unconditionally();
            } else if run.row.park_reason.take().is_some() {
                // It can be read, so it is parked no more. It may still be suspended.
                run.row.status = row_status(run.instance.status());
                run_rows::write_continuation(work, run, true);
                run_rows::write_instance_row(work, run);
                work.note_newest_rows();
                index_runs::index_run(work, run);
                if resumes {
                    return idempotency::reply_accepted(work, request_id, idempotency);
                }
            }
            if fault_injected!(work.ctx, TerminalReopened) && run.has_ended() {
                run.row.status = RunStatus::Running;
                run_rows::write_instance_row(work, run);
                work.note_newest_rows();
                return work.reply_on_commit(request_id, ShardReply::Accepted);
            }
            run.push_message(QueuedMessage {
                message,
                source: MessageSource::Client(request_id, idempotency),
            });
        }
        SlotState::Unreadable { row: Some(row), last_page, last_event, .. } if !is_terminal(row.status) => {
            let reloads = matches!(message, Message::Resume { .. }) || message.terminates();
            if reloads && !slot.resuming {
                // It may be readable by now: load it again, then handle this request.
                slot.resuming = true;
                slot.state = SlotState::Unknown;
                let request = ShardRequest::SendMessage { instance_id: id.clone(), message };
                let request = match idempotency {
                    Some(idempotency) => ShardRequest::Idempotent(idempotency, Box::new(request)),
                    None => request,
                };
                slot.queue.push_front(WorkItem::Request(request_id, request));
                return;
            }
            slot.resuming = false;
            if let Message::Terminate { reason } | Message::TerminateTree { reason } = message {
                let row = row.clone();
                let last = (*last_page, *last_event);
                park::terminate_unreadable(work, id, slot, *row, last, &reason);
                idempotency::reply_accepted(work, request_id, idempotency);
            } else {
                let refusal = unavailable_refusal(id, &slot.state);
                slot.refuse_when_durable(work.ctx, request_id, refusal);
            }
        }
        SlotState::Row(Some(row)) if row.status == RunStatus::Terminated => {
            let status = abide_workflow::Status::Terminated;
            let refusal = RequestError::Message(abide_workflow::MessageRefusal::RunEnded { status });
            slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
        SlotState::Unreadable { row: Some(_), .. } => {
            let status = abide_workflow::Status::Terminated;
            let refusal = RequestError::Message(abide_workflow::MessageRefusal::RunEnded { status });
            slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
        other => {
            let refusal = unavailable_refusal(id, other);
            slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
    }
}

/// Starts another run with the input and the plan of the run in memory, which must have ended.
fn handle_restart(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    idempotency: Option<RequestIdempotency>,
) {
    let run = match &mut slot.state {
        SlotState::Run(run) if run.has_ended() => run,
        SlotState::Run(run) => {
            let refused =
                RequestError::AlreadyRunning { instance_id: id.clone(), run_number: run.row.run_number };
            return slot.refuse_when_durable(work.ctx, request_id, refused);
        }
        other => {
            let refusal = unavailable_refusal(id, other);
            return slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
    };
    let origin = run.instance.origin();
    let start = crate::request::StartRequest {
        instance_id: id.clone(),
        plan: run.plan.clone(),
        input: origin.input.clone(),
        event: origin.event.clone(),
        correlation_id: origin.correlation_id.clone(),
        entity_id: origin.entity_id.clone(),
        entity_type: run.row.entity_type.as_deref().map(str::to_owned),
        idempotency,
        await_end: None,
    };
    start::handle_start(work, index, slot, request_id, start);
}

/// Purges the last run of an instance, which must have ended; and all earlier ones, unless the request names a run.
fn handle_purge(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    run: Option<RunNumber>,
    idempotency: Option<RequestIdempotency>,
) {
    let last = match &slot.state {
        SlotState::Row(row) => row.clone(),
        SlotState::Run(run) => Some(run.row.clone()),
        SlotState::Unreadable { row: Some(row), .. } => Some((**row).clone()),
        other => {
            let refusal = unavailable_refusal(id, other);
            return slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
    };
    let not_found = RequestError::NotFound { instance_id: id.clone() };
    let Some(row) = last.filter(|row| run.is_none_or(|run| run == row.run_number)) else {
        return slot.refuse_when_durable(work.ctx, request_id, not_found);
    };
    if row.status == RunStatus::Purged {
        if run.is_none() {
            // Only earlier runs can be left of the instance.
            retention::purge_earlier_runs(work, id, row.run_id);
        }
        return slot.refuse_when_durable(work.ctx, request_id, not_found);
    }
    if !is_terminal(row.status) {
        let refused = RequestError::AlreadyRunning { instance_id: id.clone(), run_number: row.run_number };
        return slot.refuse_when_durable(work.ctx, request_id, refused);
    }
    if run.is_none() {
        retention::purge_earlier_runs(work, id, row.run_id);
    }
    slot.state = SlotState::Row(Some(retention::purge_run(work, id, row)));
    work.note_newest_rows();
    work.on_commit(OnCommit::Evict(id.clone()));
    let reply = idempotency::complete_request(work, IdempotentReply::Purged, idempotency);
    work.reply_on_commit(request_id, reply);
}

/// Purges a run that the client found by its number, unless it is the current run after all.
fn handle_purge_earlier(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    request_id: RequestId,
    (run, run_id): (RunNumber, RunId),
) {
    let current = match &slot.state {
        SlotState::Row(row) => row.as_ref().map(|row| row.run_id),
        SlotState::Run(run) => Some(run.row.run_id),
        SlotState::Unreadable { row: Some(row), .. } => Some(row.run_id),
        other => {
            let refusal = unavailable_refusal(id, other);
            return slot.refuse_when_durable(work.ctx, request_id, refusal);
        }
    };
    if current == Some(run_id) {
        return slot.refuse_when_durable(
            work.ctx,
            request_id,
            RequestError::NotFound { instance_id: id.clone() },
        );
    }
    let instance_id = id.as_str().to_owned();
    let revision = work.ctx.next_revision();
    retention::purge_earlier_run(work, &EndedRun { instance_id, run_id, run_number: Some(run), revision });
    work.reply_on_commit(request_id, ShardReply::Purged);
}
