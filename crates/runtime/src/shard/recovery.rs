//! Reads the unfinished work of the previous owner: unsettled calls, inbox messages, outbox rows, and watermarks.
//!
//! The scans are repeated until they succeed. The root hands each row to the component it belongs to. Calls, inbox
//! messages and runs to be indexed are scheduled like all other due work, so a restart causes no stampede and takes no
//! capacity from clients; outbox messages are sent at once.
//! Timers are not recovered here but read by [`timer_window`](crate::shard::timers::timer_window). Requests wait until
//! the scans are complete.

pub(super) mod damage;

use abide_ids::Sequence;
use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use abide_store::tables::calls::{self, CallRow, NotBefore};
use abide_store::tables::{decode, inbound_watermarks, inbox, outbox};
use abide_workflow::{InstanceId, Timestamp};

use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::run_message::{self, RunMessage};
use crate::shard::backoff::{backoff, later};
use crate::shard::context::Context;
use crate::shard::schedule::DueKey;
use crate::shard::work_item::WorkItem;

/// The scans of recovery, in this order.
const RECOVERY_SCANS: [ScanPurpose; 4] =
    [ScanPurpose::Calls, ScanPurpose::Inbox, ScanPurpose::Outbox, ScanPurpose::Watermarks];

/// The progress of recovery.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// The scan in flight.
    scan: Option<Scan>,
    retry: Option<ScanRetry>,
}

/// A scan to be repeated.
#[derive(Debug)]
struct ScanRetry {
    purpose: ScanPurpose,
    scan: Scan,
    at: Monotonic,
}

impl Recovery {
    /// Begins with the first scan: the commit that acquired the shard is durable.
    pub(super) fn begin(&mut self, ctx: &mut Context) {
        self.start_scan(ctx, RECOVERY_SCANS.first().copied());
    }

    /// Starts the scan of this stage. True if there is none left.
    fn start_scan(&mut self, ctx: &mut Context, stage: Option<ScanPurpose>) -> bool {
        let Some(purpose) = stage else { return true };
        let scan = match purpose {
            ScanPurpose::Calls => calls::all(),
            ScanPurpose::Inbox => inbox::all(),
            ScanPurpose::Outbox => outbox::all(),
            _ => inbound_watermarks::all(),
        };
        self.scan = Some(scan.clone());
        ctx.effects.push(Effect::Scan(purpose, scan));
        false
    }

    /// When a scan that failed is to be repeated.
    pub(super) fn wake(&self) -> Option<Monotonic> {
        self.retry.as_ref().map(|retry| retry.at)
    }

    /// Repeats a scan that failed.
    pub(super) fn drive(&mut self, ctx: &mut Context) {
        if let Some(ScanRetry { purpose, scan, .. }) = self.retry.take_if(|retry| retry.at <= ctx.now.mono) {
            ctx.effects.push(Effect::Scan(purpose, scan));
        }
    }

    /// The rows of a page that was scanned, for the components they belong to. A scan that failed is repeated.
    pub(super) fn on_scanned(
        &mut self,
        ctx: &Context,
        purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) -> Option<ScanPage> {
        if let Ok(page) = result {
            return Some(page);
        }
        let scan = self.scan.clone()?;
        let at = later(ctx.now.mono, backoff(4));
        self.retry = Some(ScanRetry { purpose, scan, at });
        None
    }

    /// The rows of a page are recovered: continues with the next page, or the next scan. True if recovery is complete.
    pub(super) fn go_on(&mut self, ctx: &mut Context, purpose: ScanPurpose, next_page: Option<Scan>) -> bool {
        match next_page {
            Some(scan) => {
                self.scan = Some(scan.clone());
                ctx.effects.push(Effect::Scan(purpose, scan));
                false
            }
            None => {
                let next = RECOVERY_SCANS.iter().position(|stage| *stage == purpose).map(|at| at + 1);
                self.start_scan(ctx, next.and_then(|next| RECOVERY_SCANS.get(next)).copied())
            }
        }
    }
}

/// When and for which instance the attempt of a stored call is due.
pub(super) fn recovered_call(row: &Row) -> Result<(DueKey, InstanceId), String> {
    let (run, _) = calls::read_key(&row.key).map_err(|error| error.to_string())?;
    let call: CallRow<'_> = decode(&row.value).map_err(|error| error.to_string())?;
    let id = InstanceId::new(call.instance_id.into_owned()).map_err(|error| error.to_string())?;
    let at = call.not_before.map_or(call.sent_at, NotBefore::due_at);
    Ok((DueKey::of_attempt(at, run, call.command), id))
}

/// A message of the inbox, with the time it came and the work item it becomes.
#[derive(Debug)]
pub(super) struct RecoveredMessage {
    pub(super) received_at: Timestamp,
    pub(super) sequence: Sequence,
    pub(super) instance_id: InstanceId,
    pub(super) item: WorkItem,
}

impl RecoveredMessage {
    pub(super) fn from_row(row: &Row) -> Result<Self, String> {
        let sequence = inbox::read_key(&row.key).map_err(|error| error.to_string())?;
        let inbox_row: inbox::InboxRow = decode(&row.value).map_err(|error| error.to_string())?;
        let instance_id = InstanceId::new(inbox_row.instance_id).map_err(|error| error.to_string())?;
        let message: RunMessage =
            run_message::decode(&inbox_row.message).map_err(|error| error.to_string())?;
        let item = WorkItem::RunMessage { sequence, message };
        Ok(Self { received_at: inbox_row.received_at, sequence, instance_id, item })
    }
}
