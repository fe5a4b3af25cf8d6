//! What a branch is doing: the explicit state machine of a run, one variant per way of not moving.
//!
//! These types are stored: fields and variants are append-only, and their order is pinned by tests (docs/formats/instance.md).

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::ids::CommandId;
use crate::time::Timestamp;

/// What a branch is doing in its state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// About to enter its state.
    Ready,
    /// An activity is out.
    Task(Delivery),
    /// A wait for a moment.
    Timer { timer: CommandId },
    /// A wait for an event, in order of `since`.
    Event { name: String, since: u64, timer: Option<CommandId> },
    /// A child is out.
    Child { child: CommandId, timer: Option<CommandId> },
    /// Branches are out, or still to be spawned.
    FanOut(FanOut),
    /// Descendants are being removed, a bounded number per turn; then it goes on.
    Collapsing(Then),
    /// Compensations are running.
    Undoing(Undoing),
    /// The escalation channel is being told.
    Notifying(Delivery),
    /// Ended well; the result is in its slot until the join.
    Succeeded,
    /// Ended with an error; kept for the join or for rewind.
    Failed(Failure),
}

/// A dispatch in flight, as its retries are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) dispatch: CommandId,
    /// Answers that count against the policy. The journal counts attempts.
    pub(crate) failures: u32,
    pub(crate) deadline: Option<Timestamp>,
    /// The attempt that is out: failures of earlier ones have been counted.
    pub(crate) attempt: u32,
}

/// How far a map or parallel has come. The branches themselves are parts of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FanOut {
    pub(crate) total: u32,
    /// As many branches as are allowed at once have been out: from now on the join is looked at before more are spawned.
    pub(crate) filled: bool,
    pub(crate) spawned: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
}

impl FanOut {
    pub(crate) fn running(&self) -> u32 {
        self.spawned.saturating_sub(self.succeeded).saturating_sub(self.failed)
    }
}

/// What follows when a branch's descendants are gone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Then {
    /// The join is decided: go on with the results.
    Join,
    /// Raise this error at the map or parallel.
    Raise(Failure),
    /// This branch itself has failed.
    FailBranch(Failure),
    /// The workflow timed out: tell the channel.
    Escalate,
    /// Recovery failed or ran out: undo, then fail with this.
    Compensate(Failure),
    /// The run has failed with this.
    FailRun(Failure),
}

/// How far a compensation has come.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Undoing {
    /// Position in the explicit steps; records are taken from the end instead.
    pub(crate) position: u32,
    /// The record being undone.
    pub(crate) record: Option<u64>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// Fail the run with this afterwards (escalation), instead of going to `next`.
    pub(crate) then_fail: Option<Failure>,
}
