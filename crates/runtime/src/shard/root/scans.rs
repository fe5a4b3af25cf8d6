//! Hands scanned pages to the components that asked for them, and what cannot be read to
//! [`damage`](crate::shard::recovery::damage).
//!
//! It does not look into a page.

use abide_store::rows::{ScanPage, StoreError, TolerantPage};

use crate::event::ScanPurpose;
use crate::shard::Shard;
use crate::shard::component::ComponentReads;
use crate::shard::ownership::OwnershipPhase;
use crate::shard::recovery::damage::UnreadableRows;
use crate::shard::unit_of_work::UnitOfWork;

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
                self.report_unreadable_rows(purpose, unreadable);
            }
            ScanPurpose::Inbound => self.on_inbound_scanned(result),
            _ if matches!(self.ctx.phase, OwnershipPhase::Recovering(_)) => {
                self.on_recovery_page(purpose, result);
            }
            _ => self.on_component_scan(purpose, result),
        }
    }

    /// Gives the page, or the error, to the component that takes it, and merges its unit of work.
    pub(in crate::shard) fn on_component_scan(
        &mut self,
        purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        let reads = ComponentReads { attempts: &self.attempts };
        let mut places = 0..;
        while let Some(component) = places.next().and_then(|place| self.components.get_mut(place)) {
            if component.takes_scan(purpose) {
                let mut work = UnitOfWork::new(&mut self.ctx);
                component.on_scanned(&mut work, &reads, purpose, result);
                let unit = work.finish();
                self.merge(unit);
                return;
            }
        }
    }

    /// Reports rows that cannot be read; runs that may depend on them are checked. If a watermark is among them, no
    /// more messages are accepted from sources without one, because they might be duplicates.
    pub(in crate::shard) fn report_unreadable_rows(&mut self, purpose: ScanPurpose, rows: UnreadableRows) {
        self.components.inbound.watermarks_damaged |= purpose == ScanPurpose::Watermarks && !rows.is_empty();
        for (key, reason) in rows {
            self.components.damage.on_unreadable_row(&mut self.ctx, purpose, &key, reason);
        }
    }

    /// Accepts the messages of a page, each in a unit of its own.
    pub(in crate::shard) fn on_inbound_scanned(&mut self, result: Result<ScanPage, StoreError>) {
        if !self.components.inbound.begin_page(&self.ctx, result) {
            return;
        }
        loop {
            let mut work = UnitOfWork::new(&mut self.ctx);
            let Some(accepted) = self.components.inbound.accept_next(&mut work) else { break };
            let unit = work.finish();
            match accepted {
                Ok(()) if unit.rows() > 0 => {
                    let batch = self.merge(unit);
                    self.components.inbound.note_accepted(batch);
                }
                Ok(()) => {}
                Err((key, reason)) => self.report_unreadable_rows(ScanPurpose::Inbound, vec![(key, reason)]),
            }
        }
        self.components.inbound.finish_page(self.ctx.commits.durable_batch);
        self.process_posted();
    }
}
