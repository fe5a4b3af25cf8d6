//! Accepts messages from other shards: moves them from the inbound partition to the inbox of this shard, each exactly
//! once.
//!
//! ```text
//!  scan the inbound partition ──> commit: inbox rows + watermark per source ──> delete from the inbound partition
//! ```
//!
//! The watermark is the last number accepted from a source; messages up to it are duplicates. The root hands each page
//! over message by message, so that each gets a unit of its own. The reader does not know what a message means: it is
//! queued for its instance like any other.

use std::collections::{HashMap, VecDeque};

use abide_ids::Sequence;
use abide_store::rows::{Batch, CommitOutcome, Key, Row, RowVersion, Scan, ScanPage, StoreError};
use abide_store::tables::inbound::{self, InboundRow};
use abide_store::tables::inbound_watermarks::{self, InboundWatermarkRow};
use abide_store::tables::{decode, encode};

use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::run_message::{self, AddressedMessage};
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::component::Component;
use crate::shard::context::Context;
use crate::shard::messages::send::put_in_inbox;
use crate::shard::unit_of_work::UnitOfWork;

/// The progress of reading the inbound partition.
#[derive(Debug, Default)]
pub(in crate::shard) struct InboundReader {
    /// There may be new messages.
    pub(in crate::shard) scan_requested: bool,
    stage: InboundStage,
    /// The next page of the last scan.
    next_page: Option<Scan>,
    /// The last number accepted from each source.
    pub(in crate::shard) watermarks: HashMap<String, Sequence>,
    /// Some watermarks cannot be read. Messages of a source without one are not accepted, because they might be
    /// duplicates.
    pub(in crate::shard) watermarks_damaged: bool,
    /// The rows of the page that is being accepted, those accepted of it, and the batch of the last one.
    accepting: VecDeque<Row>,
    accepted: Vec<(Key, RowVersion)>,
    accepted_batch: Option<BatchNumber>,
    last_scan: Option<Monotonic>,
    /// Something failed and is repeated at this time.
    retry_at: Option<Monotonic>,
}

#[derive(Debug, Default)]
enum InboundStage {
    #[default]
    Idle,
    Scanning,
    /// Accepted in this batch; these rows are deleted once it is durable.
    Committing(BatchNumber, Vec<(Key, RowVersion)>),
    Deleting,
}

/// How often to scan at most without a hint, if other nodes may write to the partition.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

impl Component for InboundReader {
    /// Asks for the next page, or for the deletion of accepted messages once that is durable. One of them at a time.
    fn drive(&mut self, work: &mut UnitOfWork<'_>) {
        let ctx = &mut *work.ctx;
        if self.retry_at.is_some_and(|at| at > ctx.now.mono) {
            return;
        }
        self.retry_at = None;
        match &mut self.stage {
            InboundStage::Idle => {
                let poll = !ctx.config.exclusive
                    && self.last_scan.is_none_or(|at| later(at, POLL_INTERVAL) <= ctx.now.mono);
                let rest = self.next_page.take();
                if rest.is_none() && (self.scan_requested || poll) {
                    self.scan_requested = false;
                    self.last_scan = Some(ctx.now.mono);
                    return self.scan(ctx, inbound::all());
                }
                if let Some(rest) = rest {
                    self.scan(ctx, rest);
                }
            }
            InboundStage::Committing(written, rows) if *written <= ctx.commits.durable_batch => {
                let drop = |batch: Batch, (key, version): (Key, RowVersion)| batch.delete_if_at(key, version);
                let batch = std::mem::take(rows).into_iter().fold(Batch::checked(), drop);
                self.stage = InboundStage::Deleting;
                ctx.effects.push(Effect::DeleteInbound(batch));
            }
            _ => {}
        }
    }

    fn wake(&self) -> Option<Monotonic> {
        self.retry_at
    }
}

