//! What is due when, as far as it is in memory, and how fast overdue work is taken up.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_store::tables::timers::{TimerKey, TimerPurpose};
use abide_workflow::InstanceId;

use crate::lease::Monotonic;

/// Something that is due. Ordered by when.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct DueKey {
    /// When, in milliseconds of UTC since 1970.
    pub(super) at: i64,
    /// Whose.
    pub(super) run: u64,
    /// What.
    pub(super) what: What,
    /// The command, or the number of what was found, or 0.
    pub(super) number: u64,
}

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// The next delivery of a call, or the first after a restart.
    Delivery,
    /// A timer with a row.
    Timer(TimerPurpose),
    /// What recovery found, and waits in its slot.
    Found,
}

/// Due things by time.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeMap<DueKey, InstanceId>,
}

impl DueKey {
    pub(super) fn of_timer(timer: &TimerKey) -> Self {
        Self { at: timer.due_at, run: timer.run, what: What::Timer(timer.purpose), number: timer.number }
    }

    /// The timer's row, if it has one.
    pub(super) fn timer(&self) -> Option<TimerKey> {
        match self.what {
            What::Timer(purpose) => {
                Some(TimerKey { due_at: self.at, run: self.run, purpose, number: self.number })
            }
            What::Delivery | What::Found => None,
        }
    }
}

impl Schedule {
    pub(super) fn add(&mut self, key: DueKey, instance_id: InstanceId) {
        self.due.insert(key, instance_id);
    }

    pub(super) fn remove(&mut self, key: &DueKey) {
        self.due.remove(key);
    }

    pub(super) fn next_at(&self) -> Option<i64> {
        self.due.first_key_value().map(|(key, _)| key.at)
    }

    /// How many are due before this moment; counted up to a bound.
    pub(super) fn before(&self, at: i64, bound: usize) -> usize {
        self.due.keys().take(bound).take_while(|key| key.at < at).count()
    }

    /// Something that is due, but not before this moment.
    pub(super) fn pop_since(&mut self, since: i64, now: i64) -> Option<(DueKey, InstanceId)> {
        let first = DueKey { at: since, run: 0, what: What::Delivery, number: 0 };
        let key = *self.due.range(first..).next().filter(|(key, _)| key.at <= now)?.0;
        self.due.remove_entry(&key)
    }

    /// The longest overdue thing, if anything is due.
    pub(super) fn pop(&mut self, now: i64) -> Option<(DueKey, InstanceId)> {
        let first = self.due.first_entry()?;
        (first.key().at <= now).then(|| first.remove_entry())
    }
}

/// How fast overdue work is taken up: so many a second, saved up for at most a tenth of one.
#[derive(Debug)]
pub(super) struct Pace {
    per_second: u64,
    /// Thousandths of a piece of work.
    saved: u64,
    counted: Monotonic,
}

impl Pace {
    pub(super) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second.max(1));
        Self { per_second, saved: per_second * 100, counted: Monotonic(Duration::ZERO) }
    }

    /// Takes one, or says after how many milliseconds there is one.
    pub(super) fn take(&mut self, now: Monotonic) -> Result<(), u64> {
        let passed = u64::try_from(now.0.saturating_sub(self.counted.0).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            // Only what was counted: what is left of a millisecond would be lost at every look, a fifth of the rate when it is looked at often.
            self.counted = Monotonic(self.counted.0.saturating_add(Duration::from_millis(passed)));
            let saved = self.saved.saturating_add(passed.saturating_mul(self.per_second));
            self.saved = saved.min((self.per_second * 100).max(1_000));
        }
        if self.saved >= 1_000 {
            self.saved -= 1_000;
            return Ok(());
        }
        Err((1_000 - self.saved).div_ceil(self.per_second).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_work_is_taken_up_at_its_rate_and_no_faster() {
        let mut pace = Pace::new(50);
        let mut taken = 0;
        for ms in 0..10_000 {
            while pace.take(Monotonic(Duration::from_millis(ms))).is_ok() {
                taken += 1;
            }
        }
        assert!((495..=510).contains(&taken), "{taken}");
    }

    #[test]
    fn the_rate_does_not_depend_on_how_often_it_is_looked_at() {
        for every in [1, 7, 1_300, 1_999, 3_501] {
            let mut pace = Pace::new(1_000);
            let looks = (0..10_000_000 / every).map(|look| Monotonic(Duration::from_micros(look * every)));
            let taken: usize = looks.map(|now| std::iter::from_fn(|| pace.take(now).ok()).count()).sum();
            assert!((9_990..=10_110).contains(&taken), "every {every} µs: {taken}");
        }
    }

    #[test]
    fn one_a_second_is_possible() {
        let mut pace = Pace::new(1);
        let at = |ms| Monotonic(Duration::from_millis(ms));
        assert_eq!(pace.take(at(0)), Err(900));
        assert_eq!(pace.take(at(899)), Err(1));
        assert_eq!(pace.take(at(900)), Ok(()));
    }
}
