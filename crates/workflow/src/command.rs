//! Commands: the requests that a turn makes to the runtime around it. This module does not execute them.
//!
//! Every command has the next integer id of its run, and results name that id. A command is durable before the runtime
//! acts on it.

use crate::failure::Failure;
use crate::ids::{CommandId, InstanceId};
use crate::json::Json;
use crate::time::{Duration, Timestamp};

/// A numbered request of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Command {
    /// The command's number within the run.
    pub id: CommandId,
    pub kind: CommandKind,
}

/// The requests a turn can make.
#[derive(Clone, PartialEq, Debug)]
pub enum CommandKind {
    /// Call an activity. Its first attempt is 0.
    StartActivity(StartActivity),
    /// Attempt a call again, on the same journal record.
    RetryActivity {
        call: CommandId,
        /// The attempt to record: one more than the one that failed.
        attempt: u32,
        /// The earliest time of the attempt.
        not_before: Timestamp,
    },
    /// No branch waits for this call any more.
    CancelActivity { call: CommandId },
    /// Wake the instance with `TimerFired`.
    StartTimer { fire_at: Timestamp },
    /// No branch waits for this timer any more.
    CancelTimer { timer: CommandId },
    /// Start a run of another instance and report its end.
    StartChild(StartChild),
    /// End a child run that no branch waits for any more.
    TerminateChild {
        /// The command that started the child.
        child: CommandId,
    },
    /// The run has completed.
    Complete { output: Json },
    /// The run has failed.
    Fail { failure: Failure },
    /// The run was terminated.
    Terminate {
        /// The requester and the reason.
        reason: String,
    },
    /// The run has ended and the next one begins; the next run is in the turn.
    ContinueAsNew,
}

/// An activity call, decided but not yet sent.
#[derive(Clone, PartialEq, Debug)]
pub struct StartActivity {
    /// The activity's name.
    pub activity: String,
    pub input: Json,
    /// JSON pointers to the places in the input where the author wrote `{"secretRef": …}`; dispatch resolves these and
    /// no others. Data that merely looks like a reference is data: the client that starts a run must not choose which
    /// secret an activity receives.
    pub secret_pointers: Vec<String>,
    /// Identifies the piece of work: the idempotency key is derived from it.
    pub step: StepIdentity,
    /// Absolute end of the whole step, retries included.
    pub deadline: Option<Timestamp>,
    /// Time limit of one attempt; `None` = the activity's own or the default.
    pub attempt_timeout: Option<Duration>,
    /// An earlier call with this identity may have run, and its result is unknown.
    pub may_have_run: bool,
}

/// A child run, decided but not yet started.
#[derive(Clone, PartialEq, Debug)]
pub struct StartChild {
    /// The child's instance id, derived from its parent's.
    pub instance_id: InstanceId,
    /// The id of the child's definition.
    pub workflow: String,
    /// The acceptable versions; `None` = the default version.
    pub version: Option<semver::VersionReq>,
    pub input: Json,
    /// The piece of work that starts the child.
    pub step: StepIdentity,
}

/// One visit of one state on one branch: stable over retries, restarts and nodes, different for every new piece of
/// work. A recorded compensation that was interrupted and is started again is the same piece of work and keeps its
/// identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepIdentity {
    /// The state's path in the definition, such as `CheckAll/iterator/Check` or `Undo/steps/0`.
    pub path: String,
    /// Number of this visit of the state on its branch, from 1.
    pub visit: u32,
    /// How often rewind has run this visit again.
    pub redrive: u32,
    /// The fan-outs that contain this branch, outermost first.
    pub fan_outs: Vec<FanOutPosition>,
    /// The path of the innermost fan-out; `None` outside all of them. It names the state that fanned out, and is not
    /// part of the identity: the state's own path begins with it.
    pub fan_out_path: Option<String>,
}

/// One fan-out on the way to a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FanOutPosition {
    /// Number of this visit of the map or parallel.
    pub visit: u32,
    /// How often rewind has run that visit again.
    pub redrive: u32,
    /// The branch's or item's position.
    pub index: u32,
}
