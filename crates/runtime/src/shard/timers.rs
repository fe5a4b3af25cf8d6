//! Timers: a row for each, the next minute's in memory, and what happens when one is due.

use abide_store::rows::{Scan, ScanPage, StoreError};
use abide_store::tables::timers::{self, Timer, TimerKey, TimerPurpose};
use abide_store::tables::{decode, encode};
use abide_workflow::{CommandId, InstanceId, Message, Timestamp};

use super::commits::After;
use super::schedule::{DueKey, What};
use super::slot::{Envelope, From, Item, Run};
use super::{Shard, back_off, later, planted};
use crate::event::{CallId, Effect, Notice, ScanPurpose};
use crate::lease::Monotonic;
use crate::run::{Book, Change};

/// Which timers are in memory.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// All timers due before this are in memory, but for what `rest` still has to bring.
    until: Option<i64>,
    scanning: bool,
    /// What is left of the scan that fills the window, and up to when it has come.
    rest: Option<Scan>,
    come_to: i64,
    /// A scan failed: not before this.
    pub(super) retry_at: Option<Monotonic>,
}

/// How far ahead timers are in memory, in milliseconds.
const AHEAD_MS: i64 = 60_000;
/// The window is moved on when less than this is left of it.
const REFILL_MS: i64 = 30_000;
/// Timers in memory above which the rest of a scan waits.
const IN_MEMORY_MAX: usize = 2_000;
/// Things done because they were due before other events are looked at. Each may mean reading a run, and events of other shards wait
/// for the same thread meanwhile.
const FIRE_AT_ONCE: usize = 8;
/// When to look again if there was no room for all that is due.
const FIRE_AGAIN_MS: i64 = 1;
/// What is later than this is overdue, and paced.
const OVERDUE_MS: i64 = 1_000;
/// A call that may take longer than this does not put off looking after the run, and neither does one that has, nor a run that lives longer. In
/// milliseconds.
const SHORT_MS: u64 = 60_000;
/// How often calls that take long are looked for, and how many are looked after at once.
const LOOK_AFTER_EVERY: std::time::Duration = std::time::Duration::from_secs(5);
const LOOK_AFTER_AT_ONCE: usize = 256;

/// Since when a delivery is out, and whether its run is looked after without regard to that.
#[derive(Debug)]
pub(super) struct Since {
    at: Timestamp,
    noted: bool,
}

impl Since {
    /// One that may take long has seen to it with the turn that asked for it.
    pub(super) fn new(at: Timestamp, attempt_timeout_ms: u64) -> Self {
        Self { at, noted: attempt_timeout_ms > SHORT_MS }
    }
}

impl Window {
    /// When the window must be moved on.
    pub(super) fn next_at(&self) -> Option<i64> {
        if self.scanning || self.rest.is_some() { None } else { self.until.map(|until| until - REFILL_MS) }
    }
}

impl Shard {
    /// Moves the window on.
    pub(super) fn keep_timers(&mut self) {
        if self.timers.scanning || self.timers.retry_at.is_some_and(|at| at > self.now.mono) {
            return;
        }
        self.timers.retry_at = None;
        let now = self.now.wall.0;
        if self.timers.rest.is_none() {
            let from = match self.timers.until {
                None => i64::MIN,
                Some(until) if until.saturating_sub(now) > REFILL_MS => return,
                Some(until) => until,
            };
            let until = now.saturating_add(AHEAD_MS).max(from);
            self.timers.until = Some(until);
            self.timers.come_to = from;
            self.timers.rest = Some(timers::due_between(from, until));
        }
        // What the rest would bring is due after these.
        if self.schedule.before(self.timers.come_to, IN_MEMORY_MAX) < IN_MEMORY_MAX
            && let Some(scan) = self.timers.rest.take()
        {
            self.timers.scanning = true;
            self.effects.push(Effect::Scan(ScanPurpose::Timers, scan));
        }
    }

