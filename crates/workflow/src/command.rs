//! What a turn asks the world to do. A command is durable before anybody acts on it.
//!
//! Every command has the next integer id of its run. Answers name that id.

use crate::failure::Failure;
use crate::ids::{CommandId, InstanceId};
use crate::json::Json;
use crate::time::{Duration, Timestamp};

/// A numbered request.
#[derive(Clone, PartialEq, Debug)]
pub struct Command {
    /// Its number within the run.
    pub id: CommandId,
    /// What to do.
    pub kind: CommandKind,
}

/// What can be asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum CommandKind {
    /// Dispatch an activity. Its first attempt is 0.
    StartActivity(StartActivity),
    /// Deliver a dispatch again, on the same journal record.
    Redeliver {
        /// The dispatch.
        dispatch: CommandId,
        /// The attempt to record: one more than the one that failed.
        attempt: u32,
        /// Not earlier than this.
        not_before: Timestamp,
    },
    /// Nobody waits for this dispatch any more.
    CancelActivity {
        /// The dispatch.
        dispatch: CommandId,
    },
    /// Wake the instance with `TimerFired`.
    StartTimer {
        /// When.
        fire_at: Timestamp,
    },
    /// Nobody waits for this timer any more.
    CancelTimer {
        /// The timer.
        timer: CommandId,
    },
    /// Start a run of another instance and report its end.
    StartChild(StartChild),
    /// End a child that nobody waits for any more.
    TerminateChild {
        /// The command that started it.
        child: CommandId,
    },
    /// The run has ended well.
    Complete {
        /// Its output.
        output: Json,
    },
    /// The run has failed.
    Fail {
        /// Why.
        failure: Failure,
    },
    /// The run was terminated.
    Terminate {
        /// Who asked and why.
        reason: String,
    },
    /// The run has ended and the next one begins; it is in the turn.
    ContinueAsNew,
}

/// An activity call, decided but not yet sent.
#[derive(Clone, PartialEq, Debug)]
pub struct StartActivity {
    /// The activity's name.
    pub activity: String,
    /// Its input.
    pub input: Json,
    /// The places in the input (JSON pointers) where the author wrote `{"secretRef": …}`: what dispatch resolves. Data that
    /// merely looks like a reference is data: whoever starts a run must not choose which secret an activity is given.
    pub secrets: Vec<String>,
    /// Which piece of work this is: the idempotency key is made of it.
    pub step: StepIdentity,
    /// The whole step's absolute end, retries included.
    pub deadline: Option<Timestamp>,
    /// One delivery's limit; `None` = the activity's own or the default.
    pub attempt_timeout: Option<Duration>,
}

/// A child run, decided but not yet started.
#[derive(Clone, PartialEq, Debug)]
pub struct StartChild {
    /// The child's instance id, derived from its parent's.
    pub instance_id: InstanceId,
    /// Its definition.
    pub workflow: String,
    /// The versions that will do; `None` = the default version.
    pub version: Option<semver::VersionReq>,
    /// Its input.
    pub input: Json,
    /// Which piece of work started it.
    pub step: StepIdentity,
}

/// One visit of one state on one branch: stable over retries, restarts and nodes, different for every new piece of work. A
/// recorded compensation that was cut short and is started again is the same piece of work, and keeps its identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepIdentity {
    /// The state's path in the definition, such as `CheckAll/iterator/Check` or `Undo/steps/0`.
    pub path: String,
    /// Which visit of the state on its branch, from 1.
    pub visit: u32,
    /// How often rewind has run this visit again.
    pub redrive: u32,
    /// The fan-outs this branch came from, outermost first.
    pub lineage: Vec<Lineage>,
    /// The path of the innermost of them; `None` outside all. Not part of the identity: the state's path begins with it. It names the item
    /// that fanned out.
    pub fanned_out_by: Option<String>,
}

/// One fan-out on the way to a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// Which visit of the map or parallel.
    pub visit: u32,
    /// How often rewind has run that visit again.
    pub redrive: u32,
    /// The branch's or item's position.
    pub index: u32,
}
