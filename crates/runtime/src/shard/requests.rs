//! Handles the requests of clients: messages and control operations, restart, purge, and waiting for the end of a run.
//!
//! A reply is sent only when the state it describes is durable. Starting a run is in [`start`](super::start), repeated
//! requests are in [`idempotency`](super::idempotency), operations on entities in [`entities`](super::entities).

use abide_ids::RunId;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{InstanceId, Message, RunNumber};

use super::Shard;
use super::commit_queue::OnCommit;
use super::instance_slot::{InstanceSlot, MessageSource, QueuedMessage, SlotState, WorkItem, is_terminal};
use super::ownership::OwnershipPhase;
use crate::event::Effect;
use crate::request::{
    IdempotentReply, RequestError, RequestId, RequestIdempotency, ShardReply, ShardRequest,
};

impl Shard {
    /// Accepts all requests of a group in their order, or none of them. If only some were refused for lack of room,
    /// their retries would arrive after later requests of the group.
    pub(super) fn on_requests(&mut self, requests: Vec<(RequestId, ShardRequest)>) {
        let queued_max = self.config.queued_max;
        let refusal = match &self.phase {
            OwnershipPhase::Working(_)
                if self.queued_items < queued_max && self.ready_runs.len() < queued_max =>
            {
                return requests
                    .into_iter()
                    .for_each(|(request_id, request)| self.enqueue_request(request_id, request));
            }
            // Recovery does not take long, so the requests wait for it.
            OwnershipPhase::Recovering(_) if self.deferred_requests.len() < queued_max => {
                return self.deferred_requests.push_back(requests);
            }
            OwnershipPhase::Working(_) => RequestError::Busy,
            OwnershipPhase::Draining(_) => RequestError::Draining,
            _ => RequestError::NotReady,
        };
        for (request_id, _) in requests {
            self.refuse(request_id, refusal.clone());
        }
    }

    fn enqueue_request(&mut self, request_id: RequestId, request: ShardRequest) {
        if let ShardRequest::Operate(operation) = request {
            return self.on_operation(request_id, operation);
        }
        let Some(id) = request.instance_id().cloned() else { return };
        self.enqueue(&id, WorkItem::Request(request_id, request));
    }

    /// Accepts the requests that arrived during recovery.
    pub(super) fn process_deferred_requests(&mut self) {
        while let Some(requests) = self.deferred_requests.pop_front() {
            self.on_requests(requests);
        }
    }

    /// Handles one request, with enough of its instance loaded.
    pub(super) fn handle_request(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        request_id: RequestId,
        request: ShardRequest,
    ) {
        let idempotency = request.idempotency();
        if let Some(idempotency) = idempotency
            && let Some(reply) = self.find_stored_reply(slot, idempotency, request.starts_run())
        {
            return self.replay_reply(id, slot, request_id, request, reply);
        }
        let request = if let ShardRequest::Idempotent(_, request) = request { *request } else { request };
        match request {
            ShardRequest::Start(mut start) => {
                start.idempotency = idempotency;
                self.handle_start(slot, request_id, *start);
            }
            ShardRequest::SendMessage { message, .. } => {
                self.handle_message(id, slot, request_id, message, idempotency)
            }
            ShardRequest::Restart { .. } => self.handle_restart(id, slot, request_id, idempotency),
            ShardRequest::Purge { run_number: run, .. } => {
                self.handle_purge(id, slot, request_id, run, idempotency)
            }
            ShardRequest::PurgeEarlierRun { run_number: run, run_id, .. } => {
                self.handle_purge_earlier(id, slot, request_id, (run, run_id));
            }
            ShardRequest::Operate(operation) => self.on_operation(request_id, operation),
            ShardRequest::AwaitEnd { run_number: run, .. } => {
                self.handle_await_end(id, slot, request_id, run)
            }
            ShardRequest::GetStoredReply { .. } => {
                self.refuse(request_id, RequestError::NotFound { instance_id: id.clone() })
            }
            // A request has one idempotency key.
            ShardRequest::Idempotent(..) => self.refuse(request_id, RequestError::KeyReused),
        }
    }