    pub(super) fn on_timers(&mut self, scan: Result<ScanPage, StoreError>) {
        self.timers.scanning = false;
        let page = match scan {
            Ok(page) => page,
            Err(_) => {
                // Begin again from the start: what is in memory already is not added twice.
                self.timers.until = None;
                self.timers.rest = None;
                self.timers.retry_at = Some(later(self.now.mono, back_off(4)));
                return;
            }
        };
        self.timers.rest = page.next;
        for row in page.rows {
            let timer = TimerKey::read(&row.key).and_then(|key| Ok((key, decode::<Timer>(&row.value)?)));
            let read = timer.map_err(|error| error.to_string()).and_then(|(key, timer)| {
                Ok((key, InstanceId::new(timer.instance_id).map_err(|error| error.to_string())?))
            });
            match read {
                Ok((key, id)) => {
                    self.timers.come_to = key.due_at;
                    self.schedule.add(DueKey::of_timer(&key), id);
                }
                Err(reason) => self.found_unreadable(ScanPurpose::Timers, &row.key, reason),
            }
        }
    }

    /// A timer has a row: from now on it may fire.
    pub(super) fn arm_timer(&mut self, timer: TimerKey, id: InstanceId) {
        let soon = self.timers.until.is_some_and(|until| timer.due_at < until);
        if soon || self.damaged.hides(&timer.key()) {
            self.schedule.add(DueKey::of_timer(&timer), id);
        }
    }

    pub(super) fn set_timer(
        &mut self,
        run: &mut Run,
        command: CommandId,
        fire_at: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        changes.push(run.book.set_timer(command, fire_at.0));
        self.write_timer(run, TimerPurpose::Wait, fire_at.0, command.0);
    }

    fn write_timer(&mut self, run: &Run, purpose: TimerPurpose, due_at: i64, number: u64) {
        let key = TimerKey { due_at, run: run.row.run, purpose, number };
        let id = run.instance.origin().instance_id.clone();
        let timer = Timer { instance_id: id.as_str().to_owned(), set_at: self.now.wall.0 };
        if !planted!(self, LostTimer) {
            self.commits.create(key.key(), encode(&timer));
        }
        self.commits.then(After::Timer(key, id));
    }

    pub(super) fn cancel_timer(&mut self, run: &mut Run, command: CommandId, changes: &mut Vec<Change>) {
        let Some((due_at, change)) = run.book.clear_timer(command) else { return };
        changes.push(change);
        let key = TimerKey { due_at, run: run.row.run, purpose: TimerPurpose::Wait, number: command.0 };
        self.schedule.remove(&DueKey::of_timer(&key));
        self.commits.delete(key.key());
    }

    /// A firing was taken by its run.
    pub(super) fn timer_taken(&mut self, run: &mut Run, due: &DueKey, changes: &mut Vec<Change>) {
        self.drop_timer(due);
        if let Some((_, change)) = run.book.clear_timer(CommandId(due.number)) {
            changes.push(change);
        }
    }

    /// A timer nobody waits for.
    pub(super) fn drop_timer(&mut self, due: &DueKey) {
        if let Some(timer) = due.timer() {
            self.commits.delete(timer.key());
        }
    }

    /// Does what is due: fresh things at once, overdue ones at their pace.
    pub(super) fn fire_due(&mut self) {
        self.paced_until = None;
        let now = self.now.wall.0;
        for fired in 0.. {
            if fired == FIRE_AT_ONCE || self.waiting * 2 > self.config.waiting_max || !self.commits.has_room()
            {
                self.paced_until = Some(now.saturating_add(FIRE_AGAIN_MS));
                return;
            }
            let mut next = match self.paced_until {
                None => self.schedule.pop(now),
                Some(_) => self.schedule.pop_since(now.saturating_sub(OVERDUE_MS), now),
            };
            if let Some((due, id)) = next.take_if(|(due, _)| now.saturating_sub(due.at) > OVERDUE_MS) {
                match self.pace.take(self.now.mono) {
                    Ok(()) => next = Some((due, id)),
                    Err(wait_ms) => {
                        // What is overdue waits for its pace; what is fresh does not wait for it.
                        self.schedule.add(due, id);
                        let wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
                        self.paced_until = Some(now.saturating_add(wait_ms));
                        continue;
                    }
                }
            }
            let Some((due, id)) = next else { return };
            let item = match due.what {
                What::Found => {
                    self.serve(&id);
                    continue;
                }
                What::Delivery => Item::Deliver { run: due.run, command: CommandId(due.number) },
                What::Timer(TimerPurpose::StuckAfter) => Item::Stuck { run: due.run, due },
                What::Timer(_) => {
                    let message = Message::TimerFired { timer: CommandId(due.number) };
                    Item::Message { run: due.run, envelope: Envelope { message, from: From::Timer(due) } }
                }
            };
            self.offer(&id, item);
        }
    }

