//! The rate limit on requests per second, over all clients together.
//!
//! Reads no clock: the caller passes the time. Unused capacity can be used within one second, and no later.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A steady rate with a burst of one second's worth.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Between two requests at the steady rate.
    interval_ns: u64,
    /// When the next request would be due if all had arrived at the steady rate.
    next_due_ns: AtomicU64,
}

/// How far requests may run ahead of the steady rate.
const BURST_NS: u64 = 1_000_000_000;

impl RateLimiter {
    pub(crate) fn per_second(requests: NonZeroU32) -> Self {
        let interval_ns = (BURST_NS / u64::from(requests.get())).max(1);
        Self { interval_ns, next_due_ns: AtomicU64::new(0) }
    }

    /// True if the rate admits one more request now, at this time since the node started; the request then counts.
    pub(crate) fn try_acquire(&self, uptime: Duration) -> bool {
        let now = u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX);
        let next = |due: u64| {
            let due = due.max(now).saturating_add(self.interval_ns);
            (due <= now.saturating_add(BURST_NS)).then_some(due)
        };
        self.next_due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(limiter: &RateLimiter, at_ms: u64, requests: usize) -> usize {
        (0..requests).filter(|_| limiter.try_acquire(Duration::from_millis(at_ms))).count()
    }

    #[test]
    fn after_a_burst_of_one_seconds_worth_the_steady_rate_applies() {
        let rate = RateLimiter::per_second(NonZeroU32::new(100).unwrap());
        assert_eq!(admitted(&rate, 0, 1_000), 100);
        assert_eq!(admitted(&rate, 0, 1_000), 0);
        assert_eq!(admitted(&rate, 10, 1_000), 1);
        assert_eq!(admitted(&rate, 510, 1_000), 50);
        assert_eq!(
            admitted(&rate, 1_000_000, 1_000),
            100,
            "capacity unused for longer than a second is lost"
        );
    }

    #[test]
    fn over_ten_seconds_at_most_eleven_seconds_worth_are_admitted() {
        let rate = RateLimiter::per_second(NonZeroU32::new(1_000).unwrap());
        let total: usize = (0..10_000).map(|ms| admitted(&rate, ms, 5)).sum();
        assert!((10_000..=11_000).contains(&total), "{total}");
    }
}