    /// Replies to a repeated request as to the first one.
    fn replay_reply(
        &mut self,
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
            self.queued_items += 1;
        }
        self.defer_until_slot_durable(slot, OnCommit::Effect(Effect::Reply(request_id, reply)));
    }

    fn handle_await_end(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        request_id: RequestId,
        wanted: Option<RunNumber>,
    ) {
        match (&slot.state, wanted) {
            (SlotState::Run(run), Some(wanted)) if run.row.run_number != wanted => {
                self.refuse(
                    request_id,
                    RequestError::NotCurrent { instance_id: id.clone(), run_number: wanted },
                );
            }
            (SlotState::Run(_), _) => self.end_waiters.entry(id.clone()).or_default().push(request_id),
            (other, _) => {
                let refusal = Self::unavailable_refusal(id, other);
                self.refuse_when_durable(slot, request_id, refusal);
            }
        }
    }

    fn handle_message(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        request_id: RequestId,
        message: Message,
        idempotency: Option<RequestIdempotency>,
    ) {
        match &mut slot.state {
            SlotState::Run(run) => {
                let resumes = matches!(message, Message::Resume { .. });
                if run.row.park_reason.is_some() && matches!(message, Message::Terminate { .. }) {
                    // A suspended run takes no further step, so the turn that made it park is not repeated.
                    run.instance.suspend_unconditionally();
                } else if run.row.park_reason.take().is_some() {
                    // It can be read, so it is parked no more. It may still be suspended.
                    run.row.status = super::instance_slot::row_status(run.instance.status());
                    self.commits.reserve(8, 64 * 1024);
                    self.write_continuation(run, true);
                    self.write_instance_row(run);
                    run.written_batch = self.commits.batch_number();
                    self.index_run(run);
                    if resumes {
                        return self.reply_accepted(request_id, idempotency);
                    }
                }
                if super::fault_injected!(self, TerminalReopened) && run.has_ended() {
                    run.row.status = RunStatus::Running;
                    self.write_instance_row(run);
                    run.written_batch = self.commits.batch_number();
                    return self
                        .commits
                        .on_commit(OnCommit::Effect(Effect::Reply(request_id, ShardReply::Accepted)));
                }
                let dropped = matches!(message, Message::Terminate { .. }) && !run.has_ended();
                if super::fault_injected!(self, TerminateDropped) && dropped {
                    return self
                        .commits
                        .on_commit(OnCommit::Effect(Effect::Reply(request_id, ShardReply::Accepted)));
                }
                run.push_message(QueuedMessage {
                    message,
                    source: MessageSource::Client(request_id, idempotency),
                });
            }
            SlotState::Unreadable { row: Some(row), last_page, last_event, .. }
                if !is_terminal(row.status) =>
            {
                let reloads = matches!(message, Message::Resume { .. } | Message::Terminate { .. });
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
                    self.queued_items += 1;
                    return;
                }
                slot.resuming = false;
                if let Message::Terminate { reason } = message {
                    let row = row.clone();
                    let last = (*last_page, *last_event);
                    self.terminate_unreadable(id, slot, *row, last, &reason);
                    self.reply_accepted(request_id, idempotency);
                } else {
                    let refusal = Self::unavailable_refusal(id, &slot.state);
                    self.refuse_when_durable(slot, request_id, refusal);
                }
            }
            SlotState::Row(Some(row)) if row.status == RunStatus::Terminated => {
                let status = abide_workflow::Status::Terminated;
                let refusal = RequestError::Message(abide_workflow::MessageRefusal::RunEnded { status });
                self.refuse_when_durable(slot, request_id, refusal);
            }
            SlotState::Unreadable { row: Some(_), .. } => {
                let status = abide_workflow::Status::Terminated;
                let refusal = RequestError::Message(abide_workflow::MessageRefusal::RunEnded { status });
                self.refuse_when_durable(slot, request_id, refusal);
            }
            other => {
                let refusal = Self::unavailable_refusal(id, other);
                self.refuse_when_durable(slot, request_id, refusal);
            }
        }
    }

    pub(super) fn reply_accepted(&mut self, request_id: RequestId, idempotency: Option<RequestIdempotency>) {
        let reply = self.complete_request(IdempotentReply::Accepted, idempotency);
        self.commits.on_commit(OnCommit::Effect(Effect::Reply(request_id, reply)));
    }

    fn handle_restart(
        &mut self,
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
                return self.refuse_when_durable(slot, request_id, refused);
            }
            other => {
                let refusal = Self::unavailable_refusal(id, other);
                return self.refuse_when_durable(slot, request_id, refusal);
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
            idempotency,
            await_end: None,
        };
        self.handle_start(slot, request_id, start);
    }

    fn handle_purge(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        request_id: RequestId,
        run: Option<RunNumber>,
        idempotency: Option<RequestIdempotency>,
    ) {
        self.commits.reserve(8, 64 * 1024);
        let last = match &slot.state {
            SlotState::Row(row) => row.clone(),
            SlotState::Run(run) => Some(run.row.clone()),
            SlotState::Unreadable { row: Some(row), .. } => Some((**row).clone()),
            other => {
                let refusal = Self::unavailable_refusal(id, other);
                return self.refuse_when_durable(slot, request_id, refusal);
            }
        };
        let not_found = RequestError::NotFound { instance_id: id.clone() };
        let Some(row) = last.filter(|row| run.is_none_or(|run| run == row.run_number)) else {
            return self.refuse_when_durable(slot, request_id, not_found);
        };
        if row.status == RunStatus::Purged {
            if run.is_none() {
                // Only earlier runs can be left of the instance.
                self.purge_earlier_runs(id, row.run_id);
            }
            return self.refuse_when_durable(slot, request_id, not_found);
        }
        if !is_terminal(row.status) {
            let refused =
                RequestError::AlreadyRunning { instance_id: id.clone(), run_number: row.run_number };
            return self.refuse_when_durable(slot, request_id, refused);
        }
        if run.is_none() {
            self.purge_earlier_runs(id, row.run_id);
        }
        slot.state = SlotState::Row(Some(self.purge_run(id, row)));
        slot.written_batch = self.commits.batch_number();
        self.commits.on_commit(OnCommit::Evict(id.clone()));
        let reply = self.complete_request(IdempotentReply::Purged, idempotency);
        self.commits.on_commit(OnCommit::Effect(Effect::Reply(request_id, reply)));
    }

    fn handle_purge_earlier(
        &mut self,
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
                let refusal = Self::unavailable_refusal(id, other);
                return self.refuse_when_durable(slot, request_id, refusal);
            }
        };
        if current == Some(run_id) {
            return self.refuse_when_durable(
                slot,
                request_id,
                RequestError::NotFound { instance_id: id.clone() },
            );
        }
        self.commits.reserve(8, 64 * 1024);
        let instance_id = id.as_str().to_owned();
        let revision = self.next_revision();
        self.purge_earlier_run(&EndedRun { instance_id, run_id, run_number: Some(run), revision });
        self.commits.on_commit(OnCommit::Effect(Effect::Reply(request_id, ShardReply::Purged)));
    }

    /// Refuses because of a state that may be ahead of the store. The refusal waits until that state is durable, so
    /// that a crash cannot contradict it.
    pub(super) fn refuse_when_durable(
        &mut self,
        slot: &mut InstanceSlot,
        request_id: RequestId,
        refusal: RequestError,
    ) {
        self.defer_until_slot_durable(
            slot,
            OnCommit::Effect(Effect::Reply(request_id, ShardReply::Refused(refusal))),
        );
    }

    /// Forgets clients that no longer wait for their reply.
    pub(super) fn on_clients_gone(&mut self, gone: &[RequestId]) {
        self.end_waiters.retain(|_, request_ids| {
            request_ids.retain(|request_id| !gone.contains(request_id));
            !request_ids.is_empty()
        });
    }
}
