//! Recovers the rows of a previous owner: hands each to the component it belongs to, and schedules the work in it.
//!
//! Which scans there are, and when they are repeated, is in [`recovery`]. It decides nothing about a row but whose it
//! is.

use abide_ids::{Sequence, Timestamp};
use abide_store::rows::{Row, ScanPage, StoreError};
use abide_store::tables::{decode, outbox};
use abide_workflow::InstanceId;

use crate::event::ScanPurpose;
use crate::shard::Shard;
use crate::shard::public_index::index_change::MarkerId;
use crate::shard::recovery::{self, RecoveredMessage};
use crate::shard::schedule::DueKey;
use crate::shard::unit_of_work::UnitOfWork;
use crate::shard::work_item::WorkItem;

impl Shard {
    /// Hands the rows of a recovery scan to their components. After the last page the shard works: it handles the
    /// requests that waited.
    pub(in crate::shard) fn on_recovery_page(
        &mut self,
        purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        let Some(page) = self.recovery.on_scanned(&self.ctx, purpose, result) else { return };
        for row in page.rows {
            let recovered = match purpose {
                ScanPurpose::Calls => self.recover_call(&row),
                ScanPurpose::Inbox => self.recover_message(&row),
                ScanPurpose::Outbox => self.recover_outbox_row(&row),
                ScanPurpose::Watermarks => self.components.inbound.recover(&row),
                // Recovery makes no other scan.
                _ => Ok(()),
            };
            if let Err(reason) = recovered {
                self.report_unreadable_rows(purpose, vec![(row.key, reason)]);
            }
        }
        if self.recovery.go_on(&mut self.ctx, purpose, page.next) {
            self.ctx.finish_recovery();
            self.components.inbound.scan_requested = true;
            self.park_inherited();
            self.process_posted();
            while let Some(requests) = self.deferred_requests.pop_front() {
                self.on_requests(requests);
            }
        }
    }

    /// Schedules a stored call. When it is due, its run is loaded and takes it up.
    pub(in crate::shard) fn recover_call(&mut self, row: &Row) -> Result<(), String> {
        let (due, id) = recovery::recovered_call(row)?;
        self.due.schedule.add(due, id);
        Ok(())
    }

    /// Queues a message of the inbox for its instance, and schedules it by the time it came.
    pub(in crate::shard) fn recover_message(&mut self, row: &Row) -> Result<(), String> {
        let RecoveredMessage { received_at, sequence, instance_id, item } = RecoveredMessage::from_row(row)?;
        self.schedule_recovered(received_at, sequence, instance_id, item);
        Ok(())
    }

    /// Hands a row of the outbox to the outbox; or, if it is a marker, to the public index, which may ask for the run.
    pub(in crate::shard) fn recover_outbox_row(&mut self, row: &Row) -> Result<(), String> {
        let (target, number) = outbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let outgoing: outbox::OutboxRow = decode(&row.value).map_err(|error| error.to_string())?;
        if target != outbox::PUBLIC_INDEX_TARGET {
            return self.outbox.recover(&target, number, outgoing.message);
        }
        let mut work = UnitOfWork::new(&mut self.ctx);
        let found = self.index.recover(&mut work, MarkerId::from_row(number), &outgoing.message)?;
        let unit = work.finish();
        self.merge(unit);
        if let Some((id, item)) = found {
            self.schedule_recovered(self.ctx.now.wall, number, id, item);
        }
        Ok(())
    }

    /// Queues a recovered item in its slot, and schedules the slot to be processed at this time.
    pub(in crate::shard) fn schedule_recovered(
        &mut self,
        at: Timestamp,
        number: Sequence,
        id: InstanceId,
        item: WorkItem,
    ) {
        self.instances.push_recovered(&id, item);
        self.due.schedule.add(DueKey::of_recovered(at, number), id);
    }
}
