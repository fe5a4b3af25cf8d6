//! The history of a run, in the vocabulary of Durable Functions plus events for JSON states.
//!
//! A timeline and a graph of the executed path can be drawn from these events alone. Nothing is ever replayed from
//! them. Names of variants and fields are the JSON names and must not change.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::ids::{BranchId, CommandId, InstanceId, RunNumber};
use crate::json::Json;
use crate::time::{Duration, Timestamp};

/// A numbered fact of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// Position in the run's history, from 1 without gaps.
    pub sequence: u64,
    /// The turn's time: all events of a turn share it.
    #[serde(serialize_with = "as_text")]
    pub timestamp: Timestamp,
    #[serde(flatten)]
    pub fact: Fact,
}

/// Everything that can happen to a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "eventType", rename_all_fields = "camelCase")]
pub enum Fact {
    /// A turn begins.
    OrchestratorStarted,
    /// A turn ends.
    OrchestratorCompleted,
    /// The run began.
    ExecutionStarted {
        /// The definition's id.
        name: String,
        /// The definition's version.
        version: String,
        run: RunNumber,
        input: Json,
        /// Shared by everything that belongs together.
        correlation_id: String,
        /// The instance whose `workflow` state started this run.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<InstanceId>,
    },
    /// A branch entered a state.
    StateEntered {
        branch: BranchId,
        /// The state's path in the definition.
        state: String,
        /// Number of this visit, from 1.
        visit: u32,
    },
    /// A branch left a state.
    StateLeft {
        branch: BranchId,
        /// The state's path in the definition.
        state: String,
        /// The path of the next state; absent at an end.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<String>,
        /// The error that made the branch leave; also the timeout that led to `timeoutNext`.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// A map or parallel spawned a branch.
    BranchStarted {
        branch: BranchId,
        parent: BranchId,
        /// The branch's position among its siblings.
        index: u32,
    },
    /// A branch reached its end, failed or was cancelled.
    BranchEnded { branch: BranchId, outcome: BranchOutcome },
    /// A call of an activity was created.
    TaskScheduled {
        command: CommandId,
        branch: BranchId,
        activity: String,
        input: Json,
        /// The step's path in the definition.
        step: String,
    },
    /// An activity returned its result.
    TaskCompleted {
        command: CommandId,
        result: Json,
        /// True if no branch waited for the result any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// An attempt of a call failed.
    TaskFailed {
        command: CommandId,
        /// The attempt that failed, from 0.
        attempt: u32,
        error: Failure,
        /// The time of the next attempt; absent if there is none.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
        retry_at: Option<Timestamp>,
        /// True if no branch waited for the result any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// A timer was set.
    TimerCreated {
        command: CommandId,
        /// The branch that set it; absent for the workflow's own timeout.
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<BranchId>,
        #[serde(serialize_with = "as_text")]
        fire_at: Timestamp,
    },
    /// A timer fired while the run or a branch waited for it.
    TimerFired { command: CommandId },
    /// An external event arrived.
    EventRaised {
        name: String,
        /// The event's payload.
        input: Json,
    },
    /// The start of a child run was requested.
    SubOrchestrationInstanceCreated {
        command: CommandId,
        branch: BranchId,
        /// The child's instance id.
        instance_id: InstanceId,
        /// The id of the child's definition.
        name: String,
        input: Json,
    },
    /// A child run completed.
    SubOrchestrationInstanceCompleted {
        /// The command that started the child.
        command: CommandId,
        /// The child's output.
        result: Json,
        /// True if no branch waited for the result any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// A child run failed.
    SubOrchestrationInstanceFailed {
        /// The command that started the child.
        command: CommandId,
        error: Failure,
        /// True if no branch waited for the result any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// The run stopped moving.
    ExecutionSuspended {
        /// The requester and the reason, or the limit that was reached.
        reason: String,
    },
    /// The run continues after a suspension or a park.
    ExecutionResumed {
        /// The requester and the reason.
        reason: String,
    },
    /// A failed run continues at its failed state.
    ExecutionRewound {
        /// The requester and the reason.
        reason: String,
        /// How often this run has been rewound.
        redrive: u32,
        /// The steps that are done again, at most the first fifty.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        steps: Vec<RedrivenStep>,
    },
    /// The run completed.
    ExecutionCompleted {
        /// The run's output.
        result: Json,
    },
    /// The run failed.
    ExecutionFailed { error: Failure },
    /// The run was terminated.
    ExecutionTerminated {
        /// The requester and the reason.
        reason: String,
    },
    /// The run ended and the next one began.
    ContinueAsNew {
        /// The next run's input.
        input: Json,
    },
    /// A fact without a name of its own in Durable Functions.
    GenericEvent {
        #[serde(flatten)]
        note: Note,
    },
}

/// A step that a rewind does again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedrivenStep {
    /// The state's path in the definition.
    pub step: String,
    /// The positions of its branch in the maps and parallels around it, outermost first.
    pub items: Vec<u32>,
    pub key: KeyChoice,
    pub reason: KeyReason,
}

/// The idempotency key of a call that is made again. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyChoice {
    /// The key of the earlier call: a receiver that has done the work repeats its answer.
    Same,
    /// A new key: the receiver does the work again.
    New,
}

/// Why a step is done again under the same or a new key. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyReason {
    /// An attempt may have run, and was not answered.
    OutcomeUnknown,
    /// The call was in progress when the run failed.
    Interrupted,
    /// The outcome is known: the step failed for good.
    OutcomeKnown,
    /// The request asked for new keys.
    Requested,
    /// A map or parallel starts all its branches again.
    BranchesStartAgain,
    /// A `workflow` state starts a new child.
    NewChild,
}

/// Facts without a Durable Functions name.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
pub enum Note {
    /// Four fifths of the allowed transitions are used.
    TransitionsNearLimit {
        /// Number of states entered so far.
        transitions: u64,
        limit: u64,
    },
    /// The workflow's own timeout passed; escalation begins.
    WorkflowTimedOut {
        #[serde(serialize_with = "as_text")]
        timeout: Duration,
        /// Paths of the states its branches were in, at most the first twenty.
        states: Vec<String>,
    },
    /// Notifying the escalation channel failed. Escalation continues.
    EscalationNotifyFailed { error: Failure },
    /// Escalation hands over to the recovery state.
    RecoveryStarted { state: String },
    /// Recovery did not end in time, or failed.
    RecoveryFailed { error: Failure },
    /// A branch begins to compensate.
    CompensationStarted {
        branch: BranchId,
        /// Number of compensation steps.
        steps: u32,
    },
    /// One compensation step failed permanently. The others still run.
    CompensationStepFailed {
        /// The call; 0 if none was made.
        command: CommandId,
        activity: String,
        error: Failure,
    },
    /// The input of a compensation step could not be rendered completely; missing values are null.
    CompensationInputIncomplete {
        /// The path of the task to be compensated, or of the compensation step.
        step: String,
        /// The first missing value.
        error: Failure,
    },
    /// The failed compensation steps of the run, which has ended, run again.
    CompensationRetried {
        /// The requester and the reason.
        reason: String,
        /// Number of steps that run again.
        steps: u32,
    },
    /// All compensation steps have ended.
    CompensationCompleted {
        branch: BranchId,
        succeeded: u32,
        /// Number of steps that failed permanently.
        failed: u32,
    },
}

/// How a branch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BranchOutcome {
    /// The branch reached its `succeed` state.
    Succeeded,
    Failed,
    /// The branch was ended from outside, for example because the join was decided without it.
    Cancelled,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(clippy::ref_option, reason = "the signature serde requires")]
fn as_optional_text<S: serde::Serializer>(
    value: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
