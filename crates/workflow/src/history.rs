//! The past of a run, told in the vocabulary of Durable Functions plus what JSON states need.
//!
//! A timeline and a graph of the executed path can be drawn from these events alone. Nothing is ever replayed from them.

use serde::Serialize;

use crate::failure::Failure;
use crate::ids::{BranchId, CommandId, InstanceId, RunNumber};
use crate::json::Json;
use crate::time::{Duration, Timestamp};

/// A numbered fact.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// Position in the run's history, from 1 without gaps.
    pub sequence: u64,
    /// The turn's time: all events of a turn share it.
    #[serde(serialize_with = "as_text")]
    pub timestamp: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What can happen to a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "eventType", rename_all_fields = "camelCase")]
pub enum Fact {
    /// A turn begins.
    OrchestratorStarted,
    /// A turn ends.
    OrchestratorCompleted,
    /// The run began.
    ExecutionStarted {
        /// The definition.
        name: String,
        /// Its version.
        version: String,
        /// Which run of the instance.
        run: RunNumber,
        /// The input it began with.
        input: Json,
        /// Shared by everything that belongs together.
        correlation_id: String,
        /// The instance whose `workflow` state started it.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent: Option<InstanceId>,
    },
    /// A branch entered a state.
    StateEntered {
        /// On which branch.
        branch: BranchId,
        /// The state's path in the definition.
        state: String,
        /// Which visit, from 1.
        visit: u32,
    },
    /// A branch left a state.
    StateLeft {
        /// On which branch.
        branch: BranchId,
        /// The state's path in the definition.
        state: String,
        /// The path of the state it goes to; absent at an end.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<String>,
        /// The error that made it leave.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Failure>,
    },
    /// A map or parallel spawned a branch.
    BranchStarted {
        /// The new branch.
        branch: BranchId,
        /// The branch it came from.
        parent: BranchId,
        /// Its position among its siblings.
        index: u32,
    },
    /// A branch reached its end, failed or was cancelled.
    BranchEnded {
        /// Which branch.
        branch: BranchId,
        /// How.
        outcome: BranchOutcome,
    },
    /// An activity is to be called.
    TaskScheduled {
        /// The dispatch.
        command: CommandId,
        /// By which branch.
        branch: BranchId,
        /// The activity.
        activity: String,
        /// Its input.
        input: Json,
        /// The step's path.
        step: String,
    },
    /// An activity answered.
    TaskCompleted {
        /// The dispatch.
        command: CommandId,
        /// Its result.
        result: Json,
        /// Nobody waited for it any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// A delivery failed.
    TaskFailed {
        /// The dispatch.
        command: CommandId,
        /// The attempt that failed, from 0.
        attempt: u32,
        /// Why.
        error: Failure,
        /// When it is delivered again; absent when it is not.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
        retry_at: Option<Timestamp>,
        /// Nobody waited for it any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// A timer was set.
    TimerCreated {
        /// The timer.
        command: CommandId,
        /// By which branch; the workflow's own timeout by none.
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<BranchId>,
        /// When it is due.
        #[serde(serialize_with = "as_text")]
        fire_at: Timestamp,
    },
    /// A timer fired for somebody who waited.
    TimerFired {
        /// The timer.
        command: CommandId,
    },
    /// An external event arrived.
    EventRaised {
        /// Its name.
        name: String,
        /// Its payload.
        input: Json,
    },
    /// A child run is to be started.
    SubOrchestrationInstanceCreated {
        /// The command.
        command: CommandId,
        /// By which branch.
        branch: BranchId,
        /// The child.
        instance_id: InstanceId,
        /// Its definition.
        name: String,
        /// Its input.
        input: Json,
    },
    /// A child run completed.
    SubOrchestrationInstanceCompleted {
        /// The command that started it.
        command: CommandId,
        /// Its output.
        result: Json,
        /// Nobody waited for it any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// A child run failed.
    SubOrchestrationInstanceFailed {
        /// The command that started it.
        command: CommandId,
        /// Why.
        error: Failure,
        /// Nobody waited for it any more: recorded, not applied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        late: bool,
    },
    /// The run stopped moving.
    ExecutionSuspended {
        /// Who asked, or which limit was met.
        reason: String,
    },
    /// The run goes on.
    ExecutionResumed {
        /// Who asked.
        reason: String,
    },
    /// A failed run goes on at its failed state.
    ExecutionRewound {
        /// Who asked.
        reason: String,
        /// How often this run has been rewound.
        redrive: u32,
    },
    /// The run ended well.
    ExecutionCompleted {
        /// Its output.
        result: Json,
    },
    /// The run failed.
    ExecutionFailed {
        /// Why.
        error: Failure,
    },
    /// The run was terminated.
    ExecutionTerminated {
        /// Who asked.
        reason: String,
    },
    /// The run ended and the next one began.
    ContinueAsNew {
        /// The next run's input.
        input: Json,
    },
    /// Everything else worth knowing.
    GenericEvent {
        /// What it is about.
        #[serde(flatten)]
        note: Note,
    },
}

/// Facts without a Durable Functions name.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
pub enum Note {
    /// Four fifths of the allowed transitions are used.
    TransitionsNearLimit {
        /// States entered.
        transitions: u64,
        /// States that may be entered.
        limit: u64,
    },
    /// The workflow's own timeout passed; escalation begins.
    WorkflowTimedOut {
        /// After how long.
        #[serde(serialize_with = "as_text")]
        timeout: Duration,
        /// Where its branches were, the first twenty.
        states: Vec<String>,
    },
    /// The escalation channel could not be told. Escalation goes on.
    EscalationNotifyFailed {
        /// Why.
        error: Failure,
    },
    /// Escalation hands over to the recovery state.
    RecoveryStarted {
        /// The state.
        state: String,
    },
    /// Recovery did not end in time, or failed.
    RecoveryFailed {
        /// Why.
        error: Failure,
    },
    /// Compensation begins.
    CompensationStarted {
        /// On which branch.
        branch: BranchId,
        /// How many steps it has.
        steps: u32,
    },
    /// One compensation finally failed. The rest still run.
    CompensationStepFailed {
        /// The dispatch.
        command: CommandId,
        /// The activity.
        activity: String,
        /// Why.
        error: Failure,
    },
    /// A compensation's input could not be made whole; missing values are null.
    CompensationInputIncomplete {
        /// The task to be undone.
        step: String,
        /// What was missing.
        error: Failure,
    },
    /// Compensation is through.
    CompensationCompleted {
        /// On which branch.
        branch: BranchId,
        /// Steps that worked.
        succeeded: u32,
        /// Steps that finally failed.
        failed: u32,
    },
}

/// How a branch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BranchOutcome {
    /// It reached its `succeed` state.
    Succeeded,
    /// It failed.
    Failed,
    /// It lost: its siblings decided without it.
    Cancelled,
}

fn as_text<T: std::fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(clippy::ref_option, reason = "the signature serde asks for")]
fn as_optional_text<S: serde::Serializer>(
    value: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}
