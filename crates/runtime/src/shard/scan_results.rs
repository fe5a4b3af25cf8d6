//! Routes the result of each scan to the part of the shard that asked for it, and reports damage that the scan skipped.
//!
//! It does not look at the rows.

use abide_store::rows::{StoreError, TolerantPage};

use super::Shard;
#[cfg(feature = "faults")]
use super::fault_injected;
use super::ownership::OwnershipPhase;
use crate::event::ScanPurpose;

impl Shard {
    pub(super) fn on_scanned(&mut self, purpose: ScanPurpose, result: Result<TolerantPage, StoreError>) {
        let result = match result {
            Ok(TolerantPage { page, damage }) => {
                if let Some(damage) = damage {
                    self.on_damage(purpose, damage);
                }
                Ok(page)
            }
            Err(error) => Err(error),
        };
        match purpose {
            ScanPurpose::Timers => self.on_timers_scanned(result),
            ScanPurpose::Expiries => self.on_expiries_scanned(result),
            ScanPurpose::RunDeletion => self.on_gc_slice(result),
            ScanPurpose::Inbound => self.on_inbound_scanned(result),
            ScanPurpose::Instances => self.on_instances_scanned(result),
            ScanPurpose::Reconciliation => self.on_reconciliation_page(result),
            _ if matches!(self.phase, OwnershipPhase::Recovering(_)) => {
                self.on_recovery_page(purpose, result)
            }
            #[cfg(feature = "faults")]
            _ if matches!(self.phase, OwnershipPhase::Acquiring(..))
                && fault_injected!(self, StaleRecovery) =>
            {
                self.send_stale(result);
            }
            _ => {}
        }
    }
}
