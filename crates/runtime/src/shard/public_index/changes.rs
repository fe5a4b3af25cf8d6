//! The changes that units of work make to the public index: a state of a run, its removal, or a dead letter.
//!
//! A state takes its revision when the change is made; a removal gets that of its purge. Whether a marker is needed is
//! decided when the unit is merged. Runs are not known here, only their rows.

use abide_ids::{RunId, Sequence};
use abide_store::public::{PublicKey, PublicRow, PublicWrite};
use abide_store::tables::dead_letters::{self, DeadLetterRow};
use abide_store::tables::encode;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::InstanceRow;
use abide_store::tables::outbox::OutboxRow;
use abide_workflow::InstanceId;

use super::marker::IndexMarker;
use super::row::public_instance;
use crate::run::run_status::is_terminal;
use crate::run_message;
use crate::shard::public_index::index_change::{IndexChange, IndexWrite, MarkerId, MarkerNeeded};
use crate::shard::unit_of_work::{Step, UnitOfWork};

/// Puts a state of the current run of an instance into the public index.
pub(in crate::shard) fn change_state(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    row: &InstanceRow,
    status: &str,
    error: Option<String>,
) {
    let (_, item) = state_write(work, id, row, status, error);
    let content = IndexMarker::Current(id.as_str().to_owned());
    add(work, MarkerId::of_run(row.run_id), &content, MarkerNeeded::UnlessPresent, item);
}

/// Puts the last state of a run that is replaced into the public index. The marker has the state, because the instance
/// row will be the next run's.
pub(in crate::shard) fn replace_state(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    row: &InstanceRow,
    status: &str,
    error: Option<String>,
) {
    let (public, item) = state_write(work, id, row, status, error);
    let content = IndexMarker::Replaced(public, id.as_str().to_owned());
    add(work, MarkerId::of_run(row.run_id), &content, MarkerNeeded::Always, item);
}

/// Removes a run from the public index, in this revision and all older ones.
pub(in crate::shard) fn remove_from_index(
    work: &mut UnitOfWork<'_>,
    run_id: RunId,
    key: PublicKey,
    revision: u64,
) {
    let content = IndexMarker::Purged(key.clone());
    let item = IndexWrite::of_run(PublicWrite::Delete { key, revision }, revision, None);
    add(work, MarkerId::of_run(run_id), &content, MarkerNeeded::UnlessRemoved, item);
}

/// Puts a dead letter into its public table. Its marker has a sequence number that is no run id.
pub(in crate::shard) fn index_dead_letter(
    work: &mut UnitOfWork<'_>,
    number: Sequence,
    dead_letter: &DeadLetterRow,
) {
    let row = dead_letter.to_public_row(1);
    let content = IndexMarker::DeadLetter(row.clone());
    let revision = work.ctx.next_revision();
    let write = PublicWrite::Put(row);
    let item = IndexWrite { table: &dead_letters::SCHEMA, write, revision, ended: None };
    add(work, MarkerId::of_dead_letter(number), &content, MarkerNeeded::Always, item);
}

/// Adds a change to the unit, with the row of its marker, which counts as written although the merge may leave it out.
fn add(
    work: &mut UnitOfWork<'_>,
    marker: MarkerId,
    content: &IndexMarker,
    marker_needed: MarkerNeeded,
    item: IndexWrite,
) {
    let row = OutboxRow { created_at: work.ctx.now.wall, message: run_message::encode(content) };
    let marker_row = encode(&row);
    work.count_row(&marker.row_key(), marker_row.len());
    work.add(Step::Index(Box::new(IndexChange { marker, marker_row, marker_needed, item })));
}

/// As [`change_state`], for a run whose marker was recovered.
pub(in crate::shard) fn refresh_state(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    row: &InstanceRow,
    status: &str,
    error: Option<String>,
) {
    let (_, item) = state_write(work, id, row, status, error);
    add_marked(work, MarkerId::of_run(row.run_id), item);
}

/// Queues a write whose marker is in the store already.
pub(super) fn add_marked(work: &mut UnitOfWork<'_>, marker: MarkerId, item: IndexWrite) {
    let (marker_row, marker_needed) = (Vec::new(), MarkerNeeded::Never);
    work.add(Step::Index(Box::new(IndexChange { marker, marker_row, marker_needed, item })));
}

/// A state of a run under a new revision.
fn state_write(
    work: &mut UnitOfWork<'_>,
    id: &InstanceId,
    row: &InstanceRow,
    status: &str,
    error: Option<String>,
) -> (PublicRow, IndexWrite) {
    let revision = work.ctx.next_revision();
    let public = public_instance(id, row, status, error).to_public_row(revision);
    let ended = EndedRun {
        instance_id: id.as_str().to_owned(),
        run_id: row.run_id,
        run_number: Some(row.run_number),
        revision,
    };
    let ended = is_terminal(row.status).then_some(ended);
    let item = IndexWrite::of_run(PublicWrite::Put(public.clone()), revision, ended);
    (public, item)
}
