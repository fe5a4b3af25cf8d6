//! Deletes expired rows: it scans the expiry rows that are due and deletes what they name, one slice per commit.
//!
//! ```text
//!  due expiries ──> queue ──> one task: scan a slice ──> delete its rows ──> … ──> delete the expiry row
//! ```
//!
//! The expiry row goes last, so that a collection may stop anywhere and start again. Ended runs are not deleted here
//! but handed to [`retention`](super::retention), which decides whether their time has come and schedules the deletion
//! of their rows.

use std::collections::{HashMap, VecDeque};

use abide_ids::{KeyDigest, RunId};
use abide_store::rows::{Key, Scan, ScanPage, StoreError};
use abide_store::tables::expiries::{self, EndedRun, ExpiryRow, ExpiryTarget};
use abide_store::tables::idempotency::{self, IdempotencyRow};
use abide_store::tables::{calls, decode, earlier_runs, entity_events, history_pages, parts, payloads};
use abide_workflow::{Duration, InstanceId};

use super::commit_queue::BatchNumber;
use super::instance_slot::WorkItem;
use super::{Shard, later};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;

/// The key of an expiry row.
pub(super) type ExpiryKey = Key;

/// The progress of the collection.
#[derive(Debug, Default)]
pub(super) struct GarbageCollector {
    pub(super) next_scan_at: Option<Monotonic>,
    scanning: bool,
    /// The next page of due expiries.
    next_page: Option<Scan>,
    queue: VecDeque<(Key, ExpiryTarget)>,
    current: Option<GcTask>,
    /// The next slice of the current task.
    next_slice: Option<Scan>,
    /// Runs of each expiry that are not handled yet.
    pub(super) open_expiries: HashMap<Key, usize>,
    /// The batch with the newest deletion. Until it is durable, a scan would find the same expiries again.
    pub(super) written_batch: BatchNumber,
}

/// The deletion in progress.
#[derive(Debug)]
struct GcTask {
    expiry: Key,
    target: GcTarget,
}

#[derive(Debug)]
enum GcTarget {
    /// The rows of a run, one table after the other.
    Run {
        run_id: RunId,
        table: RunTable,
    },
    Reply,
    /// Stored replies: those that are left.
    Replies(Vec<(String, KeyDigest)>),
    /// Events of an entity below a position.
    EntityEvents,
    /// Earlier runs of an instance with lower run ids than this.
    EarlierRuns {
        before: RunId,
        revision: u64,
    },
}

/// The most expiries per scan, and the most rows deleted per slice.
const SLICE_MAX: usize = 100;
/// Rows that purging an earlier run writes, and their bytes.
const EARLIER_RUN_ROWS: usize = 4;
const EARLIER_RUN_BYTES: usize = 4 * 1024;

impl Shard {
    pub(super) fn drive_gc(&mut self) {
        let now = self.now.mono;
        if self.gc.scanning || !self.commits.has_capacity() {
            return;
        }
        if let Some(scan) = self.gc.next_slice.take() {
            return self.effects.push(Effect::Scan(ScanPurpose::RunDeletion, scan));
        }
        if self.gc.current.is_some() {
            return;
        }
        if let Some((key, target)) = self.gc.queue.pop_front() {
            return self.begin_gc_task(key, target);
        }
        let next = *self.gc.next_scan_at.get_or_insert(later(now, self.config.sweep_interval));
        if !self.gc.open_expiries.is_empty() || self.gc.written_batch > self.commits.durable_batch {
            return;
        }
        let scan = match self.gc.next_page.take() {
            Some(rest) => rest,
            None if next <= now => {
                self.gc.next_scan_at = Some(later(now, self.config.sweep_interval));
                expiries::due_before(self.now.wall.plus(Duration(1))).limit(self.slice_rows())
            }
            None => return,
        };
        self.gc.scanning = true;
        self.effects.push(Effect::Scan(ScanPurpose::Expiries, scan));
    }

    /// Rows per slice: at most half a commit.
    fn slice_rows(&self) -> usize {
        SLICE_MAX.min(self.config.store_limits.commit_rows_max / 2)
    }

    pub(super) fn on_expiries_scanned(&mut self, result: Result<ScanPage, StoreError>) {
        self.gc.scanning = false;
        // The next scan finds them again.
        let Ok(page) = result else { return };
        self.gc.next_page = page.next;
        for row in page.rows {
            match decode::<ExpiryRow>(&row.value) {
                Ok(expiry) => self.gc.queue.push_back((row.key, expiry.target)),
                Err(error) => self.on_unreadable_row(ScanPurpose::Expiries, &row.key, error.to_string()),
            }
        }
    }

    fn begin_gc_task(&mut self, key: Key, target: ExpiryTarget) {
        match target {
            ExpiryTarget::EndedRuns(ended) => self.expire_runs(&key, ended),
            ExpiryTarget::EndedRunsUnnumbered(ended) => {
                let ended =
                    ended.into_iter().map(|(instance_id, run_id)| EndedRun::unnumbered(instance_id, run_id));
                self.expire_runs(&key, ended.collect());
            }
            ExpiryTarget::Run(run_id) => {
                self.gc.current =
                    Some(GcTask { expiry: key, target: GcTarget::Run { run_id, table: RunTable::FIRST } });
                let scan = RunTable::FIRST.scan(run_id).limit(self.slice_rows());
                self.effects.push(Effect::Scan(ScanPurpose::RunDeletion, scan));
            }
            ExpiryTarget::IdempotencyRecord { scope, digest } => {
                let row = idempotency::key(&scope, &digest);
                self.gc.current = Some(GcTask { expiry: key, target: GcTarget::Reply });
                self.effects
                    .push(Effect::Scan(ScanPurpose::RunDeletion, Scan::prefix(row.as_bytes()).limit(1)));
            }
            ExpiryTarget::IdempotencyRecords(replies) => self.delete_next_reply(key, replies),
            ExpiryTarget::EntityEvents { generation, until } => {
                self.gc.current = Some(GcTask { expiry: key, target: GcTarget::EntityEvents });
                let below =
                    Scan::range(entity_events::key(generation, 0), entity_events::key(generation, until));
                self.effects.push(Effect::Scan(ScanPurpose::RunDeletion, below.limit(self.slice_rows())));
            }
            ExpiryTarget::EarlierRuns { instance_id, before_run_id: before, revision } => {
                let target = GcTarget::EarlierRuns { before, revision };
                self.gc.current = Some(GcTask { expiry: key, target });
                let earlier =
                    earlier_runs::of_instance(&instance_id).limit(self.slice_rows() / EARLIER_RUN_ROWS);
                self.effects.push(Effect::Scan(ScanPurpose::RunDeletion, earlier));
            }
            // Nothing writes these kinds yet.
            ExpiryTarget::Payload { .. } | ExpiryTarget::InboundWatermark(_) => {}
        }
    }

