//! Recovers the markers that a previous owner left: writes the present state of their runs to the public index again.
//!
//! The public table is not read: a repeated write of the same state does no harm.

use abide_ids::RunId;
use abide_store::public::PublicWrite;
use abide_store::tables::dead_letters;
use abide_store::tables::expiries::EndedRun;
use abide_store::tables::instances::RunStatus;
use abide_store::tables::public_instances;
use abide_workflow::InstanceId;

use super::row::{run_error, status_text};
use super::{IndexMarker, IndexWrite, LatestState, MarkerId};
use crate::run_message;
use crate::shard::Shard;
use crate::shard::instance_slot::{InstanceSlot, SlotState, WorkItem};

impl Shard {
    /// A marker was found in the outbox.
    pub(in crate::shard) fn recover_marker(
        &mut self,
        marker: MarkerId,
        message: &[u8],
    ) -> Result<(), String> {
        let revision = self.next_revision();
        match run_message::decode(message).map_err(|error| error.to_string())? {
            IndexMarker::Current(id) => {
                let id = InstanceId::new(id).map_err(|error| error.to_string())?;
                self.public_index.latest.insert(
                    marker,
                    LatestState { revision, written_revision: None, removed: false, error: None },
                );
                let item = WorkItem::RefreshIndex { run_id: marker.run_id(), revision, needs_run: false };
                self.schedule_recovered(self.now.wall, marker.0, id, item);
            }
            IndexMarker::Replaced(row, instance_id) => {
                let run_number = public_instances::read_run_number(&row.key);
                let ended = Some(EndedRun {
                    instance_id,
                    run_id: marker.run_id(),
                    run_number,
                    revision: row.revision,
                });
                self.enqueue_index_write(marker, IndexWrite::of_run(PublicWrite::Put(row), revision, ended));
            }
            IndexMarker::Purged(key) => {
                let item = IndexWrite::of_run(PublicWrite::Delete { key, revision }, revision, None);
                self.enqueue_index_write(marker, item);
            }
            IndexMarker::DeadLetter(row) => {
                let write = PublicWrite::Put(row);
                self.enqueue_index_write(
                    marker,
                    IndexWrite { table: &dead_letters::SCHEMA, write, revision, ended: None },
                );
            }
        }
        Ok(())
    }

    /// Queues the state of a run whose marker was found. `run_loaded` if the run was looked up, not only its row.
    pub(in crate::shard) fn refresh_index(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        (run, revision): (RunId, u64),
        run_loaded: bool,
    ) {
        // Something else has queued a newer state since; another run may have the instance id by now.
        if self
            .public_index
            .latest
            .get(&MarkerId::of_run(run))
            .is_none_or(|latest| latest.revision != revision)
        {
            return;
        }
        let (row, error) = match &slot.state {
            SlotState::Row(Some(row)) => (row.clone(), None),
            SlotState::Run(run) => (run.row.clone(), run_error(run)),
            SlotState::Unreadable { row: Some(row), .. } => ((**row).clone(), None),
            SlotState::Row(None) => return self.delete_marker(id, run),
            _ => return,
        };
        if row.run_id != run {
            return self.delete_marker(id, run);
        }
        // The failure is in the run, not in the instance row.
        if row.status == RunStatus::Failed && matches!(slot.state, SlotState::Row(_)) && !run_loaded {
            slot.queue.push_front(WorkItem::RefreshIndex { run_id: run, revision, needs_run: true });
            self.queued_items += 1;
            return;
        }
        self.enqueue_state(id, &row, status_text(row.status), error);
    }

    /// Deletes the marker of a run that is not the current one. A run that is replaced gets another marker, so there
    /// should be none.
    fn delete_marker(&mut self, id: &InstanceId, run: RunId) {
        let marker = MarkerId::of_run(run);
        self.public_index.latest.remove(&marker);
        self.commits.delete(marker.row_key());
        let ended = EndedRun::unnumbered(id.as_str().to_owned(), run);
        self.write_run_expiry(self.now.wall.plus(self.config.retention), vec![ended]);
    }
}
