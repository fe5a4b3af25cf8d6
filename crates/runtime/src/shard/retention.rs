//! Ends the life of ended runs: by time (retention), or on request (purge).
//!
//! A run is purged in one commit: from then on nothing leads to it, neither its public row nor its run number. Its
//! other rows are left to [`gc`](super::gc), and so are the earlier runs of a purged instance, which follow one after
//! the other. The instance row stays as a tombstone for a time, so that a new run does not get the number of the purged
//! one.

use abide_ids::RunId;
use abide_store::rows::Row;
use abide_store::tables::expiries::{self, EndedRun, ExpiryRow, ExpiryTarget};
use abide_store::tables::instances::{self, InstanceRow, RunStatus};
use abide_store::tables::{earlier_runs, encode};
use abide_workflow::{InstanceId, Timestamp};

use super::commit_queue::OnCommit;
use super::gc::ExpiryKey;
use super::instance_slot::{InstanceSlot, SlotState, is_terminal};
use super::{Shard, fault_injected};

impl Shard {
    /// The expiry of a run is due: purges the run, unless it has changed since.
    pub(super) fn expire_run(
        &mut self,
        id: &InstanceId,
        slot: &mut InstanceSlot,
        ended: &EndedRun,
        expiry: &ExpiryKey,
    ) {
        let run = ended.run_id;
        self.commits.reserve(8, 0);
        let row = match &slot.state {
            SlotState::Row(row) => row.clone(),
            SlotState::Run(run) => Some(run.row.clone()),
            SlotState::Unreadable { row: Some(row), .. } => Some((**row).clone()),
            // The owner of these rows is unknown now: try again after another retention period.
            _ => {
                self.write_run_expiry(self.now.wall.plus(self.config.retention), vec![ended.clone()]);
                return self.finish_expiry_item(expiry);
            }
        };
        match row {
            // A run that changed later has a later expiry: a tombstone, or a rewound run that is live.
            Some(row) if row.run_id == run && row.status == RunStatus::Purged => {
                if row.updated_at.plus(self.config.idempotency_window) <= self.now.wall {
                    self.commits.delete(instances::key(id.as_str()));
                    // Again, because a write of a previous owner may have come after the first deletion. From now on
                    // the run number may be used again.
                    self.remove_public_row(ended);
                    slot.state = SlotState::Row(None);
                    slot.written_batch = self.commits.batch_number();
                    self.commits.on_commit(OnCommit::Evict(id.clone()));
                }
            }
            Some(row) if row.run_id == run && !is_terminal(row.status) => {}
            Some(row) if row.run_id == run => {
                let until = row.updated_at.plus(self.config.retention);
                if until <= self.now.wall {
                    slot.state = SlotState::Row(Some(self.purge_run(id, row)));
                    slot.written_batch = self.commits.batch_number();
                    self.commits.on_commit(OnCommit::Evict(id.clone()));
                } else {
                    // It was rewound and has ended again, or the clock was ahead when it ended.
                    self.write_run_expiry(until, vec![ended.clone()]);
                }
            }
            // It was replaced. If its last state is not in the public index yet, that write brings another expiry.
            _ if self.public_index.has_pending_state(run) => {}
            _ => {
                self.remove_public_row(ended);
                match ended.run_number {
                    _ if fault_injected!(self, EarlierRunKept) => {}
                    // Its number is unknown. The retention of all runs before it has ended, too.
                    None => self.purge_earlier_runs(id, run.next()),
                    Some(number) => self.commits.delete(earlier_runs::key(&ended.instance_id, number, run)),
                }
                self.schedule_run_gc(run);
            }
        }
        self.finish_expiry_item(expiry);
    }

    /// One run of an expiry row was handled; after the last one the row is deleted.
    fn finish_expiry_item(&mut self, expiry: &ExpiryKey) {
        let left = self.gc.open_expiries.get_mut(expiry).map(|left| {
            *left = left.saturating_sub(1);
            *left
        });
        if left == Some(0) {
            self.gc.open_expiries.remove(expiry);
            self.commits.delete(expiry.clone());
            self.gc.written_batch = self.commits.batch_number();
        }
    }

    /// Purges an ended run in the open batch. The tombstone keeps its run number for a time, so that a new run is not
    /// mistaken for this one.
    pub(super) fn purge_run(&mut self, id: &InstanceId, mut row: InstanceRow) -> InstanceRow {
        let ended = EndedRun {
            instance_id: id.as_str().to_owned(),
            run_id: row.run_id,
            run_number: Some(row.run_number),
            revision: self.next_revision(),
        };
        self.remove_public_row(&ended);
        self.schedule_run_gc(row.run_id);
        row.status = RunStatus::Purged;
        row.updated_at = self.now.wall;
        self.commits.put(instances::key(id.as_str()), encode(&row));
        self.write_run_expiry(self.now.wall.plus(self.config.idempotency_window), vec![ended]);
        row
    }

    /// Schedules the purge of all earlier runs of an instance with lower run ids than this.
    pub(super) fn purge_earlier_runs(&mut self, id: &InstanceId, before: RunId) {
        // A run that starts later may get the number of one of them, and needs a higher revision.
        let revision = self.next_revision();
        self.schedule_gc(ExpiryTarget::EarlierRuns {
            instance_id: id.as_str().to_owned(),
            before_run_id: before,
            revision,
        });
    }

    /// Purges an earlier run, if its run id is lower than this.
    pub(super) fn purge_earlier_row(&mut self, row: &Row, before: RunId, revision: u64) {
        let Ok((instance_id, run_number, run)) = earlier_runs::read_key(&row.key) else { return };
        if run < before {
            self.purge_earlier_run(&EndedRun {
                instance_id,
                run_id: run,
                run_number: Some(run_number),
                revision,
            });
        }
    }

    /// Purges an earlier run in the open batch.
    pub(super) fn purge_earlier_run(&mut self, earlier: &EndedRun) {
        let EndedRun { instance_id, run_id: run, run_number, .. } = earlier;
        if let Some(run_number) = run_number
            && !fault_injected!(self, EarlierRunKept)
        {
            self.commits.delete(earlier_runs::key(instance_id, *run_number, *run));
        }
        self.remove_public_row(earlier);
        self.schedule_run_gc(*run);
    }

    /// Removes a run from the public index.
    fn remove_public_row(&mut self, ended: &EndedRun) {
        self.remove_from_index(ended.run_id, ended.public_key(), ended.revision);
    }

    /// Writes the expiry row of ended runs, which are kept until this time.
    pub(super) fn write_run_expiry(&mut self, at: Timestamp, ended: Vec<EndedRun>) {
        let sequence = self.next_sequence();
        let expiry = ExpiryRow { target: ExpiryTarget::EndedRuns(ended) };
        self.commits.create(expiries::key(at, sequence), encode(&expiry));
    }

    fn schedule_run_gc(&mut self, run: RunId) {
        self.schedule_gc(ExpiryTarget::Run(run));
    }

    /// Schedules a deletion that is due at once, whatever the clock of the next owner says.
    fn schedule_gc(&mut self, target: ExpiryTarget) {
        let sequence = self.next_sequence();
        let expiry = ExpiryRow { target };
        self.commits.create(expiries::key(expiries::DUE_AT_ONCE, sequence), encode(&expiry));
        self.gc.next_scan_at = self.gc.next_scan_at.map(|_| self.now.mono);
        self.gc.written_batch = self.commits.batch_number();
    }
}
