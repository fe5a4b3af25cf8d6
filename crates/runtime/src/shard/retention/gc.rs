//! Deletes expired rows: it scans the expiry rows that are due and deletes what they name, slice by slice.
//!
//! ```text
//!  due expiries ──> queue ──> one task: scan a slice ──> delete its rows ──> … ──> delete the expiry row
//! ```
//!
//! The expiry row goes last, so that a collection may stop anywhere and start again. Ended runs are not deleted here
//! but handed to [`retention`], which decides whether their time has come and schedules the
//! deletion of their rows.

use std::collections::{HashMap, VecDeque};

use abide_ids::{KeyDigest, RunId};
use abide_store::rows::{Key, Scan, ScanPage, StoreError};
use abide_store::tables::expiries::{self, EndedRun, ExpiryRow, ExpiryTarget};
use abide_store::tables::idempotency::{self, IdempotencyRow};
use abide_store::tables::{calls, decode, earlier_runs, entity_events, history_pages, parts, payloads};
use abide_workflow::{Duration, InstanceId};

use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::shard::backoff::later;
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::component::{Component, ComponentReads};
use crate::shard::retention;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::WorkItem;

/// The key of an expiry row.
type ExpiryKey = Key;

/// The progress of the collection.
#[derive(Debug, Default)]
pub(in crate::shard) struct GarbageCollector {
    next_scan_at: Option<Monotonic>,
    scanning: bool,
    /// The next page of due expiries.
    next_page: Option<Scan>,
    queue: VecDeque<(Key, ExpiryTarget)>,
    current: Option<GcTask>,
    /// The next slice of the current task.
    next_slice: Option<Scan>,
    /// Runs of each expiry that are not handled yet.
    open_expiries: HashMap<Key, usize>,
    /// The batch with the newest deletion. Until it is durable, a scan would find the same expiries again.
    written_batch: BatchNumber,
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
/// Rows that purging an earlier run writes.
const EARLIER_RUN_ROWS: usize = 4;

impl Component for GarbageCollector {
    fn drive(&mut self, work: &mut UnitOfWork<'_>) {
        self.drive_collection(work);
    }

    fn takes_scan(&self, purpose: ScanPurpose) -> bool {
        matches!(purpose, ScanPurpose::Expiries | ScanPurpose::RunDeletion)
    }

    fn on_scanned(
        &mut self,
        work: &mut UnitOfWork<'_>,
        _reads: &ComponentReads<'_>,
        purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        match purpose {
            ScanPurpose::Expiries => self.on_expiries_scanned(work, result),
            _ => self.on_slice(work, result),
        }
    }
}

impl GarbageCollector {
    /// Takes one step: asks for the next slice, begins the next deletion, or asks for the expiries that are due.
    fn drive_collection(&mut self, work: &mut UnitOfWork<'_>) {
        let now = work.ctx.now.mono;
        if self.scanning || !work.ctx.commits.has_capacity() {
            return;
        }
        if let Some(scan) = self.next_slice.take() {
            return work.ctx.effects.push(Effect::Scan(ScanPurpose::RunDeletion, scan));
        }
        if self.current.is_some() {
            return;
        }
        if let Some((key, target)) = self.queue.pop_front() {
            return self.begin_gc_task(work, key, target);
        }
        let next = *self.next_scan_at.get_or_insert(later(now, work.ctx.config.sweep_interval));
        if !self.open_expiries.is_empty() || self.written_batch > work.ctx.commits.durable_batch {
            return;
        }
        let scan = match self.next_page.take() {
            Some(rest) => rest,
            None if next <= now => {
                self.next_scan_at = Some(later(now, work.ctx.config.sweep_interval));
                expiries::due_before(work.ctx.now.wall.plus(Duration(1))).limit(slice_rows(work))
            }
            None => return,
        };
        self.scanning = true;
        work.ctx.effects.push(Effect::Scan(ScanPurpose::Expiries, scan));
    }

    /// Something is to be deleted at once, by an expiry row of this batch: the next scan comes when that is durable.
    pub(in crate::shard) fn collect_soon(&mut self, now: Monotonic, batch: BatchNumber) {
        self.next_scan_at = self.next_scan_at.map(|_| now);
        self.written_batch = batch;
    }