    fn expire_runs(&mut self, expiry: &Key, ended: Vec<EndedRun>) {
        let known = |ended: EndedRun| Some((InstanceId::new(ended.instance_id.clone()).ok()?, ended));
        let ended: Vec<(InstanceId, EndedRun)> = ended.into_iter().filter_map(known).collect();
        if ended.is_empty() {
            self.commits.delete(expiry.clone());
            self.gc.written_batch = self.commits.batch_number();
            return;
        }
        self.gc.open_expiries.insert(expiry.clone(), ended.len());
        for (id, ended) in ended {
            self.enqueue(&id, WorkItem::Expire { ended, expiry: expiry.clone() });
        }
    }

    pub(super) fn on_gc_slice(&mut self, result: Result<ScanPage, StoreError>) {
        let Some(GcTask { expiry, target }) = self.gc.current.take() else { return };
        // The next scan of due expiries finds it again.
        let Ok(page) = result else { return };
        let bytes =
            if let GcTarget::EarlierRuns { .. } = target { page.rows.len() * EARLIER_RUN_BYTES } else { 0 };
        self.commits.reserve(self.slice_rows() + 1, bytes);
        match target {
            GcTarget::EntityEvents => {
                for row in page.rows {
                    self.commits.delete(row.key);
                }
                self.continue_gc_task(expiry, GcTarget::EntityEvents, page.next);
            }
            GcTarget::EarlierRuns { before, revision } => {
                for row in &page.rows {
                    self.purge_earlier_row(row, before, revision);
                }
                self.continue_gc_task(expiry, GcTarget::EarlierRuns { before, revision }, page.next);
            }
            GcTarget::Replies(left) => {
                self.delete_expired_replies(page);
                self.delete_next_reply(expiry, left);
            }
            GcTarget::Reply => {
                self.delete_expired_replies(page);
                self.continue_gc_task(expiry, GcTarget::Reply, None);
            }
            GcTarget::Run { run_id, table } => {
                for row in page.rows {
                    self.commits.delete(row.key);
                }
                let (table, next) = match (page.next, table.next()) {
                    (Some(rest), _) => (table, Some(rest)),
                    (None, Some(table)) => (table, Some(table.scan(run_id).limit(self.slice_rows()))),
                    (None, None) => (table, None),
                };
                self.continue_gc_task(expiry, GcTarget::Run { run_id, table }, next);
            }
        }
    }

    /// Continues with the next slice; or deletes the expiry row, if nothing is left.
    fn continue_gc_task(&mut self, expiry: Key, target: GcTarget, left: Option<Scan>) {
        match left {
            // In a later round, so that other work gets its share.
            Some(scan) => {
                self.gc.current = Some(GcTask { expiry, target });
                self.gc.next_slice = Some(scan);
            }
            None => {
                self.commits.delete(expiry);
                self.gc.written_batch = self.commits.batch_number();
            }
        }
    }

    /// Deletes the listed replies one after the other, then the expiry row.
    fn delete_next_reply(&mut self, expiry: Key, mut replies: Vec<(String, KeyDigest)>) {
        match replies.pop() {
            Some((scope, digest)) => {
                let row = idempotency::key(&scope, &digest);
                self.gc.current = Some(GcTask { expiry, target: GcTarget::Replies(replies) });
                self.effects
                    .push(Effect::Scan(ScanPurpose::RunDeletion, Scan::prefix(row.as_bytes()).limit(1)));
            }
            None => self.continue_gc_task(expiry, GcTarget::Replies(replies), None),
        }
    }

    /// Deletes the replies that have expired. One may have been stored anew since.
    fn delete_expired_replies(&mut self, page: ScanPage) {
        for row in page.rows {
            let old =
                decode::<IdempotencyRow>(&row.value).is_ok_and(|record| record.expires_at <= self.now.wall);
            if old {
                self.commits.delete(row.key);
            }
        }
    }
}

/// The tables that have rows of a run, in the order they are cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunTable {
    HistoryPages,
    Parts,
    Payloads,
    Calls,
}

impl RunTable {
    const FIRST: Self = Self::HistoryPages;

    fn next(self) -> Option<Self> {
        match self {
            Self::HistoryPages => Some(Self::Parts),
            Self::Parts => Some(Self::Payloads),
            Self::Payloads => Some(Self::Calls),
            Self::Calls => None,
        }
    }

    fn scan(self, run_id: RunId) -> Scan {
        match self {
            Self::HistoryPages => history_pages::of_run(run_id),
            Self::Parts => parts::of_run(run_id),
            Self::Payloads => payloads::of_run(run_id),
            Self::Calls => calls::of_run(run_id),
        }
    }
}
