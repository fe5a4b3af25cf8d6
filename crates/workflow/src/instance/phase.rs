//! The phases of a branch within its state: the explicit state machine of a run. `advance` makes the transitions.
//!
//! These types are stored: fields and variants are append-only, and tests pin their order (docs/formats/instance.md).

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::ids::CommandId;
use crate::time::Timestamp;

/// The phase of a branch within its state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The branch is about to enter its state.
    Ready,
    /// The branch waits for the result of an activity.
    Task(CallProgress),
    /// The branch waits for a point in time.
    Timer { timer: CommandId },
    /// The branch waits for an event; waiting branches are ordered by `since`.
    Event { name: String, since: u64, timer: Option<CommandId> },
    /// The branch waits for a child run.
    Child { child: CommandId, timer: Option<CommandId> },
    /// The branch waits for its branches, or has still to spawn some.
    FanOut(FanOutProgress),
    /// The descendants are being removed, a bounded number per turn; then the given action follows.
    Collapsing(AfterCollapse),
    /// Compensation steps are running.
    Compensating(CompensationProgress),
    /// The escalation channel is being notified.
    Notifying(CallProgress),
    /// The branch ended successfully; its result stays in its slot until the join.
    Succeeded,
    /// The branch ended with an error; kept for the join or for rewind.
    Failed(Failure),
}

/// Progress of a call over all its attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CallProgress {
    pub(crate) call: CommandId,
    /// Failures that count against the policy. The journal counts attempts.
    pub(crate) failures: u32,
    pub(crate) deadline: Option<Timestamp>,
    /// The current attempt: failures of earlier attempts have been counted.
    pub(crate) attempt: u32,
}

/// Progress of a map or parallel. The branches themselves are parts of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FanOutProgress {
    pub(crate) total: u32,
    /// True once the maximum number of branches ran at once: from then on the join is checked before more are spawned.
    pub(crate) reached_concurrency: bool,
    pub(crate) spawned: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
}

impl FanOutProgress {
    pub(crate) fn running(&self) -> u32 {
        self.spawned.saturating_sub(self.succeeded).saturating_sub(self.failed)
    }
}

/// The action that follows when a branch's descendants have been removed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum AfterCollapse {
    /// The join is decided: continue with the results.
    Join,
    /// Raise this error at the map or parallel.
    Raise(Failure),
    /// Fail this branch with this error.
    FailBranch(Failure),
    /// The workflow timed out: notify the escalation channel.
    Escalate,
    /// Recovery failed or timed out: compensate, then fail the run with this error.
    Compensate(Failure),
    /// Fail the run with this error.
    FailRun(Failure),
}

/// Progress of a compensation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CompensationProgress {
    /// Position in the explicit steps; recorded compensations are taken from the newest instead.
    pub(crate) position: u32,
    /// The recorded compensation that is running.
    pub(crate) record: Option<u64>,
    pub(crate) call: Option<CallProgress>,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// The error to fail the run with afterwards (escalation), instead of going to `next`.
    pub(crate) then_fail: Option<Failure>,
}
