//! Times of the shard's own clock: the moment something is due, and the delay before a failed effect is tried again.
//!
//! Pure arithmetic, used by all components. The caller keeps the time and the number of tries.

use std::time::Duration;

use crate::lease::Monotonic;

/// The moment this long after another.
pub(super) fn later(moment: Monotonic, by: Duration) -> Monotonic {
    Monotonic(moment.0.saturating_add(by))
}

/// The delay before the next try: it doubles with each failed try, up to 2.56 seconds. Reads that count no tries pass a
/// fixed number.
pub(super) fn backoff(tries: u32) -> Duration {
    Duration::from_millis(20 << tries.min(7))
}
