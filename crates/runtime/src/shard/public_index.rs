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

mod recovery;
mod row;
mod unindexed;

use std::collections::{BTreeMap, HashMap};

use abide_ids::{RunId, Sequence};
use abide_store::public::{PublicKey, PublicRow, PublicWrite, TableSchema};
use abide_store::rows::Key;
use abide_store::tables::dead_letters::{self, DeadLetterRow};
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::{InstanceRow, RunStatus};
use abide_store::tables::outbox::{self, OutboxRow, PUBLIC_INDEX_TARGET};
use abide_store::tables::{encode, public_instances};
use abide_workflow::{InstanceId, Status};
use serde::{Deserialize, Serialize};

use super::commit_queue::OnCommit;
use super::instance_slot::{InstanceSlot, SlotState, is_terminal};
use super::run_state::ResidentRun;
use super::{Shard, backoff, fault_injected, later};
use crate::event::Effect;
use crate::lease::Monotonic;
use crate::run_message;
use row::{public_instance, run_error, status_text};

pub(crate) use unindexed::UnindexedRuns;

/// The content of a marker. Stored by position: append only.
#[derive(Serialize, Deserialize)]
enum IndexMarker {
    /// The current run of an instance: the instance row has its state.
    Current(String),
    /// A run that was replaced: this was its last state.
    Replaced(PublicRow, String),
    Purged(PublicKey),
    /// A call or an event was dead-lettered.
    DeadLetter(PublicRow),
}

/// Identifies a marker among the outbox rows: by the id of its run, or by a sequence number for a dead letter. The
/// shard counts both with one sequence, so they never collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct MarkerId(Sequence);

impl MarkerId {
    pub(super) fn of_run(run_id: RunId) -> Self {
        Self(Sequence(run_id.0))
    }

    pub(super) fn of_dead_letter(number: Sequence) -> Self {
        Self(number)
    }

    /// The marker with this number in the key of its row.
    pub(super) fn from_row(number: Sequence) -> Self {
        Self(number)
    }

    /// The run that the marker is for, if its content says that it is for one.
    fn run_id(self) -> RunId {
        RunId(self.0.0)
    }

    fn row_key(self) -> Key {
        outbox::key(PUBLIC_INDEX_TARGET, self.0)
    }
}

/// A write to a public table.
#[derive(Clone, Debug)]
pub(super) struct IndexWrite {
    table: &'static TableSchema,
    write: PublicWrite,
    revision: u64,
    /// The run, if this is its last state. Its retention starts when the row is written.
    ended: Option<EndedRun>,
}

impl IndexWrite {
    fn of_run(write: PublicWrite, revision: u64, ended: Option<EndedRun>) -> Self {
        Self { table: &public_instances::SCHEMA, write, revision, ended }
    }
}

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
    pub(super) fn enqueue(&mut self, marker: MarkerId, item: IndexWrite, now: Monotonic) {
        self.pending.insert(marker, item);
        self.pending_since.get_or_insert(now);
    }

    pub(super) fn wake(&self) -> Option<Monotonic> {
        if !self.in_flight.is_empty() {
            return None;
        }
        let since = self.pending_since.filter(|_| !self.pending.is_empty())?;
        let due = later(since, self.linger);
        Some(self.retry.map_or(due, |(at, _)| at.max(due)))
    }

    fn has_marker(&self, run_id: RunId) -> bool {
        self.latest.contains_key(&MarkerId::of_run(run_id))
    }

    /// Returns whether the run has a state that may not be in the public index yet.
    pub(super) fn has_pending_state(&self, run_id: RunId) -> bool {
        self.latest.get(&MarkerId::of_run(run_id)).is_some_and(|latest| !latest.removed)
    }

    fn is_latest(&self, marker: MarkerId, item: &IndexWrite) -> bool {
        self.latest.get(&marker).is_some_and(|latest| latest.revision == item.revision)
    }
}

impl Shard {
    /// Puts the state of the run into the public index.
    pub(super) fn index_run(&mut self, run: &ResidentRun) {
        let id = run.instance.origin().instance_id.clone();
        self.mark_and_index(&id, &run.row, status_text(run.row.status), run_error(run));
    }

    /// As [`Self::index_run`], for a run of which only the row is known.
    pub(super) fn index_row(&mut self, id: &InstanceId, row: &InstanceRow) {
        self.mark_and_index(id, row, status_text(row.status), None);
    }

    fn mark_and_index(&mut self, id: &InstanceId, row: &InstanceRow, status: &str, error: Option<String>) {
        if !self.public_index.has_marker(row.run_id) {
            self.write_index_marker(
                MarkerId::of_run(row.run_id),
                &IndexMarker::Current(id.as_str().to_owned()),
            );
        }
        self.enqueue_state(id, row, status, error);
    }

    /// Puts the last state of a run that is replaced into the public index. The marker has the state, because the
    /// instance row will be the next run's.
    pub(super) fn index_final_state(&mut self, run: &ResidentRun) {
        let id = run.instance.origin().instance_id.clone();
        let status = match run.instance.status() {
            Status::ContinuedAsNew => "ContinuedAsNew",
            _ => status_text(run.row.status),
        };
        let public = self.enqueue_state(&id, &run.row, status, run_error(run));
        self.write_index_marker(
            MarkerId::of_run(run.row.run_id),
            &IndexMarker::Replaced(public, id.as_str().to_owned()),
        );
    }

