//! Handles damaged rows that scans skip: reports each place once, and checks the runs that may depend on it.
//!
//! A shard does not stop because a row cannot be read. Only its run misses a damaged call or timer. So after such
//! damage every live run is loaded once: a run whose calls cannot be read is parked with the reason, as always. A run
//! also knows its own timers; those that a scan cannot find are kept in memory. Nothing is repaired here.

use std::collections::HashSet;
use std::ops::{Bound, RangeBounds};

use abide_store::rows::{DamagedRange, Key, Scan, ScanPage, StoreError};
use abide_store::tables::instances::{self, InstanceRow, RunStatus};
use abide_store::tables::{TableError, decode};
use abide_workflow::InstanceId;

use crate::event::{Effect, OperatorEvent, ScanPurpose};
use crate::lease::Monotonic;
use crate::run::run_status::is_terminal;
use crate::shard::backoff::{backoff, later};
use crate::shard::component::{Component, ComponentReads};
use crate::shard::context::Context;
use crate::shard::unit_of_work::{Step, UnitOfWork};
use crate::shard::work_item::WorkItem;

/// Rows that a component could not read, with the reasons.
pub(in crate::shard) type UnreadableRows = Vec<(Key, String)>;

/// The damage found so far, and the progress of the check of all runs.
#[derive(Debug, Default)]
pub(in crate::shard) struct DamageTracker {
    /// Reported places, by their ends.
    reported: HashSet<(ScanPurpose, Bound<Key>)>,
    /// Key ranges in which timers cannot be read.
    timer_ranges: Vec<(Bound<Key>, Bound<Key>)>,
    /// All runs are to be checked.
    check_wanted: bool,
    stage: DamageCheckStage,
    /// Runs of the last page that are not checked yet.
    checks_pending: usize,
    /// The scan failed and is repeated at this time.
    retry_at: Option<Monotonic>,
}

#[derive(Debug, Default)]
enum DamageCheckStage {
    #[default]
    Idle,
    Scanning,
    /// The runs of a page are being checked; then comes the next page.
    Checking(Option<Scan>),
}

/// Reported places that are remembered. Above this, further damage is ignored: it is not reported, causes no check, and
/// its timers are not kept in memory.
const REPORTED_MAX: usize = 1_000;
/// Runs checked per page.
const RUNS_PER_SLICE: usize = 50;

impl DamageTracker {
    /// Returns whether a scan cannot find the row of this timer.
    pub(in crate::shard) fn hides_timer(&self, timer: &Key) -> bool {
        self.timer_ranges.iter().any(|place| place.contains(timer))
    }

    /// Remembers a place. False if it was reported before, or too many are remembered already.
    fn mark_reported(&mut self, purpose: ScanPurpose, damage: &DamagedRange) -> bool {
        if self.reported.len() >= REPORTED_MAX {
            return false;
        }
        self.reported.insert((purpose, damage.until.clone()))
    }
}

impl Component for DamageTracker {
    /// Checks all runs, page by page, if damage was found that may concern them.
    fn drive(&mut self, work: &mut UnitOfWork<'_>) {
        let ctx = &mut *work.ctx;
        if self.retry_at.is_some_and(|at| at > ctx.now.mono) || self.checks_pending > 0 {
            return;
        }
        self.retry_at = None;
        let scan = match &mut self.stage {
            DamageCheckStage::Checking(rest) => rest.take(),
            DamageCheckStage::Scanning => return,
            DamageCheckStage::Idle => None,
        };
        let scan = match scan {
            None if std::mem::take(&mut self.check_wanted) => Some(instances::all().limit(RUNS_PER_SLICE)),
            scan => scan,
        };
        self.stage = if scan.is_some() { DamageCheckStage::Scanning } else { DamageCheckStage::Idle };
        ctx.effects.extend(scan.map(|scan| Effect::Scan(ScanPurpose::Instances, scan)));
    }

    fn wake(&self) -> Option<Monotonic> {
        self.retry_at
    }

    fn takes_scan(&self, purpose: ScanPurpose) -> bool {
        purpose == ScanPurpose::Instances
    }

    fn on_scanned(
        &mut self,
        work: &mut UnitOfWork<'_>,
        _reads: &ComponentReads<'_>,
        _purpose: ScanPurpose,
        result: Result<ScanPage, StoreError>,
    ) {
        let Ok(page) = result else {
            self.stage = DamageCheckStage::Idle;
            self.check_wanted = true;
            self.retry_at = Some(later(work.ctx.now.mono, backoff(4)));
            return;
        };
        self.stage = DamageCheckStage::Checking(page.next);
        for row in page.rows {
            match live_instance(&row.key, &row.value) {
                Ok(Some(id)) => {
                    self.checks_pending += 1;
                    work.add(Step::Enqueue(id, Box::new(WorkItem::CheckDamage)));
                }
                Ok(None) => {}
                Err(reason) => self.on_unreadable_row(work.ctx, ScanPurpose::Instances, &row.key, reason),
            }
        }
    }
}

impl DamageTracker {
    /// A scan of any purpose skipped a place that cannot be read. Tells the operator the first time, and has all live
    /// runs checked if it may hide calls or timers.
    pub(in crate::shard) fn on_damage(
        &mut self,
        ctx: &mut Context,
        purpose: ScanPurpose,
        damage: DamagedRange,
    ) {
        if !self.mark_reported(purpose, &damage) {
            return;
        }
        ctx.notify(OperatorEvent::Unreadable { reason: format!("{purpose:?}: {damage}") });
        if purpose == ScanPurpose::Timers {
            self.timer_ranges.push((damage.from, damage.until));
        }
        self.check_wanted |= matches!(purpose, ScanPurpose::Timers | ScanPurpose::Calls);
    }

    /// A row cannot be decoded, or its content is impossible.
    pub(in crate::shard) fn on_unreadable_row(
        &mut self,
        ctx: &mut Context,
        purpose: ScanPurpose,
        key: &Key,
        reason: String,
    ) {
        let only = || Bound::Included(key.clone());
        self.on_damage(ctx, purpose, DamagedRange { from: only(), until: only(), reason });
    }

    /// One run was checked.
    pub(in crate::shard) fn on_run_checked(&mut self) {
        self.checks_pending = self.checks_pending.saturating_sub(1);
    }
}

/// The id of an instance whose run is live and not parked.
fn live_instance(key: &Key, value: &[u8]) -> Result<Option<InstanceId>, String> {
    let to_text = |error: TableError| error.to_string();
    let id = instances::read_key(key).map_err(to_text)?;
    let row: InstanceRow = decode(value).map_err(to_text)?;
    let live = !is_terminal(row.status) && row.status != RunStatus::Parked;
    let id = InstanceId::new(id).map_err(|error| error.to_string())?;
    Ok(live.then_some(id))
}
