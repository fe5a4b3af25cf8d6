//! The schedule of due work in memory: call attempts, timers and recovered items, by time; and the rate limit for
//! overdue work.
//!
//! Work that has just become due starts at once. Overdue work, after a restart or a jump of the clock, starts at a
//! limited rate and does not delay fresh work. The schedule does not read timers from the store
//! ([`timer_window`](crate::shard::timers::timer_window) does) and does not know what the work does.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_ids::{RunId, Sequence};
use abide_store::tables::timers::{TimerKey, TimerPurpose};
use abide_workflow::{CommandId, InstanceId, Message, Timestamp};

use crate::lease::Monotonic;
use crate::now::Now;
use crate::shard::work_item::{MessageSource, QueuedMessage, WorkItem};

/// Due work started before other events are handled. Each piece may load a run, and the events of other shards wait for
/// the same thread meanwhile.
const FIRED_PER_ROUND: usize = 8;
/// The delay before the rest is started, if there was no capacity for all due work.
const FIRE_RETRY: abide_ids::Duration = abide_ids::Duration(1);
/// Work later than this is overdue and rate-limited.
const OVERDUE: abide_ids::Duration = abide_ids::Duration::seconds(1);

/// The key of scheduled work, ordered by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::shard) struct DueKey {
    pub(in crate::shard) at: Timestamp,
    pub(in crate::shard) work: DueWork,
}

/// Scheduled work. Of the work of one time, recovered items come first, then run by run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::shard) enum DueWork {
    /// An item that recovery found and queued in its slot. The number only tells such items apart.
    Recovered {
        number: Sequence,
    },
    OfRun(RunId, RunWork),
}

/// Scheduled work of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::shard) enum RunWork {
    /// The next attempt of a call, or the first after a restart.
    Attempt(CommandId),
    /// A timer with a row, of a command or of the run itself.
    Timer(TimerPurpose, Option<CommandId>),
}

/// Scheduled work by time.
#[derive(Debug, Default)]
pub(in crate::shard) struct Schedule {
    due: BTreeMap<DueKey, InstanceId>,
}

impl DueKey {
    pub(in crate::shard) fn of_timer(timer: &TimerKey) -> Self {
        let work = RunWork::Timer(timer.purpose, timer.command);
        Self { at: timer.due_at, work: DueWork::OfRun(timer.run_id, work) }
    }

    pub(in crate::shard) fn of_attempt(at: Timestamp, run_id: RunId, command: CommandId) -> Self {
        Self { at, work: DueWork::OfRun(run_id, RunWork::Attempt(command)) }
    }

    pub(in crate::shard) fn of_recovered(at: Timestamp, number: Sequence) -> Self {
        Self { at, work: DueWork::Recovered { number } }
    }

    /// The first key of a time.
    fn first_at(at: Timestamp) -> Self {
        Self { at, work: DueWork::Recovered { number: Sequence::ZERO } }
    }
}

impl Schedule {
    pub(in crate::shard) fn add(&mut self, key: DueKey, instance_id: InstanceId) {
        self.due.insert(key, instance_id);
    }

    pub(in crate::shard) fn remove(&mut self, key: &DueKey) {
        self.due.remove(key);
    }

    pub(in crate::shard) fn next_at(&self) -> Option<Timestamp> {
        self.due.first_key_value().map(|(key, _)| key.at)
    }

    /// How much work is due before this time, counted up to a bound.
    pub(in crate::shard) fn count_before(&self, at: Timestamp, bound: usize) -> usize {
        self.due.keys().take(bound).take_while(|key| key.at < at).count()
    }

    /// Takes work that is due now and was not due before `since`.
    pub(in crate::shard) fn pop_due_since(
        &mut self,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<(DueKey, InstanceId)> {
        let key = *self.due.range(DueKey::first_at(since)..).next().filter(|(key, _)| key.at <= now)?.0;
        self.due.remove_entry(&key)
    }

    /// Takes the work that is overdue the longest, if any is due.
    pub(in crate::shard) fn pop_due(&mut self, now: Timestamp) -> Option<(DueKey, InstanceId)> {
        let first = self.due.first_entry()?;
        (first.key().at <= now).then(|| first.remove_entry())
    }
}

/// The rate limit for overdue work: a token bucket that holds the tokens of a tenth of a second, at least one.
#[derive(Debug)]
pub(in crate::shard) struct OverdueLimiter {
    per_second: u64,
    /// Thousandths of a token.
    milli_tokens: u64,
    refilled_at: Monotonic,
}

impl OverdueLimiter {
    pub(in crate::shard) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second.max(1));
        Self { per_second, milli_tokens: per_second * 100, refilled_at: Monotonic(Duration::ZERO) }
    }

    /// Takes one token, or returns the milliseconds until there is one.
    pub(in crate::shard) fn try_take(&mut self, now: Monotonic) -> Result<(), u64> {
        let passed = u64::try_from(now.0.saturating_sub(self.refilled_at.0).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            // Only by whole milliseconds: the rest of a millisecond would be lost at every call, a fifth of the rate if
            // called often.
            self.refilled_at = Monotonic(self.refilled_at.0.saturating_add(Duration::from_millis(passed)));
            let saved = self.milli_tokens.saturating_add(passed.saturating_mul(self.per_second));
            self.milli_tokens = saved.min((self.per_second * 100).max(1_000));
        }
        if self.milli_tokens >= 1_000 {
            self.milli_tokens -= 1_000;
            return Ok(());
        }
        Err((1_000 - self.milli_tokens).div_ceil(self.per_second).max(1))
    }
}

