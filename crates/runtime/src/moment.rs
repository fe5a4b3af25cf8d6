//! Now, as a node sees it: the time of day, which may jump, and its own clock, which may not.
//!
//! Nothing here reads a clock; drivers do.

use abide_workflow::Timestamp;

use crate::lease::Monotonic;

/// A moment on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The time of day: for deadlines, timers and people.
    pub wall: Timestamp,
    /// The node's own clock: for leases, back-off and idleness.
    pub mono: Monotonic,
}
