//! Continue-as-new: the commit that ends a run also creates the next run of the instance.
//!
//! Messages of clients move to the next run. Results and timers name commands of the run that ended and are dropped
//! with it. The interpreter decides when a run continues as new.

use abide_ids::PageNumber;
use abide_store::tables::inbox;
use abide_store::tables::instances::RunStatus;
use abide_workflow::{Instance, PartChange, Turn};

use crate::fault_check::fault_injected;
use crate::shard::instances::{index_runs, start};
use crate::shard::run::run_rows;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::timers;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::{MessageSource, QueuedMessage};

/// The next run, if this turn continued as new.
pub(in crate::shard) fn take_next_run(work: &UnitOfWork<'_>, turn: &mut Turn) -> Option<Instance> {
    let next = *turn.next_run.take()?;
    if fault_injected!(work.ctx, EventLostAtContinue) {
        return Some(Instance::pending(next.origin().clone(), work.ctx.now.wall));
    }
    Some(next)
}

/// Replaces the run by the next one, in the batch that ends it. The turns of the next run follow as for any run.
/// Returns the run that ended, as it was.
pub(in crate::shard) fn continue_as_new(
    work: &mut UnitOfWork<'_>,
    run: &mut ResidentRun,
    next: Instance,
    parts: Vec<PartChange>,
) -> ResidentRun {
    index_runs::index_final_state(work, run);
    start::record_earlier_run(work, &run.instance.origin().instance_id, run.row.run_number, run.row.run_id);
    let run_id = work.ctx.next_run_id();
    let mut row = run.row.clone();
    row.run_id = run_id;
    row.run_number = next.origin().run;
    row.status = RunStatus::Pending;
    row.folded_page = PageNumber::ZERO;
    row.last_page = PageNumber::ZERO;
    row.created_at = work.ctx.now.wall;
    let mut next_run = ResidentRun::new(row, run.plan.clone(), next, run.written_batch);
    // Results name commands of the run that ended. Their rows are deleted with it, or here.
    for (message, source) in run.messages.iter().zip(&run.sources) {
        let moved = || QueuedMessage { message: message.clone(), source: source.clone() };
        match source {
            MessageSource::Client(..) | MessageSource::SessionEvent(..) => next_run.push_message(moved()),
            MessageSource::Call { .. } => {}
            MessageSource::Timer(timer) => timers::delete_timer(work, timer),
            // A parent that terminates its child means the current run.
            MessageSource::Inbox(_) if message.terminates() => {
                next_run.push_message(moved());
            }
            MessageSource::Inbox(sequence) => work.delete(inbox::key(*sequence)),
        }
    }
    if let Some(sequence) = run.continuation_row {
        work.delete(inbox::key(sequence));
    }
    next_run.in_ready_queue = run.in_ready_queue;
    next_run.idle_since = run.idle_since;
    next_run.empty_continuations = run.empty_continuations + 1;
    let ended = std::mem::replace(run, next_run);
    run_rows::write_initial_state(work, run, parts);
    ended
}
