//! Processes the results of attempts: from the event that reports one to the commit that settles its call.
//!
//! The outcome is recorded in the call's row; the turn of the run decides whether there is another attempt. This file
//! starts no attempt.

use abide_dispatch::AttemptResult;
use abide_dispatch::call_journal::{FinalFailureKind, UnsettledCall};
use abide_dispatch::status::RETRY_AFTER_MS_MAX;
use abide_dispatch::transport::DEADLINE_EXCEEDED;
use abide_store::tables::calls::{self, AttemptEnd, CallRowState, NotBefore};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Duration, Failure, Message, NoRetryReason};

use super::instance_slot::{MessageSource, QueuedMessage, WorkItem};
use super::run_state::{AttemptOutcome, OpenCall, ResidentRun};
use super::{Shard, call_record, fault_injected};
use crate::event::AttemptId;

impl Shard {
    /// An attempt ended: the activity responded, or the attempt failed.
    pub(super) fn on_attempt_finished(&mut self, call: AttemptId, result: AttemptResult) {
        self.attempts_in_flight.remove(&call);
        let AttemptId { instance_id, run_id: run, command, attempt } = call;
        let (message, status, outcome) = match result {
            AttemptResult::Completed(result) => {
                (Message::ActivityCompleted { command, result }, None, AttemptOutcome::Responded)
            }
            AttemptResult::Failed(failure) => {
                let outcome = AttemptOutcome::of_failure(&failure);
                let retryable = failure.retryable || fault_injected!(self, PermanentFailureRetried);
                let run_failure =
                    Failure { code: failure.code, message: failure.message, state: None, retryable };
                let wait = failure.retry_after_ms.filter(|_| retryable).map(|ms| ms.min(RETRY_AFTER_MS_MAX));
                (self.failure_message(command, attempt, run_failure, wait, outcome), failure.status, outcome)
            }
        };
        let envelope = QueuedMessage {
            message,
            source: MessageSource::Call { command, status, outcome: Some(outcome) },
        };
        self.enqueue(&instance_id, WorkItem::Message { run_id: run, envelope });
    }

    /// An attempt was withdrawn before it was sent. That is no failure, so the run does not learn of it. The next owner
    /// makes the attempt under the same number.
    pub(super) fn on_attempt_withdrawn(&mut self, call: AttemptId) {
        self.attempts_in_flight.remove(&call);
        let AttemptId { instance_id, run_id: run, command, attempt } = call;
        self.enqueue(&instance_id, WorkItem::WithdrawAttempt { run_id: run, command, attempt });
    }

    pub(super) fn withdraw_attempt(&mut self, run: &mut ResidentRun, command: CommandId, attempt: u32) {
        let run_id = run.row.run_id;
        let Some(call) = run.calls.get_mut(&command) else { return };
        let UnsettledCall::Sent(sent) = call_record::state_of(&call.row) else { return };
        if call.has_result || sent.record.attempt != attempt {
            return;
        }
        call.in_flight = false;
        call_record::record_failed(&mut call.row, sent.withdraw(), AttemptEnd::NotSent, self.now.wall);
        call.row.not_before = Some(NotBefore::Anytime);
        if fault_injected!(self, WithdrawnAttemptLost) {
            return self.commits.delete(calls::key(run_id, &call.idempotency_key));
        }
        self.commits.reserve(2, call.input_bytes + 1024);
        self.write_call(run_id, call);
        self.commits.mark_urgent();
        run.written_batch = self.commits.batch_number();
    }

    /// The message for the run about a failure. A delay that the activity asked for starts now, however long the
    /// message waits for a turn.
    fn failure_message(
        &self,
        command: CommandId,
        attempt: u32,
        failure: Failure,
        wait_ms: Option<u64>,
        outcome: AttemptOutcome,
    ) -> Message {
        let sent = outcome != AttemptOutcome::NotSent;
        if sent && wait_ms.is_none() {
            return Message::ActivityFailed { command, attempt, failure };
        }
        let not_before = self.now.wall.plus(Duration(wait_ms.unwrap_or(0)));
        Message::ActivityDeferred { command, attempt, failure, not_before, possibly_sent: sent }
    }

