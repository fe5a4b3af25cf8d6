//! Keeps the public index up to date: the table of runs that clients list and count, written after the shard's own
//! rows.
//!
//! ```text
//!  run changes ──> commit: rows + marker ──> pending ──> public write ──> commit: delete the marker (+ expiry)
//! ```
//!
//! A marker per changed run is durable before its public row is written, so no change is lost. A state that is
//! superseded before it is written is skipped, so short runs are written once. An ended run gets its expiry in the
//! commit that deletes its marker. A revision is a sequence number of the shard, and durable before it is used. The
//! next owner's are higher, so a late write of this owner cannot hide a newer state. Reading the table is not done
//! here.

pub(super) mod changes;
pub(super) mod index_change;
mod marker;
mod recovery;
pub(super) mod row;
pub(super) mod unindexed;

use std::collections::{BTreeMap, HashMap};

use abide_ids::RunId;
use abide_store::public::PublicWrite;

use crate::event::Effect;
use crate::lease::Monotonic;
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::{CommitQueue, OnCommit};
use crate::shard::context::Context;
use crate::shard::public_index::index_change::{IndexChange, IndexWrite, MarkerId, MarkerNeeded};
use crate::shard::retention::expiry_rows;
use crate::shard::unit_of_work::UnitOfWork;

/// The public rows that are not written yet.
#[derive(Debug, Default)]
pub(super) struct PublicIndex {
    pending: BTreeMap<MarkerId, IndexWrite>,
    pending_since: Option<Monotonic>,
    in_flight: BTreeMap<MarkerId, IndexWrite>,
    retry: Option<(Monotonic, u32)>,
    linger: std::time::Duration,
    /// Runs with a marker, and the latest state of each.
    latest: HashMap<MarkerId, LatestState>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct LatestState {
    revision: u64,
    /// The last revision that this owner has written since there is a marker.
    written_revision: Option<u64>,
    /// The row is to be removed.
    removed: bool,
    /// The failure of the run, which the instance row does not have.
    error: Option<String>,
}

/// The most rows written at once.
const INDEX_WRITES_MAX: usize = 256;

impl PublicIndex {
    /// Queues a write whose marker is durable now. It replaces a pending write of an older state.
    pub(super) fn enqueue(&mut self, marker: MarkerId, item: IndexWrite, now: Monotonic) {
        self.pending.insert(marker, item);
        self.pending_since.get_or_insert(now);
    }

    /// When pending rows are to be written; none while a write is in flight.
    pub(super) fn wake(&self) -> Option<Monotonic> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let since = self.pending_since.filter(|_| !self.pending.is_empty())?;
        let due = later(since, self.linger);
        Some(self.retry.map_or(due, |(at, _)| at.max(due)))
    }

    /// Returns whether the run has a state that may not be in the public index yet.
    pub(super) fn has_pending_state(&self, run_id: RunId) -> bool {
        self.latest.get(&MarkerId::of_run(run_id)).is_some_and(|latest| !latest.removed)
    }

    fn is_latest(&self, marker: MarkerId, item: &IndexWrite) -> bool {
        self.latest.get(&marker).is_some_and(|latest| latest.revision == item.revision)
    }

    /// Makes a change of a unit that is merged: writes its marker, if it needs one, and queues the write for when the
    /// batch is durable, and with it the shard's sequence, which covers the revision.
    pub(super) fn apply(&mut self, change: IndexChange, commits: &mut CommitQueue) {
        let IndexChange { marker, marker_row, marker_needed, item } = change;
        let latest = self.latest.get(&marker);
        match marker_needed {
            MarkerNeeded::Always => commits.put(marker.row_key(), marker_row),
            MarkerNeeded::UnlessPresent if latest.is_some() => {}
            MarkerNeeded::UnlessPresent => commits.put(marker.row_key(), marker_row),
            // Two expiries of one run may be due at about the same time; the one with the higher revision covers both.
            MarkerNeeded::UnlessRemoved
                if latest.is_some_and(|latest| latest.removed && latest.revision >= item.revision) =>
            {
                return;
            }
            MarkerNeeded::UnlessRemoved => commits.put(marker.row_key(), marker_row),
            MarkerNeeded::Never => {}
        }
        let (removed, error) = match &item.write {
            PublicWrite::Put(row) => (false, row.text("Error").map(str::to_owned)),
            PublicWrite::Delete { .. } => (true, None),
        };
        let written_revision = latest.and_then(|latest| latest.written_revision);
        self.latest.insert(marker, LatestState { revision: item.revision, written_revision, removed, error });
        commits.on_commit(OnCommit::PublishToIndex(marker, Box::new(item)));
    }

    /// The failure in the latest state of a run with a marker; none if there is no marker.
    pub(super) fn error_of_marked(&self, run_id: RunId) -> Option<Option<String>> {
        self.latest.get(&MarkerId::of_run(run_id)).map(|latest| latest.error.clone())
    }

    /// Returns whether this is still the latest revision of the run.
    pub(super) fn is_latest_revision(&self, run_id: RunId, revision: u64) -> bool {
        self.latest.get(&MarkerId::of_run(run_id)).is_some_and(|latest| latest.revision == revision)
    }

    /// Notes the marker of a run whose present state is not known yet.
    fn note_recovered(&mut self, marker: MarkerId, revision: u64) {
        self.latest
            .insert(marker, LatestState { revision, written_revision: None, removed: false, error: None });
    }

    /// The marker of a run is deleted: there is nothing to write for it.
    pub(super) fn forget_marker(&mut self, run_id: RunId) {
        self.latest.remove(&MarkerId::of_run(run_id));
    }

    /// Writes the latest states, once they have waited long enough for newer ones. Called at every flush of an owner.
    pub(super) fn drive(&mut self, ctx: &mut Context) {
        self.linger = ctx.config.public_index_delay;
        if self.wake().is_none_or(|at| at > ctx.now.mono) {
            return;
        }
        let at_once = INDEX_WRITES_MAX.min(ctx.config.store_limits.commit_rows_max / 4);
        // One table at a time.
        let Some(table) = self.pending.first_key_value().map(|(_, item)| item.table) else {
            return;
        };
        let some = self.pending.extract_if(.., |_, item| item.table.tag == table.tag);
        self.in_flight.extend(some.take(at_once));
        if self.pending.is_empty() {
            self.pending_since = None;
        }
        let writes = self.in_flight.values().map(|item| item.write.clone()).collect();
        ctx.effects.push(Effect::WritePublicIndex(table, writes));
    }

    /// The public rows are written, or not: then they are written again. Deletes the markers of the states that are
    /// still the latest, and starts the retention of the ended runs among them.
    pub(super) fn on_written(&mut self, work: &mut UnitOfWork<'_>, result: &Result<(), String>) {
        let written = std::mem::take(&mut self.in_flight);
        if result.is_err() {
            let tries = self.retry.map_or(1, |(_, tries)| tries + 1);
            self.retry = Some((later(work.ctx.now.mono, backoff(tries)), tries));
            for (marker, item) in written {
                self.pending.entry(marker).or_insert(item);
            }
            self.pending_since.get_or_insert(work.ctx.now.mono);
            return;
        }
        self.retry = None;
        let mut ended = Vec::new();
        for (marker, item) in written {
            if self.is_latest(marker, &item) {
                self.latest.remove(&marker);
                work.delete(marker.row_key());
                ended.extend(item.ended);
            } else if let Some(latest) = self.latest.get_mut(&marker) {
                latest.written_revision = Some(item.revision);
            }
        }
        if !ended.is_empty() {
            expiry_rows::retain_runs(work, work.ctx.now.wall, ended);
        }
    }
}
