//! Applies a shorter retention to runs that have ended already: their expiries were written under the longer one.
//!
//! It runs once after the setting became shorter: it scans the expiries that are not due yet, page by page, and moves
//! those of retained runs to the time at which their retention ends now. The head of the shard states which retention
//! all of them agree with; it is raised to the new one only after the last move, so a review that is interrupted begins
//! anew. A longer retention needs no review: an expiry that is due too early is written again. Nothing is deleted here.

use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use abide_store::tables::decode;
use abide_store::tables::expiries::{self, ExpiryRow, ExpiryTarget};

use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::shard::backoff::{backoff, later};
use crate::shard::commit::commit_queue::BatchNumber;
use crate::shard::component::{Component, ComponentReads};
use crate::shard::retention::expiry_rows;
use crate::shard::unit_of_work::UnitOfWork;

/// The progress of a review.
#[derive(Debug, Default)]
pub(in crate::shard) struct RetentionReview {
    scanning: bool,
    /// The page that is scanned, or the next one; none before the first.
    page: Option<Scan>,
    /// All pages were scanned.
    finished: bool,
    /// The batch with the last moves, or the one before it.
    moved_in: BatchNumber,
    /// When a scan that failed is to be repeated.
    retry_at: Option<Monotonic>,
}

/// The most expiries that are moved at once: each move writes two rows.
const PAGE_ROWS: usize = 50;

impl Component for RetentionReview {
    fn wake(&self) -> Option<Monotonic> {
        self.retry_at
    }

    fn drive(&mut self, work: &mut UnitOfWork<'_>) {
        let ctx = &mut *work.ctx;
        if ctx.applied_retention <= ctx.config.retention || self.scanning {
            return;
        }
        if self.finished {
            // The head goes with the next commit: with the last moves, or after them.
            if self.moved_in <= ctx.commits.durable_batch {
                ctx.applied_retention = ctx.config.retention;
            }
            return;
        }
        if !ctx.commits.has_capacity() || self.retry_at.is_some_and(|at| at > ctx.now.mono) {
            return;
        }
        self.retry_at = None;
        self.scanning = true;
        let rows = PAGE_ROWS.min(ctx.config.store_limits.commit_rows_max / 4);
        let first = || expiries::due_from(ctx.now.wall).limit(rows);
        let scan = self.page.get_or_insert_with(first).clone();
        ctx.effects.push(Effect::Scan(ScanPurpose::RetentionReview, scan));
    }

    fn takes_scan(&self, purpose: ScanPurpose) -> bool {
        purpose == ScanPurpose::RetentionReview
    }

    fn on_scanned(
        &mut self,
        work: &mut UnitOfWork<'_>,
        _reads: &ComponentReads<'_>,
        _purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        self.scanning = false;
        let Ok(page) = result else {
            self.retry_at = Some(later(work.ctx.now.mono, backoff(4)));
            return;
        };
        for row in &page.rows {
            if review(work, row) {
                self.moved_in = work.ctx.commits.batch_number();
            }
        }
        self.finished = page.next.is_none();
        self.page = page.next;
    }
}

/// Moves an expiry to the time at which the retention of its runs ends now; true if that is another time. An expiry
/// that cannot be read is reported when it is due.
fn review(work: &mut UnitOfWork<'_>, row: &Row) -> bool {
    let Ok((at, _)) = expiries::read_key(&row.key) else { return false };
    let Ok(ExpiryRow { target: ExpiryTarget::RetainedRuns { since, runs } }) = decode(&row.value) else {
        return false;
    };
    if since.plus(work.ctx.config.retention) >= at {
        return false;
    }
    work.delete(row.key.clone());
    expiry_rows::retain_runs(work, since, runs);
    true
}
