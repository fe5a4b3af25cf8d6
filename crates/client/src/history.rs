//! The history of a run as the server returns it: numbered events, in the vocabulary of Durable Functions plus the
//! events of JSON states. An event type that this client does not know is read as `Unknown`, not as an error.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::instance::Failure;

/// One event of a run's history.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// Position in the run's history, from 1 without gaps.
    pub sequence: u64,
    /// The time of the turn; all events of a turn share it.
    pub timestamp: Timestamp,
    #[serde(flatten)]
    pub fact: Fact,
}

/// The type of a history event with its fields.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "eventType", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields have the names and meanings of the workflow language")]
pub enum Fact {
    /// A turn begins.
    OrchestratorStarted,
    /// A turn ends.
    OrchestratorCompleted,
    /// The run started.
    ExecutionStarted { name: String, version: String, run: u32, input: Value },
    /// A branch entered a state.
    StateEntered { branch: u32, state: String, visit: u32 },
    /// A branch left a state. There is no next state at the branch's end.
    StateLeft { branch: u32, state: String, next: Option<String>, error: Option<Failure> },
    /// A map or parallel state started a branch.
    BranchStarted { branch: u32, parent: u32, index: u32 },
    /// A branch succeeded, failed or was cancelled.
    BranchEnded { branch: u32, outcome: String },
    /// A call of an activity was scheduled.
    TaskScheduled { command: u64, branch: u32, activity: String, input: Value, step: String },
    /// An activity returned a result.
    TaskCompleted {
        command: u64,
        result: Value,
        #[serde(default)]
        late: bool,
    },
    /// An attempt of a call failed. Attempts count from 0.
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
    /// A timer fired that the run still waited for.
    TimerFired { command: u64 },
    /// An external event arrived.
    EventRaised { name: String, input: Value },
    /// The start of a child run was scheduled.
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
    /// The run was suspended.
    ExecutionSuspended { reason: String },
    /// The run was resumed.
    ExecutionResumed { reason: String },
    /// A failed run continues at its failed state.
    ExecutionRewound { reason: String, redrive: u32 },
    /// The run succeeded.
    ExecutionCompleted { result: Value },
    /// The run failed.
    ExecutionFailed { error: Failure },
    /// The run was terminated.
    ExecutionTerminated { reason: String },
    /// The run ended and the next one started.
    ContinueAsNew { input: Value },
    /// An event without a Durable Functions name.
    GenericEvent {
        #[serde(flatten)]
        note: Note,
    },
    /// An event type that this client does not know.
    #[serde(other)]
    Unknown,
}

/// History events without a Durable Functions name.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields have the names and meanings of the workflow language")]
pub enum Note {
    /// Four fifths of the allowed transitions are used.
    TransitionsNearLimit {
        transitions: u64,
        limit: u64,
    },
    /// The workflow's timeout has passed and escalation starts.
    WorkflowTimedOut {
        timeout: String,
        states: Vec<String>,
    },
    /// Notifying the escalation channel failed. Escalation continues.
    EscalationNotifyFailed {
        error: Failure,
    },
    /// Escalation starts the recovery state.
    RecoveryStarted {
        state: String,
    },
    /// Recovery did not end in time, or failed.
    RecoveryFailed {
        error: Failure,
    },
    CompensationStarted {
        branch: u32,
        steps: u32,
    },
    /// One compensation failed permanently. The others still run.
    CompensationStepFailed {
        command: u64,
        activity: String,
        error: Failure,
    },
    /// The input of a compensation could not be built completely.
    CompensationInputIncomplete {
        step: String,
        error: Failure,
    },
    /// The failed compensations of the run, which has ended, run again.
    CompensationRetried {
        reason: String,
        steps: u32,
    },
    /// Compensation has ended.
    CompensationCompleted {
        branch: u32,
        succeeded: u32,
        failed: u32,
    },
    /// A note that this client does not know.
    #[serde(other)]
    Unknown,
}
