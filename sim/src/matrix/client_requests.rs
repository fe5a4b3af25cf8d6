//! Connects a process with its activities and its client.

use std::sync::Arc;

use abide_dispatch::CallAttempt;
use abide_ids::{Digest, KeyDigest};
use abide_runtime::event::AttemptId;
use abide_runtime::{Event, RequestId, RequestIdempotency, ShardReply, ShardRequest, StartRequest};

use super::client::{NextRequest, ReplyOutcome, records_message};
use super::process::{CaseProcess, INSTANCE, ProcessEvent, START_US, STORE_US};

/// How long a client waits before a retry, in microseconds.
const RETRY_DELAY_US: u64 = 5;

impl CaseProcess<'_> {
    /// An attempt reaches its activity; its result is scheduled.
    pub(super) fn deliver_call(&mut self, shard: usize, id: AttemptId, call: &CallAttempt) {
        // The first attempt needs no lookup in the store.
        let results_applied = match id.attempt {
            0 => 0,
            _ => self.case_store.results_applied(self.case_store.shard(shard), id.run_id, id.command),
        };
        if id.attempt > 0 && self.open_calls_at_crash.is_empty() {
            let unanswered = self.case_store.unanswered_attempts(&call.metadata.idempotency_key);
            if unanswered > 0 {
                self.violations
                    .push(format!("{} has {unanswered} unanswered attempts without a crash", call.activity));
            }
        }
        match self.activities.on_attempt(call, self.time.now_us(), results_applied) {
            Ok(scripted) => {
                let key = call.metadata.idempotency_key.clone();
                let at_us = scripted.at_us.max(self.time.now_us() + STORE_US);
                self.schedule_at(at_us, ProcessEvent::CallResult(shard, id, key, scripted.result));
            }
            Err(reason) => self.violations.push(reason),
        }
    }

    /// How often the histories record the message of the client's next request.
    pub(super) fn count_wanted_in_history(&self) -> usize {
        match self.client.next_request() {
            Some((_, NextRequest::Message(message))) => {
                self.case_store.count_events(|event| records_message(event, &message))
            }
            _ => 0,
        }
    }

    pub(super) fn schedule_client_request(&mut self) {
        if let Some((after, _)) = self.client.next_request() {
            self.schedule_at(START_US + after.0 * 1_000, ProcessEvent::ClientRequest);
        }
    }

    /// Sends the client's next request.
    pub(super) fn send_client_request(&mut self) {
        let Some((_, next_request)) = self.client.next_request() else { return };
        let seen_before = self.count_wanted_in_history();
        let request_id = self.client.begin_request(seen_before);
        let instance_id = self.id.clone();
        let request = match next_request {
            NextRequest::Start => ShardRequest::Start(Box::new(StartRequest {
                instance_id,
                plan: Arc::clone(&self.case_store.plan),
                input: Arc::new(self.case.input.clone()),
                event: None,
                correlation_id: INSTANCE.to_owned(),
                entity_id: None,
                entity_type: None,
                idempotency: Some(RequestIdempotency::new(KeyDigest(Digest([7; 32])), Digest([1; 32]))),
                await_end: None,
            })),
            NextRequest::Message(message) => ShardRequest::SendMessage { instance_id, message },
        };
        let shard = self.case_store.shards.shard_of_instance(&self.id).number() as usize;
        self.deliver_event(shard, Event::RequestReceived(request_id, request));
    }

    pub(super) fn on_client_reply(&mut self, request_id: RequestId, reply: &ShardReply) {
        match self.client.on_reply(request_id, reply) {
            ReplyOutcome::Done => self.schedule_client_request(),
            ReplyOutcome::Retry => self.schedule_in(RETRY_DELAY_US, ProcessEvent::ClientRequest),
            ReplyOutcome::Unexpected => {
                self.violations.push(format!("the client got a reply without a request: {reply:?}"))
            }
        }
    }
}
