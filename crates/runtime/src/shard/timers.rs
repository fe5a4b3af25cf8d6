//! Timers: one row each in the store, and those of the next minute in memory.
//!
//! ```text
//!  now ├──────────── in memory ────────────┤ now + 60 s ──── only in the store ────>
//!       (refilled when less than 30 s are left)
//! ```
//!
//! A timer may fire only after its row is durable. Firing is [`schedule`](super::schedule)'s task; the meaning of a
//! timer is the run's.

use abide_store::rows::{Scan, ScanPage, StoreError};
use abide_store::tables::timers::{self, TimerKey, TimerPurpose, TimerRow};
use abide_store::tables::{decode, encode};
use abide_workflow::{CommandId, Duration, InstanceId, Timestamp};

use super::commit_queue::OnCommit;
use super::run_state::ResidentRun;
use super::schedule::DueKey;
use super::{Shard, backoff, fault_injected, later};
use crate::event::{Effect, ScanPurpose};
use crate::lease::Monotonic;
use crate::run::EntryChange;

/// The window of timers in memory.
#[derive(Debug)]
pub(super) struct TimerWindow {
    /// All timers due before this are in memory, except those of `next_page`.
    until: Option<Timestamp>,
    scanning: bool,
    /// The next page of the scan that fills the window, and the time up to which it has come.
    next_page: Option<Scan>,
    scanned_to: Timestamp,
    /// A scan failed and is repeated at this time.
    pub(super) retry_at: Option<Monotonic>,
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
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        if self.scanning || self.next_page.is_some() {
            None
        } else {
            self.until.map(|until| until.minus(REFILL))
        }
    }
}

impl Shard {
    /// Moves the window on, page by page.
    pub(super) fn drive_timer_window(&mut self) {
        if self.timer_window.scanning || self.timer_window.retry_at.is_some_and(|at| at > self.now.mono) {
            return;
        }
        self.timer_window.retry_at = None;
        let now = self.now.wall;
        if self.timer_window.next_page.is_none() {
            let from = match self.timer_window.until {
                None => Timestamp::MIN,
                Some(until) if until.since(now) > REFILL => return,
                Some(until) => until,
            };
            let until = now.plus(WINDOW).max(from);
            self.timer_window.until = Some(until);
            self.timer_window.scanned_to = from;
            self.timer_window.next_page = Some(timers::due_between(from, until));
        }
        // The timers of the next page are due after these.
        if self.schedule.count_before(self.timer_window.scanned_to, IN_MEMORY_MAX) < IN_MEMORY_MAX
            && let Some(scan) = self.timer_window.next_page.take()
        {
            self.timer_window.scanning = true;
            self.effects.push(Effect::Scan(ScanPurpose::Timers, scan));
        }
    }

    pub(super) fn on_timers_scanned(&mut self, scan: Result<ScanPage, StoreError>) {
        self.timer_window.scanning = false;
        let page = match scan {
            Ok(page) => page,
            Err(_) => {
                // Start again from the beginning: a timer that is already in memory is not added twice.
                self.timer_window.until = None;
                self.timer_window.next_page = None;
                self.timer_window.retry_at = Some(later(self.now.mono, backoff(4)));
                return;
            }
        };
        self.timer_window.next_page = page.next;
        for row in page.rows {
            let timer =
                TimerKey::from_key(&row.key).and_then(|key| Ok((key, decode::<TimerRow>(&row.value)?)));
            let read = timer.map_err(|error| error.to_string()).and_then(|(key, timer)| {
                Ok((key, InstanceId::new(timer.instance_id).map_err(|error| error.to_string())?))
            });
            match read {
                Ok((key, id)) => {
                    self.timer_window.scanned_to = key.due_at;
                    self.schedule.add(DueKey::of_timer(&key), id);
                }
                Err(reason) => self.on_unreadable_row(ScanPurpose::Timers, &row.key, reason),
            }
        }
    }

    /// The row of a timer is durable: from now on it may fire.
    pub(super) fn arm_timer(&mut self, timer: TimerKey, id: InstanceId) {
        let soon = self.timer_window.until.is_some_and(|until| timer.due_at < until);
        if soon || self.damage.hides_timer(&timer.key()) {
            self.schedule.add(DueKey::of_timer(&timer), id);
        }
    }

    pub(super) fn set_timer(
        &mut self,
        run: &mut ResidentRun,
        command: CommandId,
        fire_at: Timestamp,
        changes: &mut Vec<EntryChange>,
    ) {
        changes.push(run.bookkeeping.set_timer(command, fire_at));
        self.write_timer(run, TimerPurpose::Wait, fire_at, Some(command));
    }

    pub(super) fn write_timer(
        &mut self,
        run: &ResidentRun,
        purpose: TimerPurpose,
        due_at: Timestamp,
        command: Option<CommandId>,
    ) {
        let key = TimerKey { due_at, run_id: run.row.run_id, purpose, command };
        let id = run.instance.origin().instance_id.clone();
        let timer = TimerRow { instance_id: id.as_str().to_owned(), set_at: self.now.wall };
        if !fault_injected!(self, LostTimer) {
            self.commits.create(key.key(), encode(&timer));
        }
        self.commits.on_commit(OnCommit::ArmTimer(key, id));
    }

    pub(super) fn cancel_timer(
        &mut self,
        run: &mut ResidentRun,
        command: CommandId,
        changes: &mut Vec<EntryChange>,
    ) {
        let Some((due_at, change)) = run.bookkeeping.clear_timer(command) else { return };
        changes.push(change);
        let key =
            TimerKey { due_at, run_id: run.row.run_id, purpose: TimerPurpose::Wait, command: Some(command) };
        self.schedule.remove(&DueKey::of_timer(&key));
        self.commits.delete(key.key());
    }

    /// The run consumed the message of a fired timer.
    pub(super) fn on_timer_consumed(
        &mut self,
        run: &mut ResidentRun,
        timer: &TimerKey,
        changes: &mut Vec<EntryChange>,
    ) {
        self.delete_timer(timer);
        if let Some((_, change)) = timer.command.and_then(|command| run.bookkeeping.clear_timer(command)) {
            changes.push(change);
        }
    }

    /// Deletes the row of a timer.
    pub(super) fn delete_timer(&mut self, timer: &TimerKey) {
        self.commits.delete(timer.key());
    }
}
