//! Forgetting runs: those that have been kept long enough, and those that somebody has purged.
//!
//! A run is forgotten in one commit: nothing leads to it from then on, in public or by its number. Its rows are for the sweeper to delete, and so
//! are the earlier runs of an instance that was purged, which follow one after the other.

use abide_store::rows::Row;
use abide_store::tables::expiries::{self, EndedRun, Expired, Expiry};
use abide_store::tables::instances::{self, Instance as InstanceRow, RunStatus};
use abide_store::tables::{earlier_runs, encode, public_instances};
use abide_workflow::{InstanceId, Timestamp};

use super::commits::After;
use super::slot::{Known, Slot, is_over};
use super::sweep::ExpiryKey;
use super::{Shard, planted};

impl Shard {
    /// A run has been kept long enough.
    pub(super) fn serve_expire(
        &mut self,
        id: &InstanceId,
        slot: &mut Slot,
        ended: &EndedRun,
        expiry: &ExpiryKey,
    ) {
        let run = ended.run;
        self.commits.make_room(8, 0);
        let row = match &slot.known {
            Known::Row(row) => row.clone(),
            Known::Run(run) => Some(run.row.clone()),
            Known::Unreadable { row: Some(row), .. } => Some((**row).clone()),
            // Whose rows these are cannot be said now.
            _ => {
                self.expire_at(self.now.wall.plus(self.config.retention), vec![ended.clone()]);
                return self.expired_one(expiry);
            }
        };
        match row {
            // What changed later has a later expiry: a tombstone of its own, a rewound run that lives.
            Some(row) if row.run == run && row.status == RunStatus::Purged => {
                if row.updated_at.saturating_add_unsigned(self.config.repeat_window.0) <= self.now.wall.0 {
                    self.commits.delete(instances::key(id.as_str()));
                    // Once more: a former owner's write may have come after the first deletion. From now on the number may be used again.
                    self.hide(ended);
                    slot.known = Known::Row(None);
                    slot.written = self.commits.number();
                    self.commits.then(After::Forget(id.clone()));
                }
            }
            Some(row) if row.run == run && !is_over(row.status) => {}
            Some(row) if row.run == run => {
                let until = Timestamp(row.updated_at).plus(self.config.retention);
                if until <= self.now.wall {
                    slot.known = Known::Row(Some(self.purge(id, row)));
                    slot.written = self.commits.number();
                    self.commits.then(After::Forget(id.clone()));
                } else {
                    // It was rewound and has ended again, or it ended by a clock that was ahead.
                    self.expire_at(until, vec![ended.clone()]);
                }
            }
            // It was replaced. If its last state is not in public yet, there will be another expiry when it is.
            _ if self.feed.is_to_be_shown(run) => {}
            _ => {
                self.hide(ended);
                match ended.run_number {
                    _ if planted!(self, EarlierRunKept) => {}
                    // Whatever number it had: all that came before it have been kept long enough, too.
                    0 => self.forget_earlier_runs(id, run.saturating_add(1)),
                    number => self.commits.delete(earlier_runs::key(&ended.instance_id, number, run)),
                }
                self.forget_run(run);
            }
        }
        self.expired_one(expiry);
    }

    /// One of the runs of an expiry was looked at; after the last one it goes.
    fn expired_one(&mut self, expiry: &ExpiryKey) {
        let left = self.sweep.open.get_mut(expiry).map(|left| {
            *left = left.saturating_sub(1);
            *left
        });
        if left == Some(0) {
            self.sweep.open.remove(expiry);
            self.commits.delete(expiry.clone());
            self.sweep.written = self.commits.number();
        }
    }

    /// Forgets a run that has ended, in one commit. The id remembers its run number for a while, so that a new run is not taken for this one.
    pub(super) fn purge(&mut self, id: &InstanceId, mut row: InstanceRow) -> InstanceRow {
        let ended = EndedRun {
            instance_id: id.as_str().to_owned(),
            run: row.run,
            run_number: row.run_number,
            revision: self.next_sequence(),
        };
        self.hide(&ended);
        self.forget_run(row.run);
        row.status = RunStatus::Purged;
        row.updated_at = self.now.wall.0;
        self.commits.put(instances::key(id.as_str()), encode(&row));
        self.expire_at(self.now.wall.plus(self.config.repeat_window), vec![ended]);
        row
    }

    /// Earlier runs of an instance go, all that the shard has numbered before this.
    pub(super) fn forget_earlier_runs(&mut self, id: &InstanceId, before: u64) {
        // What begins later may get the number of one of them.
        let revision = self.next_sequence();
        self.soon(Expired::EarlierRuns { instance_id: id.as_str().to_owned(), before, revision });
    }

    /// Forgets an earlier run, if it was numbered before this.
    pub(super) fn forget_earlier_row(&mut self, row: &Row, before: u64, revision: u64) {
        let Ok((instance_id, run_number, run)) = earlier_runs::read_key(&row.key) else { return };
        if run < before {
            self.forget_earlier(&EndedRun { instance_id, run, run_number, revision });
        }
    }

    /// Forgets an earlier run, in one commit.
    pub(super) fn forget_earlier(&mut self, earlier: &EndedRun) {
        let EndedRun { instance_id, run, run_number, .. } = earlier;
        if !planted!(self, EarlierRunKept) {
            self.commits.delete(earlier_runs::key(instance_id, *run_number, *run));
        }
        self.hide(earlier);
        self.forget_run(*run);
    }

    /// Takes a run out of the public table.
    fn hide(&mut self, ended: &EndedRun) {
        let key = public_instances::key(&ended.instance_id, ended.run_number);
        self.feed_gone(ended.run, key, ended.revision);
    }

    fn forget_run(&mut self, run: u64) {
        self.soon(Expired::Run(run));
    }

    /// Something for the sweeper, at once: whatever the clock of the next owner says.
    fn soon(&mut self, what: Expired) {
        let sequence = self.next_sequence();
        let expiry = Expiry { what };
        self.commits.create(expiries::key(0, sequence), encode(&expiry));
        self.sweep.next = self.sweep.next.map(|_| self.now.mono);
        self.sweep.written = self.commits.number();
    }
}
