//! The types of the parts an instance is stored in: one part written once, one that changes every turn, and one for
//! each element of a collection. A turn rewrites only the parts it changed. `codec` encodes them.
//!
//! These types are stored: fields and variants are append-only, and a test pins their order (docs/formats/instance.md).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::codec;
use super::phase::Phase;
use crate::failure::Failure;
use crate::ids::{
    BlockId, BranchId, CommandId, ExecutionId, InstanceId, PlanHash, RunNumber, StateId, digest_number,
};
use crate::json::Json;
use crate::plan::Plan;
use crate::time::Timestamp;

/// The status of a run, with the names of Durable Functions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Status {
    /// The run moves, or waits for something.
    Running,
    /// The run ended successfully.
    Completed,
    /// The run ended and the next one began.
    ContinuedAsNew,
    /// The run ended with an error.
    Failed,
    /// Reserved by the vocabulary; no run of a JSON workflow has it.
    Canceled,
    /// The run was ended by a control operation.
    Terminated,
    /// The run was accepted and has not had its first turn.
    Pending,
    /// The run accepts messages and does not move.
    Suspended,
}

impl Status {
    /// True if the run has ended. A terminal status is final, except that a failed run can be rewound.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::ContinuedAsNew | Self::Failed | Self::Canceled | Self::Terminated
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The data a run starts with. Written once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunOrigin {
    pub instance_id: InstanceId,
    pub run: RunNumber,
    /// The definition's id.
    pub workflow: String,
    /// The definition's version.
    pub version: String,
    /// The hash of the definition's content: a run never moves under another plan.
    pub plan_hash: PlanHash,
    /// Shared by everything that belongs together.
    pub correlation_id: String,
    /// The entity this run belongs to.
    pub entity_id: Option<String>,
    /// The run that waits for this one.
    pub parent: Option<ParentLink>,
    /// All jitter of this run is derived from it.
    pub seed: u64,
    /// The value of `$.input`.
    #[serde(with = "codec::json")]
    pub input: Json,
    /// `$.event` at the start: the trigger, if there was one.
    #[serde(with = "codec::optional_json")]
    pub event: Option<Json>,
}

impl RunOrigin {
    /// A run with defaults: no input, the instance id as correlation id, and a seed derived from id and run number.
    pub fn new(instance_id: InstanceId, run: RunNumber, plan: &Plan) -> Self {
        let seed = Self::derive_seed(&instance_id, run);
        Self {
            correlation_id: instance_id.as_str().to_owned(),
            instance_id,
            run,
            workflow: plan.id().to_owned(),
            version: plan.version().to_string(),
            plan_hash: plan.hash(),
            entity_id: None,
            parent: None,
            seed,
            input: Json::default(),
            event: None,
        }
    }

    /// The default seed of a run.
    pub(crate) fn derive_seed(instance_id: &InstanceId, run: RunNumber) -> u64 {
        digest_number(&[b"seed", instance_id.as_str().as_bytes(), &run.0.to_be_bytes()])
    }

    pub fn execution_id(&self) -> ExecutionId {
        ExecutionId { instance: self.instance_id.clone(), run: self.run }
    }
}

/// The `workflow` state that started this run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParentLink {
    /// The parent's instance id.
    pub instance_id: InstanceId,
    /// The parent's run number.
    pub run: RunNumber,
    /// The parent's command that started this run.
    pub command: CommandId,
}

/// The part that changes every turn. It is small: elements of collections have their own parts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub(crate) status: Status,
    pub(crate) started_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) command_count: u64,
    pub(crate) branch_count: u32,
    pub(crate) history_count: u64,
    /// Counts arrivals: it orders buffered events, held messages, compensations and waits.
    pub(crate) arrival_count: u64,
    pub(crate) transitions: u64,
    /// Transitions at which the run is parked; raised by resume. 0 = not yet set.
    pub(crate) transitions_allowed: u64,
    pub(crate) transitions_warned: bool,
    pub(crate) redrives: u32,
    pub(crate) compensated: bool,
    pub(crate) data_bytes: u64,
    pub(crate) buffered_bytes: u64,
    /// Branches that can move without a message, innermost last. They are a chain of fan-outs, so the list stays short.
    pub(crate) ready_branches: Vec<BranchId>,
    pub(crate) suspended: bool,
    pub(crate) closing: Option<ClosingProgress>,
    /// The timer of the workflow's own timeout, or of the recovery's.
    pub(crate) workflow_timer: Option<CommandId>,
    pub(crate) escalation: Option<EscalationStage>,
    pub(crate) rewind_point: Option<RewindPoint>,
    /// States entered since the last message: a run that never waits is parked.
    pub(crate) entered_since_message: u64,
    /// Set during a rewind: branches from this number on are still to be processed.
    pub(crate) rewind_next_branch: Option<u32>,
}

/// Progress of a run that is about to end: calls in flight are cancelled, a bounded number per turn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ClosingProgress {
    pub(crate) ending: Ending,
    /// Branches below this number may still have calls in flight.
    pub(crate) cancel_below: u32,
}

/// How a run is about to end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Ending {
    Fail(Failure),
    Terminate(String),
}

/// The stage of the escalation after a workflow timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum EscalationStage {
    /// The escalation channel is being notified.
    Notifying,
    /// The run continues at the recovery state.
    Recovering,
    /// The run compensates, then fails.
    Compensating,
}

/// The state at which a rewind continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RewindPoint {
    pub(crate) branch: BranchId,
    pub(crate) state: StateId,
    pub(crate) visit: u32,
}

/// One line of execution: the run itself, a parallel's branch or a map's item.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Branch {
    /// The branch whose map or parallel spawned this one, and this one's position.
    pub(crate) parent: Option<BranchParent>,
    pub(crate) block: BlockId,
    pub(crate) state: StateId,
    pub(crate) visit: u32,
    pub(crate) redrive: u32,
    /// Number of visits of each repeatable state; the others are visited once.
    pub(crate) visits: BTreeMap<StateId, u32>,
    pub(crate) entered_at: Timestamp,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BranchParent {
    pub(crate) branch: BranchId,
    pub(crate) index: u32,
}

/// A completed task that can be compensated.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct CompensationRecord {
    /// The branch that ran the task, and its ancestors.
    pub(crate) branches: Vec<BranchId>,
    pub(crate) state: StateId,
    pub(crate) visit: u32,
    pub(crate) activity: String,
    #[serde(with = "codec::json")]
    pub(crate) input: Json,
    pub(crate) secret_pointers: Vec<String>,
}

/// An event that no branch has consumed yet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BufferedEvent {
    #[serde(with = "codec::json")]
    pub(crate) payload: Json,
}

/// A piece of data with its size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct DataSlot {
    #[serde(with = "codec::json")]
    pub(crate) value: Json,
    pub(crate) bytes: u64,
}

/// The result of an ended run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    Completed(#[serde(with = "codec::json")] Json),
    Failed(Failure),
    /// The requester and the reason.
    Terminated(String),
    /// The next run's input.
    ContinuedAsNew(#[serde(with = "codec::json")] Json),
}