impl InboundReader {
    /// Takes over a watermark that recovery found.
    pub(in crate::shard) fn recover(&mut self, row: &Row) -> Result<(), String> {
        let source = inbound_watermarks::read_key(&row.key).map_err(|error| error.to_string())?;
        let watermark: InboundWatermarkRow = decode(&row.value).map_err(|error| error.to_string())?;
        self.watermarks.insert(source, watermark.last_number);
        Ok(())
    }

    /// Asks for a page that fills at most a quarter of a commit.
    fn scan(&mut self, ctx: &mut Context, scan: Scan) {
        self.stage = InboundStage::Scanning;
        let at_once = ctx.config.store_limits.commit_rows_max / 4;
        ctx.effects.push(Effect::Scan(ScanPurpose::Inbound, scan.limit(at_once)));
    }

    /// The driver has scanned a page, or failed to; then the scan is repeated. True if its messages are to be accepted.
    pub(in crate::shard) fn begin_page(
        &mut self,
        ctx: &Context,
        result: Result<ScanPage, StoreError>,
    ) -> bool {
        let Ok(page) = result else {
            self.stage = InboundStage::Idle;
            self.scan_requested = true;
            self.retry_at = Some(later(ctx.now.mono, backoff(4)));
            return false;
        };
        self.next_page = page.next;
        self.accepting = page.rows.into();
        self.accepted = Vec::new();
        self.accepted_batch = None;
        true
    }

    /// Accepts the next message of the page, in a unit of its own. Returns the reason if it cannot be read: it then
    /// stays in the inbound partition.
    pub(in crate::shard) fn accept_next(
        &mut self,
        work: &mut UnitOfWork<'_>,
    ) -> Option<Result<(), (Key, String)>> {
        let row = self.accepting.pop_front()?;
        match self.accept(work, &row.key, &row.value) {
            Ok(()) => {
                self.accepted.push((row.key, row.version));
                Some(Ok(()))
            }
            Err(reason) => Some(Err((row.key, reason))),
        }
    }

    /// The unit of the last accepted message is in this batch.
    pub(in crate::shard) fn note_accepted(&mut self, batch: BatchNumber) {
        self.accepted_batch = Some(batch);
    }

    /// All messages of the page are accepted: their rows are deleted once that is durable.
    pub(in crate::shard) fn finish_page(&mut self, durable: BatchNumber) {
        let rows = std::mem::take(&mut self.accepted);
        // Duplicates alone can be deleted at once.
        let written = self.accepted_batch.unwrap_or(durable);
        self.stage =
            if rows.is_empty() { InboundStage::Idle } else { InboundStage::Committing(written, rows) };
    }

    /// Writes a message to the inbox, with the watermark of its source. A duplicate writes nothing.
    fn accept(&mut self, work: &mut UnitOfWork<'_>, key: &Key, value: &[u8]) -> Result<(), String> {
        let (source, number) = inbound::read_key(key).map_err(|error| error.to_string())?;
        let row: InboundRow = decode(value).map_err(|error| error.to_string())?;
        let addressed: AddressedMessage =
            run_message::decode(&row.message).map_err(|error| error.to_string())?;
        let last = match self.watermarks.get(&source) {
            Some(last) => *last,
            None if self.watermarks_damaged => {
                return Err(format!("the watermark of {source} cannot be read"));
            }
            None => Sequence::ZERO,
        };
        if number <= last {
            return Ok(());
        }
        let watermark = InboundWatermarkRow { last_number: number, updated_at: work.ctx.now.wall };
        work.put(inbound_watermarks::key(&source), encode(&watermark));
        self.watermarks.insert(source, number);
        put_in_inbox(work, addressed.instance_id, addressed.message);
        Ok(())
    }

    /// The accepted messages are deleted from the inbound partition, or not.
    pub(in crate::shard) fn on_deleted(&mut self, ctx: &Context, outcome: &CommitOutcome) {
        self.stage = InboundStage::Idle;
        // The next scan finds the remaining rows, recognises them by the watermark, and deletes them.
        if !matches!(outcome, CommitOutcome::Committed(_)) {
            self.scan_requested = true;
            self.retry_at = Some(later(ctx.now.mono, backoff(4)));
        }
    }
}
