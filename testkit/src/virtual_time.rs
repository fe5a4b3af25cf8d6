//! Virtual time: a queue of events in the order in which they are due, and clocks that only move from one to the next.
//!
//! It does not know what an event means, nor how long anything takes: its users do. Time never goes back, and events
//! that are due at the same time happen in the order in which they were scheduled, so that a simulation repeats itself.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_runtime::Now;
use abide_runtime::lease::Monotonic;
use abide_workflow::Timestamp;

/// The time since a simulation began, and the events to come.
#[derive(Debug)]
pub struct VirtualTime<E> {
    now: Duration,
    last_number: u64,
    /// By due time, then by number.
    queue: BTreeMap<(Duration, u64), E>,
}

impl<E> Default for VirtualTime<E> {
    fn default() -> Self {
        Self { now: Duration::ZERO, last_number: 0, queue: BTreeMap::new() }
    }
}

impl<E> VirtualTime<E> {
    pub fn now(&self) -> Duration {
        self.now
    }

    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX)
    }

    pub fn now_us(&self) -> u64 {
        u64::try_from(self.now.as_micros()).unwrap_or(u64::MAX)
    }

    /// Schedules an event. One that should have happened already happens next.
    pub fn schedule_at(&mut self, at: Duration, event: E) {
        let number = self.next_number();
        self.queue.insert((at.max(self.now), number), event);
    }

    pub fn schedule_in(&mut self, wait: Duration, event: E) {
        self.schedule_at(self.now + wait, event);
    }

    /// A number that no event has, larger than all before it.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes the next event, with the time at which it was due, and moves the clock there.
    pub fn advance(&mut self) -> Option<(Duration, E)> {
        let ((due, _), event) = self.queue.pop_first()?;
        self.advance_to(due);
        Some((due, event))
    }

    /// Moves the clock, possibly past events, which then happen late.
    pub fn advance_to(&mut self, at: Duration) {
        self.now = self.now.max(at);
    }

    /// The events to come with their due times, in order.
    pub fn upcoming(&self) -> impl Iterator<Item = (Duration, &E)> {
        self.queue.iter().map(|((due, _), event)| (*due, event))
    }

    /// Drops the events for which `keep` is false. It is asked in the order in which they are due.
    pub fn retain(&mut self, mut keep: impl FnMut(&E) -> bool) {
        self.queue.retain(|_, event| keep(event));
    }
}

/// What the clocks of one node show. Nodes disagree about the time of day, and each started at another time.
#[derive(Clone, Copy, Default, Debug)]
pub struct VirtualClock {
    /// The node's time of day at the start of virtual time.
    pub wall_at_start_ms: i64,
    pub booted_at: Duration,
}

impl VirtualClock {
    /// Both clocks after this much virtual time.
    pub fn now(&self, at: Duration) -> Now {
        let elapsed_ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        Now {
            wall: Timestamp(self.wall_at_start_ms + elapsed_ms),
            mono: Monotonic(at.saturating_sub(self.booted_at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_when_due_and_in_the_order_of_their_scheduling() {
        let mut time = VirtualTime::default();
        let at = Duration::from_millis;
        for (due, name) in [(5, "late"), (2, "first"), (2, "second"), (2, "dropped")] {
            time.schedule_at(at(due), name);
        }
        time.retain(|name| *name != "dropped");
        assert_eq!(time.advance(), Some((at(2), "first")));
        // Scheduled for the past: it happens now, after what is due now already.
        time.schedule_at(at(1), "third");
        let rest: Vec<_> = std::iter::from_fn(|| time.advance()).collect();
        assert_eq!(rest, [(at(2), "second"), (at(2), "third"), (at(5), "late")]);
        assert_eq!(time.now_us(), 5_000);
    }

    #[test]
    fn a_skipped_event_happens_late_and_time_does_not_go_back() {
        let mut time = VirtualTime::default();
        time.schedule_in(Duration::from_secs(1), ());
        time.advance_to(Duration::from_secs(3));
        assert_eq!(time.advance(), Some((Duration::from_secs(1), ())));
        assert_eq!(time.now_ms(), 3_000);
    }
}
