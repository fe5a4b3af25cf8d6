//! Recovers the markers that a previous owner left: writes the present state of their runs to the public index again.
//!
//! The public table is not read: a repeated write of the same state does no harm.

use abide_store::public::PublicWrite;
use abide_store::tables::dead_letters;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::public_instances;
use abide_workflow::InstanceId;

use super::PublicIndex;
use super::changes::add_marked;
use super::marker::IndexMarker;
use crate::run_message;
use crate::shard::public_index::index_change::{IndexWrite, MarkerId};
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::WorkItem;

impl PublicIndex {
    /// Takes over a marker that was found in the outbox. Returns the work item that finds out the present state of its
    /// run, if the marker does not have it.
    pub(in crate::shard) fn recover(
        &mut self,
        work: &mut UnitOfWork<'_>,
        marker: MarkerId,
        message: &[u8],
    ) -> Result<Option<(InstanceId, WorkItem)>, String> {
        let revision = work.ctx.next_revision();
        let item = match run_message::decode(message).map_err(|error| error.to_string())? {
            IndexMarker::Current(id) => {
                let id = InstanceId::new(id).map_err(|error| error.to_string())?;
                self.note_recovered(marker, revision);
                let item = WorkItem::RefreshIndex { run_id: marker.run_id(), revision, needs_run: false };
                return Ok(Some((id, item)));
            }
            IndexMarker::Replaced(row, instance_id) => {
                let run_number = public_instances::read_run_number(&row.key);
                let run_id = marker.run_id();
                let ended = Some(EndedRun { instance_id, run_id, run_number, revision: row.revision });
                IndexWrite::of_run(PublicWrite::Put(row), revision, ended)
            }
            IndexMarker::Purged(key) => {
                IndexWrite::of_run(PublicWrite::Delete { key, revision }, revision, None)
            }
            IndexMarker::DeadLetter(row) => {
                let write = PublicWrite::Put(row);
                IndexWrite { table: &dead_letters::SCHEMA, write, revision, ended: None }
            }
        };
        add_marked(work, marker, item);
        Ok(None)
    }
}
