//! Keeps the timers of the next minute in memory; the others stay in the store.
//!
//! ```text
//!  now ├──────────── in memory ────────────┤ now + 60 s ──── only in the store ────>
//!       (refilled when less than 30 s are left)
//! ```
//!
//! It writes no timer and fires none: [`timers`](crate::shard::timers) writes the rows,
//! [`schedule`](crate::shard::schedule) holds what is due. What a timer means is the run's business.

use abide_store::rows::{Scan, ScanPage, StoreError};
use abide_store::tables::decode;
use abide_store::tables::timers::{self, TimerKey, TimerRow};
use abide_workflow::{Duration, InstanceId, Timestamp};

use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::shard::backoff::{backoff, later};
use crate::shard::context::Context;
use crate::shard::recovery::damage::UnreadableRows;
use crate::shard::schedule::{DueKey, Schedule};

/// The window of timers in memory.
#[derive(Debug)]
pub(in crate::shard) struct TimerWindow {
    /// All timers due before this are in memory, except those of `next_page`.
    until: Option<Timestamp>,
    scanning: bool,
    /// The next page of the scan that fills the window, and the time up to which it has come.
    next_page: Option<Scan>,
    scanned_to: Timestamp,
    /// A scan failed and is repeated at this time.
    pub(in crate::shard) retry_at: Option<Monotonic>,
}

/// The length of the window.
const WINDOW: Duration = Duration::seconds(60);
/// The window moves on when less than this is left of it.
const REFILL: Duration = Duration::seconds(30);
/// Scheduled work above which the next page of a scan waits.
const IN_MEMORY_MAX: usize = 2_000;
impl Default for TimerWindow {
    fn default() -> Self {
        Self { until: None, scanning: false, next_page: None, scanned_to: Timestamp::MIN, retry_at: None }
    }
}

impl TimerWindow {
    /// When the window must move on.
    pub(in crate::shard) fn next_at(&self) -> Option<Timestamp> {
        if self.scanning || self.next_page.is_some() {
            None
        } else {
            self.until.map(|until| until.minus(REFILL))
        }
    }
}

impl TimerWindow {
    /// Moves the window on, page by page. Called at every flush while the shard works.
    pub(in crate::shard) fn drive(&mut self, ctx: &mut Context, schedule: &Schedule) {
        if self.scanning || self.retry_at.is_some_and(|at| at > ctx.now.mono) {
            return;
        }
        self.retry_at = None;
        let now = ctx.now.wall;
        if self.next_page.is_none() {
            let from = match self.until {
                None => Timestamp::MIN,
                Some(until) if until.since(now) > REFILL => return,
                Some(until) => until,
            };
            let until = now.plus(WINDOW).max(from);
            self.until = Some(until);
            self.scanned_to = from;
            self.next_page = Some(timers::due_between(from, until));
        }
        // The timers of the next page are due after these.
        if schedule.count_before(self.scanned_to, IN_MEMORY_MAX) < IN_MEMORY_MAX
            && let Some(scan) = self.next_page.take()
        {
            self.scanning = true;
            ctx.effects.push(Effect::Scan(ScanPurpose::Timers, scan));
        }
    }

    /// Schedules the timers of a scanned page. Returns the rows that cannot be read, for the root to report.
    pub(in crate::shard) fn on_scanned(
        &mut self,
        ctx: &mut Context,
        schedule: &mut Schedule,
        scan: Result<ScanPage, StoreError>,
    ) -> UnreadableRows {
        let mut unreadable = UnreadableRows::default();
        self.scanning = false;
        let page = match scan {
            Ok(page) => page,
            Err(_) => {
                // Start again from the beginning: a timer that is already in memory is not added twice.
                self.until = None;
                self.next_page = None;
                self.retry_at = Some(later(ctx.now.mono, backoff(4)));
                return unreadable;
            }
        };
        self.next_page = page.next;
        for row in page.rows {
            let timer =
                TimerKey::from_key(&row.key).and_then(|key| Ok((key, decode::<TimerRow>(&row.value)?)));
            let read = timer.map_err(|error| error.to_string()).and_then(|(key, timer)| {
                Ok((key, InstanceId::new(timer.instance_id).map_err(|error| error.to_string())?))
            });
            match read {
                Ok((key, id)) => {
                    self.scanned_to = key.due_at;
                    schedule.add(DueKey::of_timer(&key), id);
                }
                Err(reason) => unreadable.push((row.key, reason)),
            }
        }
        unreadable
    }

    /// Returns whether all timers due at this time are in memory, so that a new one must be too.
    pub(in crate::shard) fn covers(&self, due_at: Timestamp) -> bool {
        self.until.is_some_and(|until| due_at < until)
    }
}
