//! Cancels calls: deletes the row of a call whose result is no longer wanted, and stops its attempt in flight.
//!
//! The activity may have run all the same. It does not undo that: compensation is a matter of the workflow.

use abide_ids::RunId;
use abide_store::tables::calls;
use abide_workflow::CommandId;

use super::commit_queue::OnCommit;
use super::run_state::ResidentRun;
use super::{Shard, call_record};
use crate::event::{AttemptId, Effect};

impl Shard {
    /// The run no longer waits for the call.
    pub(super) fn cancel_call(&mut self, run: &mut ResidentRun, command: CommandId) {
        let Some(call) = run.calls.remove(&command) else { return };
        self.commits.delete(calls::key(run.row.run_id, &call.idempotency_key));
        // Also an attempt that was sent before the run was evicted and loaded again.
        let instance_id = run.instance.origin().instance_id.clone();
        let id = AttemptId { instance_id, run_id: run.row.run_id, command, attempt: call.row.attempt };
        if self.attempts_in_flight.remove(&id).is_some() {
            self.commits.on_commit(OnCommit::Effect(Effect::CancelAttempt(id)));
        }
        let ended = call_record::state_of(&call.row).cancel(self.now.wall);
        run.settled_calls.push(call_record::settle_failed(call.idempotency_key, call.row, None, &ended));
    }

    /// Stops all attempts in flight of a run that cannot be read.
    pub(super) fn cancel_calls_of_run(&mut self, run: RunId) {
        let out: Vec<AttemptId> =
            self.attempts_in_flight.keys().filter(|call| call.run_id == run).cloned().collect();
        for call in out {
            self.attempts_in_flight.remove(&call);
            self.commits.on_commit(OnCommit::Effect(Effect::CancelAttempt(call)));
        }
    }
}
