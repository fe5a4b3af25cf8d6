//! The clock of a receiver, injected so that tests control the time. It measures no durations.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone)]
pub struct ReceiverClock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl ReceiverClock {
    pub fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The clock of the operating system.
    pub fn system() -> Self {
        Self::new(|| {
            #[expect(
                clippy::disallowed_methods,
                reason = "the program that builds the receiver chooses this clock"
            )]
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
    }

    pub(crate) fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

impl fmt::Debug for ReceiverClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiverClock({})", self.now_ms())
    }
}
