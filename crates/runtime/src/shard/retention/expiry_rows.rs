//! Writes expiry rows: what is to be deleted, and when.
//!
//! It deletes nothing: [`gc`](crate::shard::retention::gc) does, when the time has come.

use abide_ids::{RunId, Timestamp};
use abide_store::tables::encode;
use abide_store::tables::expiries::{self, EndedRun, ExpiryRow, ExpiryTarget};

use crate::shard::unit_of_work::{Step, UnitOfWork};

/// Keeps ended runs for the retention, which began at this time.
pub(in crate::shard) fn retain_runs(work: &mut UnitOfWork<'_>, since: Timestamp, runs: Vec<EndedRun>) {
    let sequence = work.ctx.next_sequence();
    let until = since.plus(work.ctx.config.retention);
    let expiry = ExpiryRow { target: ExpiryTarget::RetainedRuns { since, runs } };
    work.create(expiries::key(until, sequence), encode(&expiry));
}

/// Writes the expiry row of a tombstone, which is kept until this time.
pub(in crate::shard) fn write_tombstone_expiry(
    work: &mut UnitOfWork<'_>,
    at: Timestamp,
    ended: Vec<EndedRun>,
) {
    let sequence = work.ctx.next_sequence();
    let expiry = ExpiryRow { target: ExpiryTarget::EndedRuns(ended) };
    work.create(expiries::key(at, sequence), encode(&expiry));
}

/// Schedules the deletion of the rows of a run.
pub(in crate::shard) fn schedule_run_gc(work: &mut UnitOfWork<'_>, run: RunId) {
    schedule_gc(work, ExpiryTarget::Run(run));
}

/// Schedules a deletion that is due at once, whatever the clock of the next owner says.
pub(in crate::shard) fn schedule_gc(work: &mut UnitOfWork<'_>, target: ExpiryTarget) {
    let sequence = work.ctx.next_sequence();
    let expiry = ExpiryRow { target };
    work.create(expiries::key(expiries::DUE_AT_ONCE, sequence), encode(&expiry));
    work.add(Step::CollectGarbage);
}