    /// Expiry rows are deleted in this batch.
    pub(in crate::shard) fn note_deleted(&mut self, batch: BatchNumber) {
        self.written_batch = batch;
    }

    /// One run of an expiry row was handled. True if it was the last one: the row is then to be deleted.
    pub(in crate::shard) fn finish_run(&mut self, expiry: &ExpiryKey) -> bool {
        let Some(left) = self.open_expiries.get_mut(expiry) else { return false };
        *left = left.saturating_sub(1);
        let done = *left == 0;
        if done {
            self.open_expiries.remove(expiry);
        }
        done
    }

    fn on_expiries_scanned(&mut self, work: &mut UnitOfWork<'_>, result: Result<ScanPage, StoreError>) {
        self.scanning = false;
        // The next scan finds them again.
        let Ok(page) = result else { return };
        self.next_page = page.next;
        for row in page.rows {
            match decode::<ExpiryRow>(&row.value) {
                Ok(expiry) => self.queue.push_back((row.key, expiry.target)),
                Err(error) => {
                    work.add(Step::Unreadable(ScanPurpose::Expiries, row.key, error.to_string()));
                }
            }
        }
    }

    /// Begins what an expiry row asks for: a deletion with its first scan, or the expiry of runs.
    fn begin_gc_task(&mut self, work: &mut UnitOfWork<'_>, key: Key, target: ExpiryTarget) {
        match target {
            ExpiryTarget::EndedRuns(ended) | ExpiryTarget::RetainedRuns { runs: ended, .. } => {
                self.expire_runs(work, &key, ended);
            }
            ExpiryTarget::EndedRunsUnnumbered(ended) => {
                let ended =
                    ended.into_iter().map(|(instance_id, run_id)| EndedRun::unnumbered(instance_id, run_id));
                self.expire_runs(work, &key, ended.collect());
            }
            ExpiryTarget::Run(run_id) => {
                self.current =
                    Some(GcTask { expiry: key, target: GcTarget::Run { run_id, table: RunTable::FIRST } });
                let scan = RunTable::FIRST.scan(run_id).limit(slice_rows(work));
                work.ctx.effects.push(Effect::Scan(ScanPurpose::RunDeletion, scan));
            }
            ExpiryTarget::IdempotencyRecord { scope, digest } => {
                let row = idempotency::key(&scope, &digest);
                self.current = Some(GcTask { expiry: key, target: GcTarget::Reply });
                work.ctx
                    .effects
                    .push(Effect::Scan(ScanPurpose::RunDeletion, Scan::prefix(row.as_bytes()).limit(1)));
            }
            ExpiryTarget::IdempotencyRecords(replies) => self.delete_next_reply(work, key, replies),
            ExpiryTarget::EntityEvents { generation, until } => {
                self.current = Some(GcTask { expiry: key, target: GcTarget::EntityEvents });
                let below =
                    Scan::range(entity_events::key(generation, 0), entity_events::key(generation, until));
                work.ctx.effects.push(Effect::Scan(ScanPurpose::RunDeletion, below.limit(slice_rows(work))));
            }
            ExpiryTarget::EarlierRuns { instance_id, before_run_id: before, revision } => {
                let target = GcTarget::EarlierRuns { before, revision };
                self.current = Some(GcTask { expiry: key, target });
                let earlier =
                    earlier_runs::of_instance(&instance_id).limit(slice_rows(work) / EARLIER_RUN_ROWS);
                work.ctx.effects.push(Effect::Scan(ScanPurpose::RunDeletion, earlier));
            }
            // Nothing writes these kinds yet.
            ExpiryTarget::Payload { .. } | ExpiryTarget::InboundWatermark(_) => {}
        }
    }

