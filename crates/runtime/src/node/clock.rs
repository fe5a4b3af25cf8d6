//! The one place that reads the clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use abide_workflow::Timestamp;

use crate::lease::Monotonic;
use crate::moment::Moment;

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// Begins to count.
    #[expect(clippy::disallowed_methods, reason = "the composition root reads the clock")]
    pub(super) fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// Now.
    #[expect(clippy::disallowed_methods, reason = "the composition root reads the clock")]
    pub fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Moment { wall, mono: Monotonic(self.began.elapsed()) }
    }
}