    /// Records the result in the row of its call. An attempt that ran into the deadline of the step ends the step, not
    /// only the attempt.
    pub(super) fn record_result(&mut self, run: &mut ResidentRun, envelope: &mut QueuedMessage) {
        let MessageSource::Call { command, status, outcome } = &mut envelope.source else { return };
        let Some(call) = run.calls.get_mut(command) else { return };
        if let Some(outcome) = *outcome {
            call_record::record_outcome(&mut call.row, outcome);
            call.last_outcome = Some(outcome);
        }
        call.in_flight = false;
        call.has_result = true;
        if let Message::ActivityFailed { failure, .. } | Message::ActivityDeferred { failure, .. } =
            &mut envelope.message
        {
            let now = self.now.wall;
            let deadline_passed = call.row.deadline_at.is_some_and(|deadline| deadline <= now);
            let ran_out = match failure.code.as_str() {
                code::ATTEMPT_TIMEOUT => deadline_passed,
                // The sender compares the deadline with a monotonic clock, so its word counts even if the wall clock
                // has jumped.
                DEADLINE_EXCEEDED => deadline_passed || *outcome == Some(AttemptOutcome::NotSent),
                _ => false,
            };
            if ran_out {
                *failure = OpenCall::deadline_failure();
                call_record::record_attempt_end(&mut call.row, call.last_outcome, now);
                call.final_failure = Some(call_record::state_of(&call.row).expire(now));
            }
            call.record_failure(failure, status.take(), self.now.wall);
        }
    }

    /// After the turn that consumed a result: settles the call, unless the run asked for another attempt or holds the
    /// failure for later.
    pub(super) fn settle_call(
        &mut self,
        run: &mut ResidentRun,
        command: CommandId,
        completed: bool,
        no_retry: Option<NoRetryReason>,
    ) {
        let held = !completed && run.instance.awaits_command(command);
        let run_id = run.row.run_id;
        let Some(call) = run.calls.get_mut(&command) else { return };
        if call.in_flight || call.row.not_before.is_some() {
            return;
        }
        if held {
            run.held_calls.push(command);
            // A call that was never sent keeps its row as it is; recovery then asks the run.
            if !std::mem::replace(&mut call.is_held, true) && call.row.state != CallRowState::Pending {
                call_record::record_attempt_end(&mut call.row, call.last_outcome, self.now.wall);
                self.write_call(run_id, call);
            }
            return;
        }
        let Some(mut call) = run.calls.remove(&command) else { return };
        self.commits.delete(calls::key(run_id, &call.idempotency_key));
        let now = self.now.wall;
        if completed {
            return run.settled_calls.push(call_record::settle_acked(call.idempotency_key, call.row, now));
        }
        let ended = match (call.final_failure, no_retry) {
            (Some(ended), _) => ended,
            (None, Some(NoRetryReason::DeadlineReached)) => {
                call_record::record_attempt_end(&mut call.row, call.last_outcome, now);
                call_record::state_of(&call.row).expire(now)
            }
            (None, Some(NoRetryReason::AttemptsExhausted)) => {
                call_record::state_of(&call.row).fail_final(FinalFailureKind::RetryExhausted, now)
            }
            (None, Some(NoRetryReason::NotRetryable) | None) => {
                call_record::state_of(&call.row).fail_final(FinalFailureKind::NonRetryable, now)
            }
        };
        self.dead_letter_call(run, &call.idempotency_key, &call.row, &call.input, &ended);
        run.settled_calls.push(call_record::settle_failed(
            call.idempotency_key,
            call.row,
            call.last_outcome,
            &ended,
        ));
    }
}
