//! The current time on a node: the time of day, which may jump, and the monotonic clock, which may not.
//!
//! Nothing here reads a clock; drivers do.

use abide_workflow::Timestamp;

use crate::lease::Monotonic;

/// The current time on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// Time of day: for deadlines, timers and people.
    pub wall: Timestamp,
    /// The node's monotonic clock: for leases, back-off and idle times.
    pub mono: Monotonic,
}
