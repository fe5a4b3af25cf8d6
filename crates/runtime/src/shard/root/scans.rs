//! Hands scanned pages to the components that asked for them, and recovered rows to the components they belong to.
//!
//! It does not look into a page, except to tell the rows of the outbox apart.

use abide_ids::Sequence;
use abide_store::rows::{Row, ScanPage, StoreError, TolerantPage};
use abide_store::tables::{decode, outbox};
use abide_workflow::{InstanceId, Timestamp};

use crate::event::ScanPurpose;
use crate::shard::component::ComponentReads;
use crate::shard::damage::UnreadableRows;
use crate::shard::index_change::MarkerId;
use crate::shard::ownership::OwnershipPhase;
use crate::shard::recovery::{self, RecoveredMessage};
use crate::shard::schedule::DueKey;
use crate::shard::unit_of_work::Work;
use crate::shard::work_item::WorkItem;
use crate::shard::{Shard, fault_injected};

impl Shard {
    /// Hands a scanned page to the component that asked for it, and reports the damage that the scan skipped.
    pub(in crate::shard) fn on_scanned(
        &mut self,
        purpose: ScanPurpose,
        result: Result<TolerantPage, StoreError>,
    ) {
        let result = result.map(|TolerantPage { page, damage }| {
            if let Some(damage) = damage {
                self.components.inbound.watermarks_damaged |= purpose == ScanPurpose::Watermarks;
                self.components.damage.on_damage(&mut self.ctx, purpose, damage);
            }
            page
        });
        match purpose {
            ScanPurpose::Timers => {
                let unreadable = self.timers.on_scanned(&mut self.ctx, &mut self.due.schedule, result);
                self.on_unreadable_rows(purpose, unreadable);
            }
            ScanPurpose::Inbound => self.on_inbound_scanned(result),
            _ if matches!(self.ctx.phase, OwnershipPhase::Recovering(_)) => {
                self.on_recovery_page(purpose, result);
            }
            #[cfg(feature = "faults")]
            _ if matches!(self.ctx.phase, OwnershipPhase::Acquiring(..))
                && fault_injected!(self.ctx, StaleRecovery) =>
            {
                recovery::send_stale(&mut self.ctx, result);
            }
            _ => self.on_component_scan(purpose, result),
        }
    }

    /// Gives the page to the component that takes it.
    pub(in crate::shard) fn on_component_scan(
        &mut self,
        purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        let reads = ComponentReads { attempts: &self.attempts };
        let mut places = 0..;
        while let Some(component) = places.next().and_then(|place| self.components.get_mut(place)) {
            if component.takes_scan(purpose) {
                let mut work = Work::new(&mut self.ctx);
                component.on_scanned(&mut work, &reads, purpose, result);
                let unit = work.finish();
                self.merge(unit);
                return;
            }
        }
    }

    pub(in crate::shard) fn on_unreadable_rows(&mut self, purpose: ScanPurpose, rows: UnreadableRows) {
        self.components.inbound.watermarks_damaged |= purpose == ScanPurpose::Watermarks && !rows.is_empty();
        for (key, reason) in rows {
            self.components.damage.on_unreadable_row(&mut self.ctx, purpose, &key, reason);
        }
    }

    /// Accepts the messages of a page, each in a unit of its own.
    pub(in crate::shard) fn on_inbound_scanned(&mut self, result: Result<ScanPage, StoreError>) {
        if !self.components.inbound.on_scanned(&self.ctx, result) {
            return;
        }
        loop {
            let mut work = Work::new(&mut self.ctx);
            let Some(accepted) = self.components.inbound.accept_next(&mut work) else { break };
            let unit = work.finish();
            match accepted {
                Ok(()) if unit.rows() > 0 => {
                    let batch = self.merge(unit);
                    self.components.inbound.note_accepted(batch);
                }
                Ok(()) => {}
                Err((key, reason)) => self.on_unreadable_rows(ScanPurpose::Inbound, vec![(key, reason)]),
            }
        }
        self.components.inbound.finish_page(self.ctx.commits.durable_batch);
        self.process_posted();
    }

    /// Hands the rows of a recovery scan to their components.
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
                _ => self.components.inbound.recover(&row),
            };
            if let Err(reason) = recovered {
                self.on_unreadable_rows(purpose, vec![(row.key, reason)]);
            }
        }
        if self.recovery.go_on(&mut self.ctx, purpose, page.next) {
            self.ctx.finish_recovery();
            self.components.inbound.scan_requested = true;
            self.process_posted();
            while let Some(requests) = self.deferred_requests.pop_front() {
                self.on_requests(requests);
            }
        }
    }

    pub(in crate::shard) fn recover_call(&mut self, row: &Row) -> Result<(), String> {
        if fault_injected!(self.ctx, OrphanedCallsLost) {
            return Ok(());
        }
        let (due, id) = recovery::recovered_call(row)?;
        self.due.schedule.add(due, id);
        Ok(())
    }

    pub(in crate::shard) fn recover_message(&mut self, row: &Row) -> Result<(), String> {
        let RecoveredMessage { received_at, sequence, instance_id, item } = RecoveredMessage::from_row(row)?;
        self.schedule_recovered(received_at, sequence, instance_id, item);
        Ok(())
    }

    pub(in crate::shard) fn recover_outbox_row(&mut self, row: &Row) -> Result<(), String> {
        let (target, number) = outbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let outgoing: outbox::OutboxRow = decode(&row.value).map_err(|error| error.to_string())?;
        if target != outbox::PUBLIC_INDEX_TARGET {
            return self.outbox.recover(&target, number, outgoing.message);
        }
        let mut work = Work::new(&mut self.ctx);
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
