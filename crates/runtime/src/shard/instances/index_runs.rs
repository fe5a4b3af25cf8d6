//! Tells the public index about runs: their states, and their last state when they are replaced.
//!
//! It turns a run, or what is known of one, into a change in the unit of work; the index decides what is written, and
//! when, after the commit of the unit.

use abide_ids::RunId;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::{InstanceRow, RunStatus};
use abide_workflow::{InstanceId, Outcome, Status};

use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::public_index::index_change::MarkerId;
use crate::shard::public_index::row::{error_text, status_text};
use crate::shard::public_index::{PublicIndex, changes};
use crate::shard::retention::expiry_rows;
use crate::shard::run::run_state::ResidentRun;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::WorkItem;

/// Puts the state of the run into the public index.
pub(in crate::shard) fn index_run(work: &mut UnitOfWork<'_>, run: &ResidentRun) {
    let id = &run.instance.origin().instance_id;
    changes::change_state(work, id, &run.row, status_text(run.row.status), run_error(run));
}

/// As [`index_run`], for a run that is parked, or terminated without being read: only its row is known.
pub(in crate::shard) fn index_row(work: &mut UnitOfWork<'_>, id: &InstanceId, row: &InstanceRow) {
    changes::change_state(work, id, row, status_text(row.status), None);
}

/// Puts the last state of a run that is replaced into the public index.
pub(in crate::shard) fn index_final_state(work: &mut UnitOfWork<'_>, run: &ResidentRun) {
    let status = match run.instance.status() {
        Status::ContinuedAsNew => "ContinuedAsNew",
        _ => status_text(run.row.status),
    };
    let id = &run.instance.origin().instance_id;
    changes::replace_state(work, id, &run.row, status, run_error(run));
}

/// As [`index_final_state`], for the run in the slot, which the caller is about to replace. A run that is not in memory
/// is left out if its last state is in the public index already.
pub(in crate::shard) fn index_replaced_run(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &InstanceSlot,
) {
    let row = match &slot.state {
        SlotState::Run(run) => return index_final_state(work, run),
        SlotState::Row(Some(row)) => row,
        SlotState::Unreadable { row: Some(row), .. } => &**row,
        _ => return,
    };
    if row.status != RunStatus::Purged
        && let Some(error) = index.error_of_marked(row.run_id)
    {
        changes::replace_state(work, id, row, status_text(row.status), error);
    }
}

/// Queues the state of a run whose marker was recovered. `run_loaded` if the run was looked up, not only its row.
pub(in crate::shard) fn refresh_index(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    (run_id, revision): (RunId, u64),
    run_loaded: bool,
) {
    // Something else has queued a newer state since; another run may have the instance id by now.
    if !index.is_latest_revision(run_id, revision) {
        return;
    }
    let (row, error) = match &slot.state {
        SlotState::Row(Some(row)) => (row, None),
        SlotState::Run(run) => (&run.row, run_error(run)),
        SlotState::Unreadable { row: Some(row), .. } => (&**row, None),
        SlotState::Row(None) => return delete_marker(work, id, run_id),
        _ => return,
    };
    if row.run_id != run_id {
        return delete_marker(work, id, run_id);
    }
    // The failure is in the run, not in the instance row.
    if row.status == RunStatus::Failed && matches!(slot.state, SlotState::Row(_)) && !run_loaded {
        slot.queue.push_front(WorkItem::RefreshIndex { run_id, revision, needs_run: true });
        return;
    }
    changes::refresh_state(work, id, row, status_text(row.status), error);
}

/// Deletes the marker of a run that is not the current one. A run that is replaced gets another marker, so there should
/// be none. The expiry that would have followed its public row is written now, so that its rows are deleted one day.
fn delete_marker(work: &mut UnitOfWork<'_>, id: &InstanceId, run_id: RunId) {
    work.add(Step::ForgetMarker(run_id));
    work.delete(MarkerId::of_run(run_id).row_key());
    let ended = EndedRun::unnumbered(id.as_str().to_owned(), run_id);
    expiry_rows::retain_runs(work, work.ctx.now.wall, vec![ended]);
}

/// The error of a failed run, as JSON.
fn run_error(run: &ResidentRun) -> Option<String> {
    match run.instance.outcome()? {
        Outcome::Failed(failure) => {
            Some(error_text(&failure.code, &failure.message, failure.state.as_deref()))
        }
        _ => None,
    }
}