    /// As [`Self::index_final_state`], for the run in the slot, if its public row is not written yet.
    pub(super) fn index_replaced_run(&mut self, id: &InstanceId, slot: &InstanceSlot) {
        let row = match &slot.state {
            SlotState::Run(run) => return self.index_final_state(run),
            SlotState::Row(Some(row)) => row.clone(),
            SlotState::Unreadable { row: Some(row), .. } => (**row).clone(),
            _ => return,
        };
        if row.status == RunStatus::Purged || !self.public_index.has_marker(row.run_id) {
            return;
        }
        let error = self
            .public_index
            .latest
            .get(&MarkerId::of_run(row.run_id))
            .and_then(|latest| latest.error.clone());
        let public = self.enqueue_state(id, &row, status_text(row.status), error);
        self.write_index_marker(
            MarkerId::of_run(row.run_id),
            &IndexMarker::Replaced(public, id.as_str().to_owned()),
        );
    }

    /// Removes a run from the public index, in this revision and all older ones.
    pub(super) fn remove_from_index(&mut self, run_id: RunId, key: PublicKey, revision: u64) {
        let marker = MarkerId::of_run(run_id);
        // Two expiries of one run may be due at about the same time; the one with the higher revision covers both.
        if self
            .public_index
            .latest
            .get(&marker)
            .is_some_and(|latest| latest.removed && latest.revision >= revision)
        {
            return;
        }
        self.write_index_marker(marker, &IndexMarker::Purged(key.clone()));
        let item = IndexWrite::of_run(PublicWrite::Delete { key, revision }, revision, None);
        self.enqueue_index_write(marker, item);
    }

    /// Puts a dead letter into its public table. Its marker has a sequence number that is no run id.
    pub(super) fn index_dead_letter(&mut self, number: Sequence, dead_letter: &DeadLetterRow) {
        let marker = MarkerId::of_dead_letter(number);
        let row = dead_letter.to_public_row(1);
        self.write_index_marker(marker, &IndexMarker::DeadLetter(row.clone()));
        let write = PublicWrite::Put(row);
        let revision = self.next_revision();
        self.enqueue_index_write(
            marker,
            IndexWrite { table: &dead_letters::SCHEMA, write, revision, ended: None },
        );
    }

    fn write_index_marker(&mut self, marker: MarkerId, content: &IndexMarker) {
        let row = OutboxRow { created_at: self.now.wall, message: run_message::encode(content) };
        self.commits.put(marker.row_key(), encode(&row));
    }

    /// Queues a state of a run under a new revision.
    fn enqueue_state(
        &mut self,
        id: &InstanceId,
        row: &InstanceRow,
        status: &str,
        error: Option<String>,
    ) -> PublicRow {
        let revision = self.next_revision();
        let public = public_instance(id, row, status, error).to_public_row(revision);
        let ended = EndedRun {
            instance_id: id.as_str().to_owned(),
            run_id: row.run_id,
            run_number: Some(row.run_number),
            revision,
        };
        let ended = is_terminal(row.status).then_some(ended);
        self.enqueue_index_write(
            MarkerId::of_run(row.run_id),
            IndexWrite::of_run(PublicWrite::Put(public.clone()), revision, ended),
        );
        public
    }

    /// Queues a write for when the open batch is durable, and with it the shard's sequence, which covers the revision.
    fn enqueue_index_write(&mut self, marker: MarkerId, item: IndexWrite) {
        let (removed, error) = match &item.write {
            PublicWrite::Put(row) => (false, row.text("Error").map(str::to_owned)),
            PublicWrite::Delete { .. } => (true, None),
        };
        let written_revision =
            self.public_index.latest.get(&marker).and_then(|latest| latest.written_revision);
        self.public_index
            .latest
            .insert(marker, LatestState { revision: item.revision, written_revision, removed, error });
        self.commits.on_commit(OnCommit::PublishToIndex(marker, item));
    }

    /// Writes the latest states, once they have waited long enough for newer ones.
    pub(super) fn write_public_index(&mut self) {
        self.public_index.linger = self.config.public_index_delay;
        if self.public_index.wake().is_none_or(|at| at > self.now.mono) {
            return;
        }
        let at_once = INDEX_WRITES_MAX.min(self.config.store_limits.commit_rows_max / 4);
        // One table at a time.
        let Some(table) = self.public_index.pending.first_key_value().map(|(_, item)| item.table) else {
            return;
        };
        let some = self.public_index.pending.extract_if(.., |_, item| item.table.tag == table.tag);
        self.public_index.in_flight.extend(some.take(at_once));
        if self.public_index.pending.is_empty() {
            self.public_index.pending_since = None;
        }
        let writes = self.public_index.in_flight.values().map(|item| item.write.clone()).collect();
        self.effects.push(Effect::WritePublicIndex(table, writes));
    }

    pub(super) fn on_public_index_written(&mut self, result: &Result<(), String>) {
        let written = std::mem::take(&mut self.public_index.in_flight);
        if result.is_err() && !fault_injected!(self, PublicRowStale) {
            let tries = self.public_index.retry.map_or(1, |(_, tries)| tries + 1);
            self.public_index.retry = Some((later(self.now.mono, backoff(tries)), tries));
            for (marker, item) in written {
                self.public_index.pending.entry(marker).or_insert(item);
            }
            self.public_index.pending_since.get_or_insert(self.now.mono);
            return;
        }
        self.public_index.retry = None;
        self.commits.reserve(written.len() + 2, written.len() * 512);
        let mut ended = Vec::new();
        for (marker, item) in written {
            if self.public_index.is_latest(marker, &item) {
                self.public_index.latest.remove(&marker);
                self.commits.delete(marker.row_key());
                ended.extend(item.ended);
            } else if let Some(latest) = self.public_index.latest.get_mut(&marker) {
                latest.written_revision = Some(item.revision);
            }
        }
        if !ended.is_empty() {
            self.write_run_expiry(self.now.wall.plus(self.config.retention), ended);
        }
    }
}
