//! Runs the turns of runs, in rounds, so that one busy run does not delay the others; and replies to those who wait for
//! an end.
//!
//! What a turn does is in [`turn`]. A turn that no commit can hold is dropped as a whole.

use abide_workflow::InstanceId;

use crate::event::Effect;
use crate::fault_check::fault_injected;
use crate::request::ShardReply;
use crate::shard::instances::instance_slot::InstanceSlot;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::{FilledUnit, Step, UnitOfWork};
use crate::shard::{Shard, turn};

/// Turns of one run before other runs get theirs.
const TURNS_PER_ROUND: usize = 8;
/// Runs that may continue as new in a row without consuming a message. A run that spins is parked.
const EMPTY_CONTINUATIONS_MAX: u32 = 16;

/// A run that cannot take its turn, and why. The unit has what happens all the same.
#[derive(Debug)]
pub(in crate::shard) struct Unrunnable {
    pub(in crate::shard) reason: String,
    pub(in crate::shard) unit: FilledUnit,
}

impl Shard {
    /// Runs the turns that were put off, as long as not too many batches wait.
    pub(in crate::shard) fn run_ready_turns(&mut self) {
        self.process_posted();
        let mut rounds = self.instances.ready_runs.len();
        while rounds > 0 && self.ctx.commits.has_capacity() {
            rounds -= 1;
            let Some(id) = self.instances.ready_runs.pop_front() else { return };
            if let Some(run) = self.instances.slots.get_mut(&id).and_then(InstanceSlot::run_mut) {
                run.in_ready_queue = false;
            }
            self.process_instance(&id);
            self.process_posted();
        }
    }

    /// Runs turns until the run needs none; or until others must come first, and then queues it in `ready_runs`.
    pub(in crate::shard) fn run_turns(
        &mut self,
        id: &InstanceId,
        run: &mut ResidentRun,
    ) -> Result<(), Unrunnable> {
        for _ in 0..TURNS_PER_ROUND {
            if !run.needs_turn() {
                return Ok(());
            }
            if self.ctx.careful.is_active() && !self.may_take_turn(id, run) {
                return Ok(());
            }
            if !self.ctx.commits.has_capacity() {
                break;
            }
            self.run_turn(run)?;
            run.is_proven = true;
        }
        if run.needs_turn() {
            self.queue_ready_run(id, run);
        }
        Ok(())
    }

    /// Queues a run that must let others come first.
    pub(in crate::shard) fn queue_ready_run(&mut self, id: &InstanceId, run: &mut ResidentRun) {
        if run.ends_next() {
            // It may be in the queue already, far behind; it then finds nothing to do there.
            run.in_ready_queue = true;
            self.instances.ready_runs.push_front(id.clone());
        } else {
            self.queue_ready_run_last(id, run);
        }
    }

    /// Queues a run that must let all others come first.
    pub(in crate::shard) fn queue_ready_run_last(&mut self, id: &InstanceId, run: &mut ResidentRun) {
        if !run.in_ready_queue {
            run.in_ready_queue = true;
            self.instances.ready_runs.push_back(id.clone());
        }
    }

    /// Runs one turn and merges its unit of work. A turn that no commit can hold is dropped as a whole.
    fn run_turn(&mut self, run: &mut ResidentRun) -> Result<(), Unrunnable> {
        let mut work = UnitOfWork::new(&mut self.ctx);
        let undo = match turn::run_turn(&mut work, run) {
            Ok(undo) => undo,
            Err(reason) => return Err(Unrunnable { reason, unit: FilledUnit::default() }),
        };
        let mut unit = work.finish();
        if !unit.fits_in_commit(self.ctx.config.store_limits) {
            let (rows, bytes) = (unit.rows(), unit.bytes());
            let reason = format!(
                "the turn needs {rows} rows and {bytes} bytes, more than one commit of this store can hold"
            );
            let dropped = unit.cut_back(undo.mark);
            if fault_injected!(self.ctx, DroppedTurnLeaks) {
                let leaks = |step: &Step| matches!(step, Step::SendMessage { .. } | Step::QueueMessage(..));
                dropped.into_iter().filter(leaks).for_each(|step| unit.add(step));
            }
            undo.restore(run);
            return Err(Unrunnable { reason, unit });
        }
        let written = unit.has_newest_rows;
        let batch = self.merge(unit);
        if written {
            run.written_batch = batch;
        }
        if run.empty_continuations > EMPTY_CONTINUATIONS_MAX {
            let reason = format!(
                "continued as new {EMPTY_CONTINUATIONS_MAX} times in a row without consuming a message"
            );
            return Err(Unrunnable { reason, unit: FilledUnit::default() });
        }
        Ok(())
    }

    /// Replies to the clients that wait for the end of the run, once the end is durable.
    pub(in crate::shard) fn reply_to_end_waiters(&mut self, run: &ResidentRun) {
        if self.end_waiters.is_empty() || !run.has_ended() {
            return;
        }
        let waiters = self.end_waiters.take(&run.instance.origin().instance_id);
        if waiters.is_empty() {
            return;
        }
        let view = run.view();
        for request_id in waiters {
            let reply = Effect::Reply(request_id, ShardReply::Ended(Box::new(view.clone())));
            self.ctx.send_when_durable(run.written_batch, reply);
        }
    }
}
