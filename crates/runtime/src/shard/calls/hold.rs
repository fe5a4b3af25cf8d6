//! Holds calls back whose attempt could not be sent: an outage, a rate or a concurrency limit uses up neither an
//! attempt nor a failure.
//!
//! ```text
//!               not sent, and why                    the driver could send it now
//!  Sent ──────────────────────────────► held back ──────────────────────────────► Sent, durable ──► it is sent
//!                                        │     ▲
//!                                        └─────┘ tried again, with no row written
//! ```
//! The row is written when a call becomes held and when the reason changes, so an outage writes rows in proportion to
//! the calls that it meets, however long it lasts. While a call is held its row says that nothing was sent; before
//! anything is, the driver asks, and the row says so first. A try is made like any other attempt, by [`calls`]. Nothing
//! here decides what becomes of a call at its deadline: the journal and the run do. It knows no transport.

use abide_dispatch::call_journal::{AttemptOutcome, UnsettledCall};
use abide_ids::{Duration, RunId, Timestamp};
use abide_store::tables::calls::{CallHold, NotBefore};
use abide_workflow::{CommandId, Failure, Message, is_named_non_retryable};

use crate::event::{AttemptId, Effect, SendTicket};
use crate::run::held_back::stored_hold_reason;
use crate::shard::calls;
use crate::shard::calls::attempt_results;
use crate::shard::calls::hold_report::HoldReport;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::schedule::DueKey;
use crate::shard::timers::stuck;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::{MessageSource, QueuedMessage};

/// The pause before a held call is tried again, in milliseconds: at least this, and at most twice as much again, so
/// that calls held together are not tried together, and the first is sent soon after its target is back.
const PAUSE_MS: u64 = 500;
const PAUSE_JITTER_MS: u64 = 1_000;

/// Holds a call back, unless the retry policy of its step names the error. A report about an attempt that is outdated
/// by now is ignored.
pub(in crate::shard) fn hold_call(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, report: HoldReport) {
    let HoldReport { run_id, command, attempt, .. } = report;
    let now = work.ctx.now.wall;
    let Some(call) = run.calls.get(&command) else { return };
    if call.has_result || call.attempt() != attempt {
        return;
    }
    if is_named_non_retryable(&run.plan, &run.instance, command, &report.code) {
        return fail_instead(work, run, report);
    }
    let Some(call) = run.calls.get_mut(&command) else { return };
    match &call.journal {
        UnsettledCall::Sent(sent) => call.journal = UnsettledCall::FailedRetryable(sent.clone().withdraw()),
        UnsettledCall::FailedRetryable(_) if call.hold.is_some() => {}
        UnsettledCall::Pending(_) | UnsettledCall::FailedRetryable(_) => return,
    }
    let record = *call.journal.record();
    let reason = stored_hold_reason(report.reason);
    let until = now.plus(report.retry_in.or(report.wait).unwrap_or_else(|| pause(run_id, command, now)));
    let until = record.deadline_at.map_or(until, |deadline| deadline.min(until));
    let before = call.hold;
    let since = before.map_or(record.sent_at.min(now), |hold| hold.since);
    call.hold = Some(CallHold { reason, since, until });
    let failure = Failure::retryable(&report.code, report.message);
    if report.retry_in.is_none() {
        call.in_flight = false;
        call.not_before = Some(NotBefore::At(until));
        let id = run.instance.origin().instance_id.clone();
        work.add(Step::Schedule(DueKey::of_attempt(until, run_id, command), id));
    }
    work.add(Step::NoteHold(run_id, command, report.reason));
    if before.is_some_and(|hold| hold.reason == reason) {
        return;
    }
    call.record_failure(&failure, None, now);
    calls::write_call(work, run, command);
    work.mark_urgent();
    work.note_newest_rows();
    if before.is_none() {
        stuck::watch_slow_run(work, run);
    }
}

/// Hands the error to the run, whose retry policy names it.
fn fail_instead(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, report: HoldReport) {
    let HoldReport { run_id, command, attempt, .. } = report;
    let instance_id = run.instance.origin().instance_id.clone();
    work.add(Step::ForgetHold(run_id, command));
    work.add(Step::CancelAttempt(AttemptId { instance_id, run_id, command, attempt }));
    let failure = Failure::retryable(&report.code, report.message);
    let not_before = work.ctx.now.wall;
    let message = Message::ActivityDeferred { command, attempt, failure, not_before, possibly_sent: false };
    let source = MessageSource::Call { command, status: None, outcome: Some(AttemptOutcome::NotSent) };
    let mut envelope = QueuedMessage { message, source };
    attempt_results::record_result(work, run, &mut envelope);
    run.push_message(envelope);
}

/// The driver could send a held call now: records that it may have been sent, and then lets it go. A draining shard
/// does, too: the attempt is in progress.
pub(in crate::shard) fn confirm_send(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    (attempt, ticket): (u32, SendTicket),
) {
    let Some(fencing_token) = work.ctx.fencing_token() else { return };
    let (run_id, now) = (run.row.run_id, work.ctx.now.wall);
    let instance_id = run.instance.origin().instance_id.clone();
    let Some(call) = run.calls.get_mut(&command) else { return };
    if call.has_result || call.attempt() != attempt {
        return;
    }
    let was_held = call.hold.is_some();
    if was_held {
        work.add(Step::ForgetHold(run_id, command));
        match call.journal.clone().send(fencing_token, now) {
            Ok(sent) => call.record_sent(sent),
            Err(ended) => {
                call.in_flight = false;
                work.add(Step::CancelAttempt(AttemptId { instance_id, run_id, command, attempt }));
                return calls::fail_permanently(work, run, command, ended);
            }
        }
        calls::write_call(work, run, command);
        work.note_newest_rows();
    }
    let Some(call) = run.calls.get(&command) else { return };
    if let UnsettledCall::Sent(sent) = &call.journal {
        let origin = run.instance.origin();
        let (id, attempt) = calls::attempt_of(run_id, origin, call, &sent.record, now);
        work.on_commit(OnCommit::Effect(Effect::AllowSend(id, ticket, Box::new(attempt))));
    }
}

/// The pause before the next try. It differs from call to call and from try to try.
fn pause(run_id: RunId, command: CommandId, now: Timestamp) -> Duration {
    let seed = run_id.0.wrapping_mul(31).wrapping_add(command.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let seed = (seed ^ now.0.cast_unsigned()).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    Duration(PAUSE_MS + (seed >> 32) % (PAUSE_JITTER_MS + 1))
}
