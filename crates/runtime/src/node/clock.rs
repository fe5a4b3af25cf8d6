//! Reads the machine's clocks, for the shard tasks and the server. Nothing else in this crate does, except that an
//! attempt limits its wait for a permit by tokio's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use abide_workflow::Timestamp;

use crate::lease::Monotonic;
use crate::now::Now;

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    started_at: Instant,
}

impl NodeClock {
    /// Starts the monotonic clock.
    #[expect(clippy::disallowed_methods, reason = "the composition root reads the clock")]
    pub(super) fn new() -> Self {
        Self { started_at: Instant::now() }
    }

    /// Both clocks now. The shard tasks share the monotonic one, whose zero is the start of the node.
    #[expect(clippy::disallowed_methods, reason = "the composition root reads the clock")]
    pub fn now(&self) -> Now {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = since.as_secs().saturating_mul(1_000).saturating_add(since.subsec_millis().into());
        let wall = Timestamp(i64::try_from(wall_ms).unwrap_or(i64::MAX));
        Now { wall, mono: Monotonic(self.started_at.elapsed()) }
    }
}
