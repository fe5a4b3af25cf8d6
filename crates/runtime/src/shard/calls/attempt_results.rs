//! Processes the results of attempts: from the event that reports one to the commit that settles its call.
//!
//! The outcome is noted in the open call; the turn of the run decides whether there is another attempt, and writes or
//! deletes the row. This file starts no attempt.

use abide_dispatch::AttemptResult;
use abide_dispatch::call_journal::{AttemptOutcome, FinalFailureKind, UnsettledCall};
use abide_dispatch::status::RETRY_AFTER_MS_MAX;
use abide_dispatch::transport::DEADLINE_EXCEEDED;
use abide_store::tables::calls::{self as call_rows, AttemptEnd, NotBefore};
use abide_workflow::failure::code;
use abide_workflow::{CommandId, Duration, Failure, Message, NoRetryReason};

use crate::event::AttemptId;
use crate::shard::calls;
use crate::shard::calls::dead_letters;
use crate::shard::calls::hold_report::HoldReport;
use crate::shard::context::Context;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::{MessageSource, QueuedMessage, WorkItem};

/// The work item for a finished attempt: the activity responded, the attempt failed, or it could not be sent and its
/// call is held back. The root queues it for the run.
pub(in crate::shard) fn finished_item(ctx: &Context, call: &AttemptId, result: AttemptResult) -> WorkItem {
    let AttemptId { run_id, command, attempt, .. } = *call;
    if let AttemptResult::Failed(failure) = &result
        && let Some(report) = HoldReport::of_failure(call, failure)
    {
        return WorkItem::HoldCall(Box::new(report));
    }
    let (message, status, outcome) = match result {
        AttemptResult::Completed(result) => {
            (Message::ActivityCompleted { command, result }, None, AttemptOutcome::Responded)
        }
        AttemptResult::Failed(failure) => {
            let outcome = AttemptOutcome::of_failure(&failure);
            let retryable = failure.retryable;
            let run_failure =
                Failure { code: failure.code, message: failure.message, state: None, retryable };
            let wait = failure.retry_after_ms.filter(|_| retryable).map(|ms| ms.min(RETRY_AFTER_MS_MAX));
            (failure_message(ctx, (command, attempt), run_failure, wait, outcome), failure.status, outcome)
        }
    };
    let source = MessageSource::Call { command, status, outcome: Some(outcome) };
    WorkItem::Message { run_id, envelope: QueuedMessage { message, source } }
}

/// The message for the run about a failure. It is a deferral if the activity asked for a delay, or if nothing was sent,
/// which uses up no attempt. The delay starts now, however long the message waits for a turn.
fn failure_message(
    ctx: &Context,
    (command, attempt): (CommandId, u32),
    failure: Failure,
    wait_ms: Option<u64>,
    outcome: AttemptOutcome,
) -> Message {
    let sent = outcome != AttemptOutcome::NotSent;
    if sent && wait_ms.is_none() {
        return Message::ActivityFailed { command, attempt, failure };
    }
    let not_before = ctx.now.wall.plus(Duration(wait_ms.unwrap_or(0)));
    Message::ActivityDeferred { command, attempt, failure, not_before, possibly_sent: sent }
}

/// The failure reason of a call whose last attempt was withdrawn. Stored.
const WITHDRAWN: &str = "the server went down before it was sent";

/// Records that the driver of a draining shard withdrew an attempt before it was sent. That is no failure, so the run
/// does not learn of it. The next owner makes the attempt under the same number.
pub(in crate::shard) fn withdraw_attempt(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    attempt: u32,
) {
    let Some(call) = run.calls.get_mut(&command) else { return };
    if call.hold.is_some() && call.attempt() == attempt {
        // Its row says already that it was not sent.
        call.in_flight = false;
        call.not_before = Some(NotBefore::Anytime);
        return;
    }
    let UnsettledCall::Sent(sent) = call.journal.clone() else { return };
    if call.has_result || sent.record.attempt != attempt {
        return;
    }
    call.in_flight = false;
    call.record_unreported(sent.withdraw(), AttemptEnd::NotSent, WITHDRAWN, work.ctx.now.wall);
    call.not_before = Some(NotBefore::Anytime);
    calls::write_call(work, run, command);
    work.mark_urgent();
    work.note_newest_rows();
}

