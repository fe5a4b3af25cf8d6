//! When a failed effect is tried again.

use std::time::Duration;

use crate::lease::Monotonic;

/// The moment this long after another.
pub(super) fn later(moment: Monotonic, by: Duration) -> Monotonic {
    Monotonic(moment.0.saturating_add(by))
}

/// The delay before the next try, by the number of failed tries.
pub(super) fn backoff(tries: u32) -> Duration {
    Duration::from_millis(20 << tries.min(7))
}
