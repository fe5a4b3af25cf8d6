//! Repeats calls: the further attempts that a run asks for after a failure, and calls that are taken up: an attempt is
//! due, was orphaned by the previous owner, or is missing.
//!
//! It sees to it that the next attempt is made in time, and decides neither whether there is one nor when it may be
//! made: the turn of the run does. [`calls`] records and sends the attempt.

use abide_dispatch::call_journal::UnsettledCall;
use abide_store::tables::calls::{AttemptEnd, NotBefore};
use abide_workflow::{CommandId, Timestamp};

use crate::event::{AttemptId, OperatorEvent};
use crate::shard::calls;
use crate::shard::calls::attempts_in_flight::AttemptsInFlight;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::schedule::DueKey;
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// The failure reason of a call whose last attempt was orphaned.
const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// Carries out the command of a turn that asks for another attempt, not before this time: sends it now, or schedules it
/// once its row is durable.
pub(in crate::shard) fn retry_call(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    command: CommandId,
    not_before: Timestamp,
) {
    let run_id = run.row.run_id;
    let Some(call) = run.calls.get_mut(&command) else { return };
    call.record_attempt_end(work.ctx.now.wall);
    call.in_flight = false;
    call.has_result = false;
    if not_before <= work.ctx.now.wall {
        return calls::send_attempt(work, run, command);
    }
    call.not_before = Some(NotBefore::At(not_before));
    calls::write_call(work, run, command);
    let due = DueKey::of_attempt(not_before, run_id, command);
    let id = run.instance.origin().instance_id.clone();
    work.on_commit(OnCommit::Schedule(due, id));
}

/// An attempt is due, or was in flight when the last owner stopped, or reconciliation found the call without one.
/// Called between turns. A call that is in progress by now, or has ended, is left alone.
pub(in crate::shard) fn take_up_call(
    work: &mut UnitOfWork<'_>,
    attempts: &AttemptsInFlight,
    run: &mut ResidentRun,
    command: CommandId,
) {
    let (run_id, token, now) = (run.row.run_id, work.ctx.fencing_token(), work.ctx.now.wall);
    let id = run.instance.origin().instance_id.clone();
    let Some(call) = run.calls.get_mut(&command) else { return };
    let called = AttemptId { instance_id: id.clone(), run_id, command, attempt: call.attempt() };
    if call.in_flight || call.has_result || attempts.contains(&called) {
        return;
    }
    // The call failed; the run holds the failure and will decide.
    if run.instance.held_call_failure(command).is_some() {
        return;
    }
    match (&call.journal, call.not_before) {
        (UnsettledCall::Pending(_), _) => {}
        (UnsettledCall::FailedRetryable(_), Some(NotBefore::At(not_before))) if not_before > now => {
            return work.add(Step::Schedule(DueKey::of_attempt(not_before, run_id, command), id));
        }
        (UnsettledCall::FailedRetryable(_), _) => {}
        (UnsettledCall::Sent(sent), _) if !sent.is_orphan(token, now) => return,
        // It may have been sent, and its result is lost.
        (UnsettledCall::Sent(sent), _) => {
            let failed = sent.clone().mark_orphaned();
            call.record_unreported(failed, AttemptEnd::Orphaned, OUTCOME_UNKNOWN, now);
            work.notify_on_commit(OperatorEvent::CallRecovered);
        }
    }
    calls::send_attempt(work, run, command);
    work.note_newest_rows();
}
