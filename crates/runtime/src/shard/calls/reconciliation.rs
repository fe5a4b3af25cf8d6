//! Reconciles the stored calls with the attempts that really are in progress, page by page, all the time.
//!
//! Recovery takes up every call once. After that, a call without an attempt, a scheduled attempt or a result on its way
//! would wait forever. There should be none; this finds it. It does not repair the call itself: it queues an attempt,
//! and the run decides.

use abide_dispatch::call_journal::UnsettledCall;
use abide_store::rows::{Row, Scan, ScanPage, StoreError};
use abide_store::tables::calls::{self, CallRow};
use abide_store::tables::decode;
use abide_workflow::{Duration, InstanceId};

use crate::event::{AttemptId, Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::shard::backoff::later;
use crate::shard::calls::attempts_in_flight::AttemptsInFlight;
use crate::shard::calls::open_call;
use crate::shard::component::{Component, ComponentReads};
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::WorkItem;

/// The progress of reconciliation.
#[derive(Debug, Default)]
pub(in crate::shard) struct Reconciliation {
    scanning: bool,
    /// The next page of the scan over all calls.
    next_page: Option<Scan>,
    next_scan_at: Option<Monotonic>,
}

/// Calls per page.
const PAGE_ROWS: usize = 1024;
/// How long after its time a call may still be about to be taken up.
const GRACE: Duration = Duration::seconds(5);

impl Component for Reconciliation {
    fn wake(&self) -> Option<Monotonic> {
        self.next_scan_at.filter(|_| !self.scanning)
    }

    /// Asks for the next page when it is time to; for the first one an interval after the shard began to work.
    fn drive(&mut self, work: &mut UnitOfWork<'_>) {
        let ctx = &mut *work.ctx;
        let every = ctx.config.reconcile_interval;
        let next = *self.next_scan_at.get_or_insert(later(ctx.now.mono, every));
        if self.scanning || next > ctx.now.mono {
            return;
        }
        let scan = self.next_page.take().unwrap_or_else(|| calls::all().limit(PAGE_ROWS));
        self.scanning = true;
        ctx.effects.push(Effect::Scan(ScanPurpose::Reconciliation, scan));
    }

    fn takes_scan(&self, purpose: ScanPurpose) -> bool {
        purpose == ScanPurpose::Reconciliation
    }

    fn on_scanned(
        &mut self,
        work: &mut UnitOfWork<'_>,
        reads: &ComponentReads<'_>,
        _purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        self.scanning = false;
        let mut wait = work.ctx.config.reconcile_interval;
        // The next scan finds them again.
        if let Ok(page) = result {
            if page.next.is_some() {
                // A scan over many calls is finished soon, and still leaves room for other work.
                wait /= 100;
            }
            self.next_page = page.next;
            for row in &page.rows {
                reconcile_call(work, reads.attempts, row);
            }
        }
        self.next_scan_at = Some(later(work.ctx.now.mono, wait));
    }
}

/// Queues an attempt for a call that is not in progress. Recovery has already reported rows that cannot be read.
fn reconcile_call(work: &mut UnitOfWork<'_>, attempts: &AttemptsInFlight, row: &Row) {
    let (Ok((run, _)), Ok(row)) = (calls::read_key(&row.key), decode::<CallRow<'_>>(&row.value)) else {
        return;
    };
    let Ok(instance_id) = InstanceId::new(row.instance_id.as_ref()) else { return };
    let command = row.command;
    let late = work.ctx.now.wall.minus(GRACE);
    let forgotten = match open_call::journal_of(&row) {
        UnsettledCall::Pending(_) => row.created_at <= late,
        UnsettledCall::FailedRetryable(_) => {
            row.not_before.is_some_and(|not_before| not_before.due_at() <= late)
        }
        UnsettledCall::Sent(sent) => sent.is_orphan(work.ctx.fencing_token(), late),
    };
    let id = AttemptId { instance_id, run_id: run, command, attempt: row.attempt };
    // A run in memory may be ahead of this row; it checks its own state before it sends an attempt.
    if forgotten && !attempts.contains(&id) {
        work.add(Step::Enqueue(id.instance_id, Box::new(WorkItem::TakeUpCall { run_id: run, command })));
    }
}