    /// Hands ended runs to their instances. The expiry row is deleted when the last of them is handled.
    fn expire_runs(&mut self, work: &mut UnitOfWork<'_>, expiry: &Key, ended: Vec<EndedRun>) {
        let known = |ended: EndedRun| Some((InstanceId::new(ended.instance_id.clone()).ok()?, ended));
        let ended: Vec<(InstanceId, EndedRun)> = ended.into_iter().filter_map(known).collect();
        if ended.is_empty() {
            work.delete(expiry.clone());
            work.add(Step::GarbageDeleted);
            return;
        }
        self.open_expiries.insert(expiry.clone(), ended.len());
        for (id, ended) in ended {
            work.add(Step::Enqueue(id, Box::new(WorkItem::Expire { ended, expiry: expiry.clone() })));
        }
    }

    /// A slice of the current deletion was scanned: deletes its rows, and goes on. If the scan failed, the deletion
    /// begins anew with a later scan of the expiries.
    fn on_slice(&mut self, work: &mut UnitOfWork<'_>, result: Result<ScanPage, StoreError>) {
        let Some(GcTask { expiry, target }) = self.current.take() else { return };
        let Ok(page) = result else { return };
        match target {
            GcTarget::EntityEvents => {
                for row in page.rows {
                    work.delete(row.key);
                }
                self.continue_gc_task(work, expiry, GcTarget::EntityEvents, page.next);
            }
            GcTarget::EarlierRuns { before, revision } => {
                for row in &page.rows {
                    retention::purge_earlier_row(work, row, before, revision);
                }
                self.continue_gc_task(work, expiry, GcTarget::EarlierRuns { before, revision }, page.next);
            }
            GcTarget::Replies(left) => {
                self.delete_expired_replies(work, page);
                self.delete_next_reply(work, expiry, left);
            }
            GcTarget::Reply => {
                self.delete_expired_replies(work, page);
                self.continue_gc_task(work, expiry, GcTarget::Reply, None);
            }
            GcTarget::Run { run_id, table } => {
                for row in page.rows {
                    work.delete(row.key);
                }
                let (table, next) = match (page.next, table.next()) {
                    (Some(rest), _) => (table, Some(rest)),
                    (None, Some(table)) => (table, Some(table.scan(run_id).limit(slice_rows(work)))),
                    (None, None) => (table, None),
                };
                self.continue_gc_task(work, expiry, GcTarget::Run { run_id, table }, next);
            }
        }
    }

    /// Continues with the next slice; or deletes the expiry row, if nothing is left.
    fn continue_gc_task(
        &mut self,
        work: &mut UnitOfWork<'_>,
        expiry: Key,
        target: GcTarget,
        left: Option<Scan>,
    ) {
        match left {
            // In a later round, so that other work gets its share.
            Some(scan) => {
                self.current = Some(GcTask { expiry, target });
                self.next_slice = Some(scan);
            }
            None => {
                work.delete(expiry);
                work.add(Step::GarbageDeleted);
            }
        }
    }

    /// Deletes the listed replies one after the other, then the expiry row.
    fn delete_next_reply(
        &mut self,
        work: &mut UnitOfWork<'_>,
        expiry: Key,
        mut replies: Vec<(String, KeyDigest)>,
    ) {
        match replies.pop() {
            Some((scope, digest)) => {
                let row = idempotency::key(&scope, &digest);
                self.current = Some(GcTask { expiry, target: GcTarget::Replies(replies) });
                work.ctx
                    .effects
                    .push(Effect::Scan(ScanPurpose::RunDeletion, Scan::prefix(row.as_bytes()).limit(1)));
            }
            None => self.continue_gc_task(work, expiry, GcTarget::Replies(replies), None),
        }
    }

    /// Deletes those of the scanned replies that have expired. One may have been stored anew since its expiry row was
    /// written; the newer expiry row then deletes it.
    fn delete_expired_replies(&mut self, work: &mut UnitOfWork<'_>, page: ScanPage) {
        for row in page.rows {
            let old = decode::<IdempotencyRow>(&row.value)
                .is_ok_and(|record| record.expires_at <= work.ctx.now.wall);
            if old {
                work.delete(row.key);
            }
        }
    }
}

/// Rows per slice: at most half a commit.
fn slice_rows(work: &UnitOfWork<'_>) -> usize {
    SLICE_MAX.min(work.ctx.config.store_limits.commit_rows_max / 2)
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