    /// Runs that take long are looked after: a timer says when one counts as stuck. Short calls do not take long, so a run that only makes those
    /// has none while it is young.
    pub(super) fn note_stuck(&mut self, run: &mut Run, changes: &mut Vec<Change>) {
        if run.has_ended() {
            if let Some(due_at) = run.book.stuck_at {
                changes.push(run.book.set_stuck(None));
                self.delete_stuck(run.row.run, due_at);
            }
            return;
        }
        let (None, Some(after)) = (run.book.stuck_at, run.plan.stuck_after()) else { return };
        let created_at = Timestamp(run.row.created_at);
        let old = self.now.wall.since(created_at).0 > SHORT_MS;
        let slow = |call: &super::slot::OpenCall| {
            call.dispatch.attempt > 0 || call.dispatch.attempt_timeout_ms > SHORT_MS
        };
        let rests = !run.unfinished && (run.calls.is_empty() || run.calls.values().any(slow));
        if old || rests {
            let due_at = created_at.plus(after).0;
            changes.push(run.book.set_stuck(Some(due_at)));
            self.write_timer(run, TimerPurpose::StuckAfter, due_at, 0);
        }
    }

    /// Looks for deliveries that take long, be it because they wait for their turn somewhere: their runs take no turn meanwhile.
    pub(super) fn look_after_calls(&mut self) {
        let now = self.now;
        if self.looked_after.is_some_and(|at| later(at, LOOK_AFTER_EVERY) > now.mono) {
            return;
        }
        self.looked_after = Some(now.mono);
        let is_long = |since: &Since| !since.noted && now.wall.since(since.at).0 > SHORT_MS;
        let mut long: Vec<CallId> =
            self.calling.iter().filter(|(_, since)| is_long(since)).map(|(call, _)| call.clone()).collect();
        // In an order that does not depend on where they lie in memory.
        long.sort_unstable();
        long.truncate(LOOK_AFTER_AT_ONCE);
        for call in long {
            if let Some(since) = self.calling.get_mut(&call) {
                since.noted = true;
            }
            self.offer(&call.instance_id, Item::LookAfter { run: call.run });
        }
    }

    /// A delivery of the run takes long.
    pub(super) fn look_after(&mut self, run: &mut Run) {
        let mut changes = Vec::new();
        self.note_stuck(run, &mut changes);
        if !changes.is_empty() {
            self.write_pages(run, &[], Vec::new(), changes);
            run.written = self.commits.number();
        }
    }

    fn delete_stuck(&mut self, run: u64, due_at: i64) {
        if due_at != Book::TOLD {
            let key = TimerKey { due_at, run, purpose: TimerPurpose::StuckAfter, number: 0 };
            self.schedule.remove(&DueKey::of_timer(&key));
            self.commits.delete(key.key());
        }
    }

    /// The run counts as stuck: somebody is told, once, with what its branches wait for.
    pub(super) fn found_stuck(&mut self, run: &mut Run, due: &DueKey) {
        self.commits.make_room(4, 4 * 1024);
        if run.has_ended() || run.book.stuck_at != Some(due.at) {
            return self.drop_timer(due);
        }
        self.delete_stuck(run.row.run, due.at);
        let change = run.book.set_stuck(Some(Book::TOLD));
        self.write_pages(run, &[], Vec::new(), vec![change]);
        run.written = self.commits.number();
        let instance_id = run.instance.origin().instance_id.clone();
        let why = self.why_waiting(run);
        self.commits.then(After::Effect(Effect::Tell(Notice::Stuck { instance_id, why })));
    }
}
