//! Accepts messages from other shards: moves them from the inbox partition to the inbox of this shard, each exactly
//! once.
//!
//! ```text
//!  scan the inbox partition ──> commit: inbox rows + watermark per source ──> delete from the inbox partition
//! ```
//!
//! The watermark is the last number accepted from a source; messages up to it are duplicates. It does not know what a
//! message means: it is queued for its instance like any other.

use std::collections::HashMap;

use abide_ids::Sequence;
use abide_store::rows::{Batch, CommitOutcome, Key, RowVersion, Scan, ScanPage, StoreError};
use abide_store::tables::inbound::{self, InboundRow};
use abide_store::tables::inbound_watermarks::{self, InboundWatermarkRow};
use abide_store::tables::{decode, encode};

use super::commit_queue::BatchNumber;
use super::{Shard, fault_injected};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::run_message::{self, AddressedMessage};

/// The progress of reading the inbox partition.
#[derive(Debug, Default)]
pub(super) struct InboundReader {
    /// There may be new messages.
    pub(super) scan_requested: bool,
    stage: InboundStage,
    /// The next page of the last scan.
    next_page: Option<Scan>,
    /// The last number accepted from each source.
    pub(super) watermarks: HashMap<String, Sequence>,
    /// Some watermarks cannot be read. Messages of a source without one are not accepted, because they might be
    /// duplicates.
    pub(super) watermarks_damaged: bool,
    last_scan: Option<Monotonic>,
    /// Something failed and is repeated at this time.
    pub(super) retry_at: Option<Monotonic>,
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

/// How often to scan without a hint, if other nodes may write to the partition.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

impl Shard {
    pub(super) fn drive_inbound(&mut self) {
        if self.inbound.retry_at.is_some_and(|at| at > self.now.mono) {
            return;
        }
        self.inbound.retry_at = None;
        match &mut self.inbound.stage {
            InboundStage::Idle => {
                let poll = !self.config.exclusive
                    && self
                        .inbound
                        .last_scan
                        .is_none_or(|at| super::later(at, POLL_INTERVAL) <= self.now.mono);
                let rest = self.inbound.next_page.take();
                if rest.is_none() && (self.inbound.scan_requested || poll) {
                    self.inbound.scan_requested = false;
                    self.inbound.last_scan = Some(self.now.mono);
                    return self.scan_inbound(inbound::all());
                }
                if let Some(rest) = rest {
                    self.scan_inbound(rest);
                }
            }
            InboundStage::Committing(written, rows) if *written <= self.commits.durable_batch => {
                let drop = |batch: Batch, (key, version): (Key, RowVersion)| batch.delete_if_at(key, version);
                let batch = std::mem::take(rows).into_iter().fold(Batch::checked(), drop);
                self.inbound.stage = InboundStage::Deleting;
                self.effects.push(Effect::DeleteInbound(batch));
            }
            _ => {}
        }
    }

    fn scan_inbound(&mut self, scan: Scan) {
        self.inbound.stage = InboundStage::Scanning;
        let at_once = self.config.store_limits.commit_rows_max / 4;
        self.effects.push(Effect::Scan(ScanPurpose::Inbound, scan.limit(at_once)));
    }

    pub(super) fn on_inbound_scanned(&mut self, result: Result<ScanPage, StoreError>) {
        let Ok(page) = result else {
            self.inbound.stage = InboundStage::Idle;
            self.inbound.scan_requested = true;
            self.inbound.retry_at = Some(super::later(self.now.mono, super::backoff(4)));
            return;
        };
        self.inbound.next_page = page.next;
        let mut rows = Vec::new();
        let touched = self.commits.rows_touched;
        for row in page.rows {
            match self.accept_inbound(&row.key, &row.value) {
                Ok(()) => rows.push((row.key, row.version)),
                Err(reason) => self.on_unreadable_row(ScanPurpose::Inbound, &row.key, reason),
            }
        }
        // Duplicates alone can be deleted at once.
        let written = if self.commits.rows_touched > touched {
            self.commits.batch_number()
        } else {
            self.commits.durable_batch
        };
        self.inbound.stage =
            if rows.is_empty() { InboundStage::Idle } else { InboundStage::Committing(written, rows) };
        self.process_local_messages();
    }

    fn accept_inbound(&mut self, key: &Key, value: &[u8]) -> Result<(), String> {
        let (source, number) = inbound::read_key(key).map_err(|error| error.to_string())?;
        let row: InboundRow = decode(value).map_err(|error| error.to_string())?;
        let addressed: AddressedMessage =
            run_message::decode(&row.message).map_err(|error| error.to_string())?;
        let last = match self.inbound.watermarks.get(&source) {
            Some(last) => *last,
            None if self.inbound.watermarks_damaged => {
                return Err(format!("the watermark of {source} cannot be read"));
            }
            None => Sequence::ZERO,
        };
        if number <= last && !fault_injected!(self, DuplicateMessage) {
            return Ok(());
        }
        self.commits.reserve(4, row.message.len() * 2 + 1024);
        let watermark = InboundWatermarkRow { last_number: number, updated_at: self.now.wall };
        self.commits.put(inbound_watermarks::key(&source), encode(&watermark));
        self.inbound.watermarks.insert(source, number);
        self.put_in_inbox(addressed.instance_id, addressed.message);
        Ok(())
    }

    pub(super) fn on_inbound_deleted(&mut self, outcome: &CommitOutcome) {
        self.inbound.stage = InboundStage::Idle;
        // The next scan finds the remaining rows, recognises them by the watermark, and deletes them.
        if !matches!(outcome, CommitOutcome::Committed(_)) {
            self.inbound.scan_requested = true;
            self.inbound.retry_at = Some(super::later(self.now.mono, super::backoff(4)));
        }
    }
}
