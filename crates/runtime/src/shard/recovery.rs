//! Recovers the unfinished work of the previous owner: unsettled calls, inbox messages, outbox rows, and watermarks.
//!
//! The scans are repeated until they succeed, and skip damaged rows. The work they find is scheduled like all other due
//! work, so a restart causes no stampede and takes no capacity from clients. Timers are not recovered here but read by
//! [`timers`](super::timers). Requests wait until the scans are complete.

use abide_ids::Sequence;
use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use abide_store::tables::calls::{self, CallRow, NotBefore};
use abide_store::tables::{decode, inbound_watermarks, inbox, outbox};
use abide_workflow::{InstanceId, Timestamp};

use super::instance_slot::{InstanceSlot, WorkItem};
use super::public_index::MarkerId;
use super::schedule::{DueKey, DueWork};
use super::{Shard, backoff, fault_injected, later};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::run_message::{self, RunMessage};

/// The scans of recovery, in this order.
const RECOVERY_SCANS: [ScanPurpose; 4] =
    [ScanPurpose::Calls, ScanPurpose::Inbox, ScanPurpose::Outbox, ScanPurpose::Watermarks];

/// A scan to be repeated.
#[derive(Debug)]
pub(super) struct ScanRetry {
    purpose: ScanPurpose,
    scan: Scan,
    at: Monotonic,
}

impl Shard {
    pub(super) fn begin_recovery(&mut self) {
        self.start_recovery_scan(RECOVERY_SCANS.first().copied());
    }

    fn start_recovery_scan(&mut self, stage: Option<ScanPurpose>) {
        let Some(purpose) = stage else {
            self.finish_recovery();
            self.inbound.scan_requested = true;
            self.process_local_messages();
            return self.process_deferred_requests();
        };
        let scan = match purpose {
            ScanPurpose::Calls => calls::all(),
            ScanPurpose::Inbox => inbox::all(),
            ScanPurpose::Outbox => outbox::all(),
            _ => inbound_watermarks::all(),
        };
        self.recovery_scan = Some(scan.clone());
        self.effects.push(Effect::Scan(purpose, scan));
    }

    pub(super) fn recovery_wake(&self) -> Option<Monotonic> {
        self.recovery_scan_retry.as_ref().map(|retry| retry.at)
    }

    pub(super) fn drive_recovery(&mut self) {
        if self.recovery_scan_retry.as_ref().is_some_and(|retry| retry.at <= self.now.mono)
            && let Some(ScanRetry { purpose, scan, .. }) = self.recovery_scan_retry.take()
        {
            self.effects.push(Effect::Scan(purpose, scan));
        }
    }

    pub(super) fn on_recovery_page(&mut self, purpose: ScanPurpose, result: Result<ScanPage, StoreError>) {
        let page = match result {
            Ok(page) => page,
            Err(_) => {
                let Some(scan) = self.recovery_scan.clone() else { return };
                let at = later(self.now.mono, backoff(4));
                self.recovery_scan_retry = Some(ScanRetry { purpose, scan, at });
                return;
            }
        };
        for row in page.rows {
            let recovered = match purpose {
                ScanPurpose::Calls => self.recover_call(&row),
                ScanPurpose::Inbox => self.recover_inbox_message(&row),
                ScanPurpose::Outbox => self.recover_outbox_row(&row),
                _ => self.recover_watermark(&row),
            };
            if let Err(reason) = recovered {
                self.on_unreadable_row(purpose, &row.key, reason);
            }
        }
        match page.next {
            Some(scan) => {
                self.recovery_scan = Some(scan.clone());
                self.effects.push(Effect::Scan(purpose, scan));
            }
            None => {
                let next = RECOVERY_SCANS.iter().position(|stage| *stage == purpose).map(|at| at + 1);
                self.start_recovery_scan(next.and_then(|next| RECOVERY_SCANS.get(next)).copied());
            }
        }
    }

    fn recover_call(&mut self, row: &Row) -> Result<(), String> {
        if fault_injected!(self, OrphanedCallsLost) {
            return Ok(());
        }
        let (run, _) = calls::read_key(&row.key).map_err(|error| error.to_string())?;
        let call: CallRow = decode(&row.value).map_err(|error| error.to_string())?;
        let id = InstanceId::new(call.instance_id).map_err(|error| error.to_string())?;
        let at = call.not_before.map_or(call.sent_at, NotBefore::due_at);
        self.schedule.add(DueKey::of_attempt(at, run, call.command), id);
        Ok(())
    }

    /// An injected fault: sends calls again before the shard is owned.
    #[cfg(feature = "faults")]
    pub(super) fn send_stale(&mut self, result: Result<ScanPage, StoreError>) {
        for row in result.into_iter().flat_map(|page| page.rows) {
            if let (Ok((run, key)), Ok(dispatch)) = (calls::read_key(&row.key), decode(&row.value)) {
                self.send_unrecorded(run, key, dispatch);
            }
        }
    }

    fn recover_inbox_message(&mut self, row: &Row) -> Result<(), String> {
        let sequence = inbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let inbox_row: inbox::InboxRow = decode(&row.value).map_err(|error| error.to_string())?;
        let id = InstanceId::new(inbox_row.instance_id).map_err(|error| error.to_string())?;
        let message: RunMessage =
            run_message::decode(&inbox_row.message).map_err(|error| error.to_string())?;
        self.schedule_recovered(
            inbox_row.received_at,
            sequence,
            id,
            WorkItem::RunMessage { sequence, message },
        );
        Ok(())
    }

    /// Queues a recovered item in its slot, and schedules the slot to be processed at this time.
    pub(super) fn schedule_recovered(
        &mut self,
        at: Timestamp,
        number: Sequence,
        id: InstanceId,
        item: WorkItem,
    ) {
        let slot = self.slots.entry(id.clone()).or_insert_with(InstanceSlot::new);
        slot.queue.push_back(item);
        slot.recovered_items += 1;
        self.schedule.add(DueKey { at, work: DueWork::Recovered { number } }, id);
    }

    fn recover_outbox_row(&mut self, row: &Row) -> Result<(), String> {
        let (target, number) = outbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let outgoing: outbox::OutboxRow = decode(&row.value).map_err(|error| error.to_string())?;
        if target == outbox::PUBLIC_INDEX_TARGET {
            return self.recover_marker(MarkerId::from_row(number), &outgoing.message);
        }
        self.outbox.recover(&target, number, outgoing.message)
    }

    fn recover_watermark(&mut self, row: &Row) -> Result<(), String> {
        let source = inbound_watermarks::read_key(&row.key).map_err(|error| error.to_string())?;
        let watermark: inbound_watermarks::InboundWatermarkRow =
            decode(&row.value).map_err(|error| error.to_string())?;
        self.inbound.watermarks.insert(source, watermark.last_number);
        Ok(())
    }
}
