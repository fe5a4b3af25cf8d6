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

use super::instance_slot::{InstanceSlot, SlotState, WorkItem, is_terminal};
use super::{Shard, backoff, later};
use crate::event::{Effect, OperatorEvent, ScanPurpose};
use crate::lease::Monotonic;

/// The damage found so far, and the progress of the check of all runs.
#[derive(Debug, Default)]
pub(super) struct DamageTracker {
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
    pub(super) retry_at: Option<Monotonic>,
}

#[derive(Debug, Default)]
enum DamageCheckStage {
    #[default]
    Idle,
    Scanning,
    /// The runs of a page are being checked; then comes the next page.
    Checking(Option<Scan>),
}

/// Reported places that are remembered. No more are reported above this.
const REPORTED_MAX: usize = 1_000;
/// Runs checked per page.
const RUNS_PER_SLICE: usize = 50;

impl DamageTracker {
    /// Returns whether a scan cannot find the row of this timer.
    pub(super) fn hides_timer(&self, timer: &Key) -> bool {
        self.timer_ranges.iter().any(|place| place.contains(timer))
    }

    fn mark_reported(&mut self, purpose: ScanPurpose, damage: &DamagedRange) -> bool {
        if self.reported.len() >= REPORTED_MAX {
            return false;
        }
        self.reported.insert((purpose, damage.until.clone()))
    }
}

impl Shard {
    /// A scan skipped a place that cannot be read.
    pub(super) fn on_damage(&mut self, purpose: ScanPurpose, damage: DamagedRange) {
        if purpose == ScanPurpose::Watermarks {
            self.inbound.watermarks_damaged = true;
        }
        if !self.damage.mark_reported(purpose, &damage) {
            return;
        }
        self.notify(OperatorEvent::Unreadable { reason: format!("{purpose:?}: {damage}") });
        if purpose == ScanPurpose::Timers {
            self.damage.timer_ranges.push((damage.from, damage.until));
        }
        self.damage.check_wanted |= matches!(purpose, ScanPurpose::Timers | ScanPurpose::Calls);
    }

    /// A row cannot be decoded, or its content is impossible.
    pub(super) fn on_unreadable_row(&mut self, purpose: ScanPurpose, key: &Key, reason: String) {
        let only = || Bound::Included(key.clone());
        self.on_damage(purpose, DamagedRange { from: only(), until: only(), reason });
    }

    /// Checks all runs, page by page, if damage was found that may concern them.
    pub(super) fn drive_damage_check(&mut self) {
        if self.damage.retry_at.is_some_and(|at| at > self.now.mono) || self.damage.checks_pending > 0 {
            return;
        }
        self.damage.retry_at = None;
        let scan = match &mut self.damage.stage {
            DamageCheckStage::Checking(rest) => rest.take(),
            DamageCheckStage::Scanning => return,
            DamageCheckStage::Idle => None,
        };
        let scan = match scan {
            None if std::mem::take(&mut self.damage.check_wanted) => {
                Some(instances::all().limit(RUNS_PER_SLICE))
            }
            scan => scan,
        };
        self.damage.stage = if scan.is_some() { DamageCheckStage::Scanning } else { DamageCheckStage::Idle };
        self.effects.extend(scan.map(|scan| Effect::Scan(ScanPurpose::Instances, scan)));
    }

    pub(super) fn on_instances_scanned(&mut self, result: Result<ScanPage, StoreError>) {
        let Ok(page) = result else {
            self.damage.stage = DamageCheckStage::Idle;
            self.damage.check_wanted = true;
            self.damage.retry_at = Some(later(self.now.mono, backoff(4)));
            return;
        };
        self.damage.stage = DamageCheckStage::Checking(page.next);
        for row in page.rows {
            match live_instance(&row.key, &row.value) {
                Ok(Some(id)) => {
                    self.damage.checks_pending += 1;
                    self.enqueue(&id, WorkItem::CheckDamage);
                }
                Ok(None) => {}
                Err(reason) => self.on_unreadable_row(ScanPurpose::Instances, &row.key, reason),
            }
        }
    }

    /// Checks one run. A run that cannot be read has been parked by now.
    pub(super) fn check_run_for_damage(&mut self, id: &InstanceId, slot: &InstanceSlot) {
        self.damage.checks_pending = self.damage.checks_pending.saturating_sub(1);
        let SlotState::Run(run) = &slot.state else { return };
        for timer in run.bookkeeping.timer_rows(run.row.run_id) {
            if self.damage.hides_timer(&timer.key()) {
                self.schedule.add(super::schedule::DueKey::of_timer(&timer), id.clone());
            }
        }
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
