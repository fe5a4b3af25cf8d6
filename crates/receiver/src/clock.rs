//! The clock of a receiver, injected so that tests control the time. It measures no durations.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use abide_ids::Timestamp;

/// Returns the current time.
#[derive(Clone)]
pub struct ReceiverClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl ReceiverClock {
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
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
            Timestamp(0).plus(since.into())
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for ReceiverClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiverClock({})", self.now())
    }
}
