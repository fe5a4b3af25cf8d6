//! Executes the effects of a process's shards, and counts the crash points that it reaches.

use abide_runtime::{Effect, Event, OperatorEvent, SendTicket, StopReason};
use abide_testkit::shard_driver::execute_now;

use super::crash_points::MatrixCrashPoint;
use super::process::{CaseProcess, ProcessEvent, STORE_US};

impl CaseProcess<'_> {
    /// Begins an effect of a shard. Returns true if the process crashed.
    pub(super) fn begin_effect(&mut self, shard: usize, effect: Effect) -> bool {
        let point = match &effect {
            Effect::Commit(..) => Some(MatrixCrashPoint::BeforeCommit),
            Effect::SendMessages(..) => Some(MatrixCrashPoint::BeforeRunMessage),
            Effect::DeleteInbound(_) => Some(MatrixCrashPoint::BeforeInboundDelete),
            Effect::WritePublicIndex(..) => Some(MatrixCrashPoint::BeforePublicWrite),
            Effect::Reply(..) => Some(MatrixCrashPoint::BeforeReply),
            Effect::StartAttempt(..) | Effect::AllowSend(..) => Some(MatrixCrashPoint::BeforeCall),
            _ => None,
        };
        if point.is_some_and(|point| self.crash_at(point)) {
            return true;
        }
        match effect {
            Effect::Reply(request_id, reply) => self.on_client_reply(request_id, &reply),
            Effect::StartAttempt(id, call) | Effect::AllowSend(id, _, call) => {
                self.deliver_call(shard, id, &call);
            }
            Effect::TryHeldCall(id, _) => {
                let requested = Event::SendRequested(id, SendTicket(0));
                self.schedule_in(STORE_US, ProcessEvent::Deliver(shard, requested));
            }
            Effect::CancelAttempt(id) => self.cancel(&id),
            Effect::Notify(OperatorEvent::Parked { instance_id, reason }) => {
                self.violations.push(format!("{instance_id} was parked: {reason}"));
            }
            Effect::Notify(OperatorEvent::Unreadable { reason }) => self.violations.push(reason),
            Effect::Notify(_) => {}
            Effect::Stopped(why) => self.violations.push(match why {
                StopReason::Broken(reason) => format!("a shard broke: {reason}"),
                StopReason::Lost | StopReason::Drained => format!("a shard stopped: {why:?}"),
            }),
            other => self.schedule_in(STORE_US, ProcessEvent::Execute(shard, other)),
        }
        false
    }

    /// An effect reaches the store.
    pub(super) fn execute_effect(&mut self, shard: usize, effect: Effect) {
        let id = self.case_store.shard(shard);
        let outcome = match execute_now(&self.case_store.store_effects, id, effect) {
            Ok(outcome) => outcome,
            Err(effect) => return self.violations.push(format!("no executor for {effect:?}")),
        };
        match (&outcome.event, &outcome.committed) {
            (_, Some(batch)) => self.case_store.record_commit(id, batch),
            // There is no other writer, and nothing from an earlier incarnation is in flight.
            (Event::CommitFinished(_, outcome), None) => {
                self.violations.push(format!("a commit had the outcome {outcome:?}"));
            }
            _ => {}
        }
        let point = match &outcome.event {
            Event::CommitFinished(..) => Some(MatrixCrashPoint::AfterCommit),
            Event::MessagesSent(..) => Some(MatrixCrashPoint::AfterRunMessage),
            Event::InboundDeleted(_) => Some(MatrixCrashPoint::AfterInboundDelete),
            Event::PublicIndexWritten(_) => Some(MatrixCrashPoint::AfterPublicWrite),
            _ => None,
        };
        if point.is_some_and(|point| self.crash_at(point)) {
            return;
        }
        self.schedule_in(STORE_US, ProcessEvent::Deliver(shard, outcome.event));
        if let Some(target) = outcome.messages_to {
            self.schedule_in(STORE_US, ProcessEvent::Deliver(target.number() as usize, Event::InboundHinted));
        }
    }
}
