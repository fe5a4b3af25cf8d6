//! Cancels calls: deletes the row of a call whose result is no longer wanted, and stops its attempt in flight.
//!
//! The activity may have run all the same. It does not undo that: compensation is a matter of the workflow.

use abide_store::tables::calls;
use abide_workflow::CommandId;

use crate::event::AttemptId;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// Carries out the command of a turn that no longer waits for the call. The call goes on the history page as cancelled,
/// and is no dead letter.
pub(in crate::shard) fn cancel_call(work: &mut UnitOfWork<'_>, run: &mut ResidentRun, command: CommandId) {
    let Some(call) = run.calls.remove(&command) else { return };
    work.delete(calls::key(run.row.run_id, &call.idempotency_key));
    // Also an attempt that was sent before the run was evicted and loaded again.
    let instance_id = run.instance.origin().instance_id.clone();
    let id = AttemptId { instance_id, run_id: run.row.run_id, command, attempt: call.attempt() };
    work.add(Step::CancelAttempt(id));
    let ended = call.journal.clone().cancel(work.ctx.now.wall);
    run.settled_calls.push(call.settle_failed(&ended));
}
