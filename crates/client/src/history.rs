//! The past of a run as the server tells it: numbered facts, in the vocabulary of Durable Functions plus what JSON states need.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::instance::Failure;

/// A numbered fact.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// Position in the run's history, from 1 without gaps.
    pub sequence: u64,
    /// When: all events of a turn share it.
    pub timestamp: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub fact: Fact,
}

/// What can happen to a run.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "eventType", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the language, and named as there")]
pub enum Fact {
    /// A turn begins.
    OrchestratorStarted,
    /// A turn ends.
    OrchestratorCompleted,
    /// The run began.
    ExecutionStarted { name: String, version: String, run: u32, input: Value },
    /// A branch entered a state.
    StateEntered { branch: u32, state: String, visit: u32 },
    /// A branch left a state; at an end there is no next one.
    StateLeft { branch: u32, state: String, next: Option<String>, error: Option<Failure> },
    /// A map or parallel spawned a branch.
    BranchStarted { branch: u32, parent: u32, index: u32 },
    /// A branch succeeded, failed or was cancelled.
    BranchEnded { branch: u32, outcome: String },
    /// An activity is to be called.
    TaskScheduled { command: u64, branch: u32, activity: String, input: Value, step: String },
    /// An activity answered.
    TaskCompleted {
        command: u64,
        result: Value,
        #[serde(default)]
        late: bool,
    },
    /// A delivery failed; the attempt counts from 0.
    TaskFailed {
        command: u64,
        attempt: u32,
        error: Failure,
        retry_at: Option<Timestamp>,
        #[serde(default)]
        late: bool,
    },
    /// A timer was set, by a branch or by the workflow's own timeout.
    TimerCreated { command: u64, branch: Option<u32>, fire_at: Timestamp },
    /// A timer fired for somebody who waited.
    TimerFired { command: u64 },
    /// An external event arrived.
    EventRaised { name: String, input: Value },
    /// A child run is to be started.
    SubOrchestrationInstanceCreated {
        command: u64,
        branch: u32,
        instance_id: String,
        name: String,
        input: Value,
    },
    /// A child run completed.
    SubOrchestrationInstanceCompleted { command: u64, result: Value },
    /// A child run failed.
    SubOrchestrationInstanceFailed { command: u64, error: Failure },
    /// The run stopped moving.
    ExecutionSuspended { reason: String },
    /// The run goes on.
    ExecutionResumed { reason: String },
    /// A failed run goes on at its failed state.
    ExecutionRewound { reason: String, redrive: u32 },
    /// The run ended well.
    ExecutionCompleted { result: Value },
    /// The run failed.
    ExecutionFailed { error: Failure },
    /// The run was terminated.
    ExecutionTerminated { reason: String },
    /// The run ended and the next one began.
    ContinueAsNew { input: Value },
    /// Everything else worth knowing.
    GenericEvent {
        #[serde(flatten)]
        note: Note,
    },
    /// A fact that this client does not know.
    #[serde(other)]
    Unknown,
}

/// Facts without a Durable Functions name.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of the language, and named as there")]
pub enum Note {
    /// Four fifths of the allowed transitions are used.
    TransitionsNearLimit { transitions: u64, limit: u64 },
    /// The workflow's own timeout passed; escalation begins.
    WorkflowTimedOut { timeout: String, states: Vec<String> },
    /// The escalation channel could not be told. Escalation goes on.
    EscalationNotifyFailed { error: Failure },
    /// Escalation hands over to the recovery state.
    RecoveryStarted { state: String },
    /// Recovery did not end in time, or failed.
    RecoveryFailed { error: Failure },
    /// Compensation begins.
    CompensationStarted { branch: u32, steps: u32 },
    /// One compensation finally failed. The rest still run.
    CompensationStepFailed { command: u64, activity: String, error: Failure },
    /// A compensation's input could not be made whole.
    CompensationInputIncomplete { step: String, error: Failure },
    /// Compensation is through.
    CompensationCompleted { branch: u32, succeeded: u32, failed: u32 },
    /// A note that this client does not know.
    #[serde(other)]
    Unknown,
}
