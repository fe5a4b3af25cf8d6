//! Named points where a test build can be made to abort, as if the process lost its power there.
//!
//! `ABIDE_CRASH_AT=after-commit:17` aborts the process the seventeenth time it reaches that point. In other builds a
//! crash point does nothing. The points are in the tokio driver, for the rigs; the simulator has crash points of its
//! own.

/// The crash points, in the order in which work passes them. Those after a commit, messages or public rows are passed
/// with any outcome, before the shard learns of it, and only if the store did not finish at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashPoint {
    BeforeCommit,
    AfterCommit,
    BeforeReply,
    /// Before an attempt is started; it may still have to wait for its permit.
    BeforeCall,
    /// After the transport returned, before the shard learns of the result.
    AfterCall,
    /// Before messages to another shard are sent.
    BeforeSend,
    AfterSend,
    /// Before public rows are written.
    BeforeIndex,
    AfterIndex,
}

impl CrashPoint {
    pub const ALL: [Self; 9] = [
        Self::BeforeCommit,
        Self::AfterCommit,
        Self::BeforeReply,
        Self::BeforeCall,
        Self::AfterCall,
        Self::BeforeSend,
        Self::AfterSend,
        Self::BeforeIndex,
        Self::AfterIndex,
    ];

    /// The name in `ABIDE_CRASH_AT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeCommit => "before-commit",
            Self::AfterCommit => "after-commit",
            Self::BeforeReply => "before-reply",
            Self::BeforeCall => "before-call",
            Self::AfterCall => "after-call",
            Self::BeforeSend => "before-send",
            Self::AfterSend => "after-post",
            Self::BeforeIndex => "before-index",
            Self::AfterIndex => "after-feed",
        }
    }
}

/// Aborts the process if a test chose this point and this is the chosen pass.
#[cfg(feature = "faults")]
pub(crate) fn reach(point: CrashPoint) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("ABIDE_CRASH_AT").ok()?;
        let (name, times) = text.split_once(':')?;
        Some((name.to_owned(), AtomicU64::new(times.parse().ok()?)))
    });
    if let Some((wanted, left)) = wanted
        && wanted == point.as_str()
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

#[cfg(not(feature = "faults"))]
pub(crate) fn reach(_point: CrashPoint) {}
