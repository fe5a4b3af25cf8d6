//! What is damaged in the store, as far as it is met: told once, passed over, and what follows from it.
//!
//! A shard does not stop because something cannot be read. Calls and timers that cannot be read are missed by nobody but their runs, so every live
//! run is looked at once: one whose calls cannot be read is set aside with the reason, as always; a timer is known to its run as well, and is
//! kept in memory from there.

use std::collections::HashSet;
use std::ops::{Bound, RangeBounds};

use abide_store::rows::{Damage, Key, Scan, ScanPage, StoreError};
use abide_store::tables::instances::{self, Instance as InstanceRow, RunStatus};
use abide_store::tables::{TableError, decode};
use abide_workflow::InstanceId;

use super::slot::{Item, Known, Slot, is_over};
use super::{Shard, back_off, later};
use crate::event::{Effect, Notice, ScanPurpose};
use crate::lease::Monotonic;

/// What is known of damage.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    /// Places that were told of, by their ends.
    told: HashSet<(ScanPurpose, Bound<Key>)>,
    /// Where timers cannot be read.
    timers: Vec<(Bound<Key>, Bound<Key>)>,
    /// Every run is to be looked at.
    wanted: bool,
    stage: Stage,
    /// Runs of the last page that are still to be looked at.
    looking: usize,
    /// The scan failed: not before this.
    pub(super) retry_at: Option<Monotonic>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Scanning,
    /// The runs of a page are looked at, then comes the rest.
    Looking(Option<Scan>),
}

/// Places remembered. A store with more has more to tell than matters.
const PLACES_MAX: usize = 1_000;
/// Runs looked at in one go.
const SLICE: usize = 50;

impl Damaged {
    /// Whether a timer's row cannot be found by a scan.
    pub(super) fn hides(&self, timer: &Key) -> bool {
        self.timers.iter().any(|place| place.contains(timer))
    }

    fn is_new(&mut self, purpose: ScanPurpose, damage: &Damage) -> bool {
        if self.told.len() >= PLACES_MAX {
            return false;
        }
        self.told.insert((purpose, damage.until.clone()))
    }
}

impl Shard {
    /// A place that cannot be read was passed over.
    pub(super) fn found_damage(&mut self, purpose: ScanPurpose, damage: Damage) {
        if purpose == ScanPurpose::Sources {
            self.arrivals.only_known = true;
        }
        if !self.damaged.is_new(purpose, &damage) {
            return;
        }
        self.tell(Notice::Unreadable { reason: format!("{purpose:?}: {damage}") });
        if purpose == ScanPurpose::Timers {
            self.damaged.timers.push((damage.from, damage.until));
        }
        self.damaged.wanted |= matches!(purpose, ScanPurpose::Timers | ScanPurpose::Dispatches);
    }

    /// A row cannot be read, or says what cannot be.
    pub(super) fn found_unreadable(&mut self, purpose: ScanPurpose, key: &Key, reason: String) {
        let only = || Bound::Included(key.clone());
        self.found_damage(purpose, Damage { from: only(), until: only(), reason });
    }

    /// Looks at every run, slice by slice, if something was found that may be theirs.
    pub(super) fn keep_damage(&mut self) {
        if self.damaged.retry_at.is_some_and(|at| at > self.now.mono) || self.damaged.looking > 0 {
            return;
        }
        self.damaged.retry_at = None;
        let scan = match &mut self.damaged.stage {
            Stage::Looking(rest) => rest.take(),
            Stage::Scanning => return,
            Stage::Idle => None,
        };
        let scan = match scan {
            None if std::mem::take(&mut self.damaged.wanted) => Some(instances::all().at_most(SLICE)),
            scan => scan,
        };
        self.damaged.stage = if scan.is_some() { Stage::Scanning } else { Stage::Idle };
        self.effects.extend(scan.map(|scan| Effect::Scan(ScanPurpose::Instances, scan)));
    }

    pub(super) fn on_instances(&mut self, result: Result<ScanPage, StoreError>) {
        let Ok(page) = result else {
            self.damaged.stage = Stage::Idle;
            self.damaged.wanted = true;
            self.damaged.retry_at = Some(later(self.now.mono, back_off(4)));
            return;
        };
        self.damaged.stage = Stage::Looking(page.next);
        for row in page.rows {
            match live_instance(&row.key, &row.value) {
                Ok(Some(id)) => {
                    self.damaged.looking += 1;
                    self.offer(&id, Item::Inspect);
                }
                Ok(None) => {}
                Err(reason) => self.found_unreadable(ScanPurpose::Instances, &row.key, reason),
            }
        }
    }

    /// Looks at one run. What cannot be read has been set aside by now.
    pub(super) fn inspect(&mut self, id: &InstanceId, slot: &Slot) {
        self.damaged.looking = self.damaged.looking.saturating_sub(1);
        let Known::Run(run) = &slot.known else { return };
        for timer in run.book.timer_rows(run.row.run) {
            if self.damaged.hides(&timer.key()) {
                self.schedule.add(super::schedule::DueKey::of_timer(&timer), id.clone());
            }
        }
    }
}

/// The id of an instance whose run is live and not set aside.
fn live_instance(key: &Key, value: &[u8]) -> Result<Option<InstanceId>, String> {
    let said = |error: TableError| error.to_string();
    let id = instances::read_key(key).map_err(said)?;
    let row: InstanceRow = decode(value).map_err(said)?;
    let live = !is_over(row.status) && row.status != RunStatus::Parked;
    let id = InstanceId::new(id).map_err(|error| error.to_string())?;
    Ok(live.then_some(id))
}
