//! How many requests a second the server takes from all its clients together, if that is limited.
//!
//! Decides by the time it is given and reads no clock. What a moment did not use can be used in the next second, and no later.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A steady rate with a burst of one second's worth.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Between two requests that come steadily, in nanoseconds.
    interval_ns: u64,
    /// When the next request would be due if all had come steadily.
    due_ns: AtomicU64,
}

/// How far requests may run ahead of being steady.
const AHEAD_NS: u64 = 1_000_000_000;

impl Rate {
    pub(crate) fn per_second(requests: NonZeroU32) -> Self {
        let interval_ns = (AHEAD_NS / u64::from(requests.get())).max(1);
        Self { interval_ns, due_ns: AtomicU64::new(0) }
    }

    /// Whether one more request may come now, at this time since the server began.
    pub(crate) fn admits(&self, since_beginning: Duration) -> bool {
        let now = u64::try_from(since_beginning.as_nanos()).unwrap_or(u64::MAX);
        let next = |due: u64| {
            let due = due.max(now).saturating_add(self.interval_ns);
            (due <= now.saturating_add(AHEAD_NS)).then_some(due)
        };
        self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(rate: &Rate, at_ms: u64, asked: usize) -> usize {
        (0..asked).filter(|_| rate.admits(Duration::from_millis(at_ms))).count()
    }

    #[test]
    fn a_burst_is_one_seconds_worth_and_then_it_is_the_rate() {
        let rate = Rate::per_second(NonZeroU32::new(100).unwrap());
        assert_eq!(admitted(&rate, 0, 1_000), 100);
        assert_eq!(admitted(&rate, 0, 1_000), 0);
        assert_eq!(admitted(&rate, 10, 1_000), 1);
        assert_eq!(admitted(&rate, 510, 1_000), 50);
        assert_eq!(admitted(&rate, 1_000_000, 1_000), 100, "what was not used long ago is not saved");
    }

    #[test]
    fn over_any_ten_seconds_no_more_than_eleven_seconds_worth_are_taken() {
        let rate = Rate::per_second(NonZeroU32::new(1_000).unwrap());
        let taken: usize = (0..10_000).map(|ms| admitted(&rate, ms, 5)).sum();
        assert!((10_000..=11_000).contains(&taken), "{taken}");
    }
}
