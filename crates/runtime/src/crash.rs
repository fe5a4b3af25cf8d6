//! Named points where a test build can be made to die, as if the power of the process were cut there.
//!
//! `ABIDE_CRASH_AT=after-commit:17` ends the process the seventeenth time it comes to that point. In other builds a point is nothing.

/// Every point, in the order a piece of work passes them.
pub const POINTS: [&str; 9] = [
    "before-commit",
    "after-commit",
    "before-reply",
    "before-call",
    "after-call",
    "before-post",
    "after-post",
    "before-feed",
    "after-feed",
];

/// Dies here if this is where a test wants it.
#[cfg(feature = "faults")]
pub(crate) fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("ABIDE_CRASH_AT").ok()?;
        let (name, times) = text.split_once(':')?;
        Some((name.to_owned(), AtomicU64::new(times.parse().ok()?)))
    });
    if let Some((wanted, left)) = wanted
        && wanted == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

#[cfg(not(feature = "faults"))]
pub(crate) fn point(_name: &str) {}