/// Notes the result in the open call, in memory, before the run queues the message; the turn that consumes it writes or
/// deletes the row. An attempt that ran into the deadline of the step ends the step, so the failure in the message is
/// replaced. Messages of other sources pass unchanged.
pub(in crate::shard) fn record_result(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    envelope: &mut QueuedMessage,
) {
    let MessageSource::Call { command, status, outcome } = &mut envelope.source else { return };
    let Some(call) = run.calls.get_mut(command) else { return };
    if let Some(outcome) = *outcome {
        call.record_outcome(outcome);
        call.has_response = status.is_some();
    }
    call.in_flight = false;
    call.has_result = true;
    if let Message::ActivityFailed { failure, .. } | Message::ActivityDeferred { failure, .. } =
        &mut envelope.message
    {
        let now = work.ctx.now.wall;
        let deadline_passed = call.journal.record().deadline_at.is_some_and(|deadline| deadline <= now);
        let ran_out = match failure.code.as_str() {
            code::ATTEMPT_TIMEOUT => deadline_passed,
            // The sender compares the deadline with a monotonic clock, so its word counts even if the wall clock
            // has jumped.
            DEADLINE_EXCEEDED => deadline_passed || *outcome == Some(AttemptOutcome::NotSent),
            _ => false,
        };
        if ran_out {
            *failure = call.missed_deadline_failure();
            call.record_attempt_end(now);
            call.final_failure = Some(call.journal.clone().expire(now));
        }
        call.record_failure(failure, status.take(), work.ctx.now.wall);
    }
    call.note_unanswered(&mut envelope.message);
    // The row of a held call says that it is due, also while it is being tried, and the run may have been loaded since.
    if call.hold.take().is_some() {
        call.not_before = None;
    }
}

/// After the commands of a turn, for each call whose result it consumed or whose failure it held: settles the call,
/// unless the run asked for another attempt or holds the failure for later. A settled call loses its row, goes on the
/// history page of the turn, and is dead-lettered if it failed.
pub(in crate::shard) fn settle_call(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    completed: bool,
    no_retry: Option<NoRetryReason>,
) {
    let held = !completed && run.instance.awaits_command(command);
    let run_id = run.row.run_id;
    let Some(call) = run.calls.get_mut(&command) else { return };
    if call.in_flight || call.not_before.is_some() {
        return;
    }
    if held {
        run.held_calls.push(command);
        // A call that was never sent keeps its row as it is; recovery then asks the run.
        let was_sent = !matches!(call.journal, UnsettledCall::Pending(_));
        if !std::mem::replace(&mut call.is_held, true) && was_sent {
            call.record_attempt_end(work.ctx.now.wall);
            calls::write_call(work, run, command);
        }
        return;
    }
    let Some(mut call) = run.calls.remove(&command) else { return };
    work.delete(call_rows::key(run_id, &call.idempotency_key));
    let now = work.ctx.now.wall;
    if completed {
        return run.settled_calls.push(call.settle_acked(now));
    }
    let ended = match (call.final_failure.take(), no_retry) {
        (Some(ended), _) => ended,
        (None, Some(NoRetryReason::DeadlineReached)) => {
            call.record_attempt_end(now);
            call.journal.clone().expire(now)
        }
        (None, Some(NoRetryReason::AttemptsExhausted)) => {
            call.journal.clone().fail_final(FinalFailureKind::RetryExhausted, now)
        }
        (None, Some(NoRetryReason::NotRetryable) | None) => {
            call.journal.clone().fail_final(FinalFailureKind::NonRetryable, now)
        }
    };
    dead_letters::dead_letter_call(work, run, &call, &ended);
    run.settled_calls.push(call.settle_failed(&ended));
}
