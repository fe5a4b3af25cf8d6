//! The parts an instance is stored in: what is written once, what changes every turn, and one part for everything that can be
//! many. A turn rewrites only what it changed.
//!
//! These types are stored: fields and variants are append-only and their order is pinned by a test (docs/formats/instance.md).

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

/// Durable Functions' names for where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Status {
    /// It moves, or waits for something.
    Running,
    /// It ended well.
    Completed,
    /// It ended and the next run began.
    ContinuedAsNew,
    /// It ended with an error.
    Failed,
    /// Reserved by the vocabulary; no run of a JSON workflow has it.
    Canceled,
    /// It was ended by an order.
    Terminated,
    /// It was accepted and has not had its first turn.
    Pending,
    /// It takes messages and does not move.
    Suspended,
}

impl Status {
    /// Whether the run has ended. Terminal is absorbing, but for rewind of a failed run.
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

/// What a run began with. Written once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The instance.
    pub instance_id: InstanceId,
    /// Which of its runs.
    pub run: RunNumber,
    /// The definition's id.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Its content: a run never moves under another plan.
    pub plan_hash: PlanHash,
    /// Shared by everything that belongs together.
    pub correlation_id: String,
    /// The entity this run belongs to.
    pub entity_id: Option<String>,
    /// The run that waits for this one.
    pub parent: Option<ParentLink>,
    /// All jitter of this run comes from here.
    pub seed: u64,
    /// `$.input`
    #[serde(with = "codec::json")]
    pub input: Json,
    /// `$.event` at the start: the trigger, if there was one.
    #[serde(with = "codec::optional_json")]
    pub event: Option<Json>,
}

impl Origin {
    /// A run of a plan with nothing but its name: no input, correlated with itself, its jitter drawn from its id.
    pub fn new(instance_id: InstanceId, run: RunNumber, plan: &Plan) -> Self {
        let seed = Self::seed_of(&instance_id, run);
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

    /// The seed of a run that is given none.
    pub(crate) fn seed_of(instance_id: &InstanceId, run: RunNumber) -> u64 {
        digest_number(&[b"seed", instance_id.as_str().as_bytes(), &run.0.to_be_bytes()])
    }

    /// Instance id and run number.
    pub fn execution_id(&self) -> ExecutionId {
        ExecutionId { instance: self.instance_id.clone(), run: self.run }
    }
}

/// The `workflow` state that started this run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParentLink {
    /// The parent instance.
    pub instance_id: InstanceId,
    /// Its run.
    pub run: RunNumber,
    /// The command that started this one.
    pub command: CommandId,
}

/// What changes every turn. Small: everything that can be many has its own parts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Header {
    pub(crate) status: Status,
    pub(crate) started_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) commands: u64,
    pub(crate) branches: u32,
    pub(crate) history: u64,
    /// Counts arrivals: buffered events, held messages, compensations and waits are ordered by it.
    pub(crate) arrivals: u64,
    pub(crate) transitions: u64,
    /// Transitions at which the run is parked; raised by resume. 0 = not yet set.
    pub(crate) transitions_allowed: u64,
    pub(crate) transitions_warned: bool,
    pub(crate) redrives: u32,
    pub(crate) compensated: bool,
    pub(crate) data_bytes: u64,
    pub(crate) buffered_bytes: u64,
    /// Branches with something to do without a message, innermost last. A chain of fan-outs, so it stays short.
    pub(crate) ready: Vec<BranchId>,
    pub(crate) suspended: bool,
    pub(crate) closing: Option<Closing>,
    /// The workflow's own timeout, or the recovery's.
    pub(crate) timer: Option<CommandId>,
    pub(crate) escalation: Option<Escalation>,
    pub(crate) failed_at: Option<FailedAt>,
    /// States entered since the last message: a run that never rests is parked.
    pub(crate) entered_since_message: u64,
    /// A rewind is under way: branches from this number on are still to be looked at.
    pub(crate) rewind_from: Option<u32>,
}

/// The run is about to end: work in flight is being cancelled, a bounded number per turn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Closing {
    pub(crate) ending: Ending,
    /// Branches below this number still may have work in flight.
    pub(crate) cancel_below: u32,
}

/// How a run is about to end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Ending {
    Fail(Failure),
    Terminate(String),
}

/// How far the escalation of a workflow timeout has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Escalation {
    /// The channel is being told.
    Notifying,
    /// The recovery state has the floor.
    Recovering,
    /// Undoing, then failing.
    Compensating,
}

/// Where rewind goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct FailedAt {
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
    /// Visits of states that can repeat; the others are visited once.
    pub(crate) visits: BTreeMap<StateId, u32>,
    pub(crate) entered_at: Timestamp,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BranchParent {
    pub(crate) branch: BranchId,
    pub(crate) index: u32,
}

/// A completed task that can be undone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct UndoRecord {
    /// The branch that did it and its ancestors.
    pub(crate) branches: Vec<BranchId>,
    pub(crate) state: StateId,
    pub(crate) visit: u32,
    pub(crate) activity: String,
    #[serde(with = "codec::json")]
    pub(crate) input: Json,
    pub(crate) secrets: Vec<String>,
}

/// An event nobody has waited for yet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BufferedEvent {
    #[serde(with = "codec::json")]
    pub(crate) payload: Json,
}

/// A piece of data with its size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Slot {
    #[serde(with = "codec::json")]
    pub(crate) value: Json,
    pub(crate) bytes: u64,
}

/// What a run ended with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Its output.
    Completed(#[serde(with = "codec::json")] Json),
    /// Its error.
    Failed(Failure),
    /// Who ended it.
    Terminated(String),
    /// The next run's input.
    ContinuedAsNew(#[serde(with = "codec::json")] Json),
}
