//! Ends the life of ended runs: by time (retention), or on request (purge).
//!
//! A run is purged in one commit: from then on its run number does not lead to it, and its public row is about to be
//! removed. Its other rows are left to [`gc`], and so are the earlier runs of a purged instance, which follow slice by
//! slice. The instance row stays as a tombstone for a time, so that a new run does not get the number of the purged
//! one.

pub(super) mod expiry_rows;
pub(super) mod gc;
pub(super) mod retention_review;

use abide_ids::RunId;
use abide_store::rows::{Key, Row};
use abide_store::tables::expiries::{EndedRun, ExpiryTarget};
use abide_store::tables::instances::{self, InstanceRow, RunStatus};
use abide_store::tables::{earlier_runs, encode};
use abide_workflow::InstanceId;

use crate::run::run_status::is_terminal;
use crate::shard::commit::commit_queue::OnCommit;
use crate::shard::instances::instance_slot::{InstanceSlot, SlotState};
use crate::shard::public_index::{PublicIndex, changes};
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// The expiry of a run is due: purges the run, unless it has changed since; or deletes its tombstone. Either way the
/// garbage collector learns that this run of the expiry row is handled.
pub(super) fn expire_run(
    work: &mut UnitOfWork<'_>,
    index: &PublicIndex,
    id: &InstanceId,
    slot: &mut InstanceSlot,
    ended: &EndedRun,
    expiry: &Key,
) {
    let run = ended.run_id;
    let row = match &slot.state {
        SlotState::Row(row) => row.clone(),
        SlotState::Run(run) => Some(run.row.clone()),
        SlotState::Unreadable { row: Some(row), .. } => Some((**row).clone()),
        // The owner of these rows is unknown now: try again after another retention period.
        _ => {
            expiry_rows::retain_runs(work, work.ctx.now.wall, vec![ended.clone()]);
            return work.add(Step::ExpiryHandled(expiry.clone()));
        }
    };
    match row {
        // A run that changed later has a later expiry: a tombstone, or a rewound run that is live.
        Some(row) if row.run_id == run && row.status == RunStatus::Purged => {
            if row.updated_at.plus(work.ctx.config.idempotency_window) <= work.ctx.now.wall {
                work.delete(instances::key(id.as_str()));
                // Again, because a write of a previous owner may have come after the first deletion. From now on
                // the run number may be used again.
                remove_public_row(work, ended);
                slot.state = SlotState::Row(None);
                work.note_newest_rows();
                work.on_commit(OnCommit::Evict(id.clone()));
            }
        }
        Some(row) if row.run_id == run && !is_terminal(row.status) => {}
        Some(row) if row.run_id == run => {
            let until = row.updated_at.plus(work.ctx.config.retention);
            if until <= work.ctx.now.wall {
                slot.state = SlotState::Row(Some(purge_run(work, id, row)));
                work.note_newest_rows();
                work.on_commit(OnCommit::Evict(id.clone()));
            } else {
                // It was rewound and has ended again, or the clock was ahead when it ended.
                expiry_rows::retain_runs(work, row.updated_at, vec![ended.clone()]);
            }
        }
        // It was replaced. If its last state is not in the public index yet, that write brings another expiry.
        _ if index.has_pending_state(run) => {}
        _ => {
            remove_public_row(work, ended);
            match ended.run_number {
                // Its number is unknown. The retention of all runs before it has ended, too.
                None => purge_earlier_runs(work, id, run.next()),
                Some(number) => work.delete(earlier_runs::key(&ended.instance_id, number, run)),
            }
            expiry_rows::schedule_run_gc(work, run);
        }
    }
    work.add(Step::ExpiryHandled(expiry.clone()));
}

/// Purges the ended last run of an instance, on request or by its expiry. Returns the tombstone, which keeps the run
/// number for a time, so that a new run is not mistaken for this one; the caller puts it into the slot.
pub(super) fn purge_run(work: &mut UnitOfWork<'_>, id: &InstanceId, mut row: InstanceRow) -> InstanceRow {
    let ended = EndedRun {
        instance_id: id.as_str().to_owned(),
        run_id: row.run_id,
        run_number: Some(row.run_number),
        revision: work.ctx.next_revision(),
    };
    remove_public_row(work, &ended);
    expiry_rows::schedule_run_gc(work, row.run_id);
    row.status = RunStatus::Purged;
    row.updated_at = work.ctx.now.wall;
    work.put(instances::key(id.as_str()), encode(&row));
    expiry_rows::write_tombstone_expiry(
        work,
        work.ctx.now.wall.plus(work.ctx.config.idempotency_window),
        vec![ended],
    );
    row
}

/// Schedules the purge of all earlier runs of an instance with lower run ids than this.
pub(super) fn purge_earlier_runs(work: &mut UnitOfWork<'_>, id: &InstanceId, before: RunId) {
    // A run that starts later may get the number of one of them, and needs a higher revision.
    let revision = work.ctx.next_revision();
    expiry_rows::schedule_gc(
        work,
        ExpiryTarget::EarlierRuns { instance_id: id.as_str().to_owned(), before_run_id: before, revision },
    );
}

/// Purges the earlier run of a row that the garbage collector has scanned, if its run id is lower than this.
pub(super) fn purge_earlier_row(work: &mut UnitOfWork<'_>, row: &Row, before: RunId, revision: u64) {
    let Ok((instance_id, run_number, run)) = earlier_runs::read_key(&row.key) else { return };
    if run < before {
        purge_earlier_run(
            work,
            &EndedRun { instance_id, run_id: run, run_number: Some(run_number), revision },
        );
    }
}

/// Purges a run that another run of its instance has replaced, on request or after [`purge_earlier_runs`].
pub(super) fn purge_earlier_run(work: &mut UnitOfWork<'_>, earlier: &EndedRun) {
    let EndedRun { instance_id, run_id: run, run_number, .. } = earlier;
    if let Some(run_number) = run_number {
        work.delete(earlier_runs::key(instance_id, *run_number, *run));
    }
    remove_public_row(work, earlier);
    expiry_rows::schedule_run_gc(work, *run);
}

/// Removes a run from the public index, some time after the commit.
fn remove_public_row(work: &mut UnitOfWork<'_>, ended: &EndedRun) {
    changes::remove_from_index(work, ended.run_id, ended.public_key(), ended.revision);
}