/// The work that is due, and the rate limit for overdue work.
#[derive(Debug)]
pub(in crate::shard) struct DueQueue {
    pub(in crate::shard) schedule: Schedule,
    limiter: OverdueLimiter,
    paused_until: Option<Timestamp>,
    fired: usize,
}

impl DueQueue {
    pub(in crate::shard) fn new(overdue_per_second: u32) -> Self {
        let limiter = OverdueLimiter::new(overdue_per_second);
        Self { schedule: Schedule::default(), limiter, paused_until: None, fired: 0 }
    }

    /// Begins a round: some of the due work is started, then other events get their turn.
    pub(in crate::shard) fn begin_round(&mut self) {
        (self.paused_until, self.fired) = (None, 0);
    }

    /// Takes the next due work of this round: fresh work at once, overdue work at its rate. `busy` if there is no
    /// capacity for more. Work without an item is recovered: its item is in the slot of the instance.
    pub(in crate::shard) fn next(&mut self, now: Now, busy: bool) -> Option<(InstanceId, Option<WorkItem>)> {
        loop {
            if self.fired == FIRED_PER_ROUND || busy {
                self.paused_until = Some(now.wall.plus(FIRE_RETRY));
                return None;
            }
            self.fired += 1;
            let mut next = match self.paused_until {
                None => self.schedule.pop_due(now.wall),
                Some(_) => self.schedule.pop_due_since(now.wall.minus(OVERDUE), now.wall),
            };
            if let Some((due, id)) = next.take_if(|(due, _)| now.wall.since(due.at) > OVERDUE) {
                match self.limiter.try_take(now.mono) {
                    Ok(()) => next = Some((due, id)),
                    Err(wait_ms) => {
                        // Overdue work waits for the rate limit; fresh work does not.
                        self.schedule.add(due, id);
                        self.paused_until = Some(now.wall.plus(abide_ids::Duration(wait_ms)));
                        continue;
                    }
                }
            }
            return next.map(|(due, id)| (id, due.work_item()));
        }
    }

    /// When due work that had no room, or no token of the rate limit, is started.
    pub(in crate::shard) fn paused_until(&self) -> Option<Timestamp> {
        self.paused_until
    }
}

impl DueKey {
    /// The work item for this work; none if it is queued already.
    fn work_item(self) -> Option<WorkItem> {
        match self.work {
            DueWork::Recovered { .. } => None,
            DueWork::OfRun(run_id, RunWork::Attempt(command)) => {
                Some(WorkItem::TakeUpCall { run_id, command })
            }
            DueWork::OfRun(run_id, RunWork::Timer(purpose, command)) => {
                let timer = TimerKey { due_at: self.at, run_id, purpose, command };
                let Some(command) = command.filter(|_| purpose != TimerPurpose::StuckCheck) else {
                    return Some(WorkItem::StuckTimer(timer));
                };
                let message = Message::TimerFired { timer: command };
                let source = MessageSource::Timer(timer);
                Some(WorkItem::Message { run_id, envelope: QueuedMessage { message, source } })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_work_starts_at_its_rate_and_no_faster() {
        let mut limiter = OverdueLimiter::new(50);
        let mut taken = 0;
        for ms in 0..10_000 {
            while limiter.try_take(Monotonic(Duration::from_millis(ms))).is_ok() {
                taken += 1;
            }
        }
        assert!((495..=510).contains(&taken), "{taken}");
    }

    #[test]
    fn the_rate_does_not_depend_on_how_often_it_is_checked() {
        for every in [1, 7, 1_300, 1_999, 3_501] {
            let mut limiter = OverdueLimiter::new(1_000);
            let checks = (0..10_000_000 / every).map(|check| Monotonic(Duration::from_micros(check * every)));
            let taken: usize =
                checks.map(|now| std::iter::from_fn(|| limiter.try_take(now).ok()).count()).sum();
            assert!((9_990..=10_110).contains(&taken), "every {every} µs: {taken}");
        }
    }

    #[test]
    fn one_a_second_is_possible() {
        let mut limiter = OverdueLimiter::new(1);
        let at = |ms| Monotonic(Duration::from_millis(ms));
        assert_eq!(limiter.try_take(at(0)), Err(900));
        assert_eq!(limiter.try_take(at(899)), Err(1));
        assert_eq!(limiter.try_take(at(900)), Ok(()));
    }
}
