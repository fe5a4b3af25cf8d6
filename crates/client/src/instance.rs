//! The types of an instance as the server shows it. Requests about instances are in [`crate::instances`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::calls::HoldView;

/// The status of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Status {
    /// Accepted; its first turn is still to come.
    Pending,
    /// It executes, or waits for something.
    Running,
    /// It receives messages but does not execute.
    Suspended,
    /// It cannot continue and was set aside.
    Parked,
    Completed,
    /// It ended with an error.
    Failed,
    /// The operator terminated it.
    Terminated,
    /// It ended and the next run started.
    ContinuedAsNew,
    /// A status of Durable Functions that no run of a JSON workflow has.
    Canceled,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Status {
    pub fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Terminated | Self::ContinuedAsNew | Self::Canceled
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names of the variants are the words of the API.
        fmt::Debug::fmt(self, f)
    }
}

/// An instance and its current run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    pub instance_id: String,
    /// The run: the instance id and the run number.
    pub execution_id: String,
    pub workflow: String,
    pub version: String,
    pub status: Status,
    pub input: Value,
    pub output: Option<Value>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it is about.
    pub entity_id: Option<String>,
    pub created_at_utc: Timestamp,
    /// The time of its last change.
    pub last_updated_at_utc: Timestamp,
    /// The current state of each branch.
    #[serde(default)]
    pub current_states: Vec<CurrentState>,
    /// The steps of its compensations, if any have begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<CompensationSteps>,
    /// Why it was parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_reason: Option<String>,
}

/// How many compensation steps have ended well, have failed for good, and have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CompensationSteps {
    pub done: u32,
    pub failed: u32,
    pub pending: u32,
}

/// An instance as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSummary {
    pub instance_id: String,
    /// The run: the instance id and the run number.
    pub execution_id: String,
    pub workflow: String,
    pub version: String,
    pub status: Status,
    /// The trace it belongs to.
    pub correlation_id: Option<String>,
    /// The entity it is about.
    pub entity_id: Option<String>,
    pub created_at_utc: Timestamp,
    /// The time of its last change.
    pub last_updated_at_utc: Timestamp,
    /// Why it failed, in the form of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// An error inside a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The error's name, for programs.
    pub code: String,
    /// The reason, for people.
    pub message: String,
    /// The state that raised it.
    #[serde(default)]
    pub state: Option<String>,
    /// True if another attempt may succeed.
    #[serde(default)]
    pub retryable: bool,
}

/// The current state of a branch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentState {
    /// The state's path in the definition.
    pub state: String,
    /// When the branch entered the state.
    pub since: Timestamp,
    pub waiting_for: WaitingFor,
}

/// The thing a branch waits for. `kind` determines which of the other fields are set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingFor {
    /// `nothing`, `activity`, `timer`, `event`, `child` or `branches`.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// The number of the attempt in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The number of failed attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The event's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The instance of the child run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_instance_id: Option<String>,
    /// The number of branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// The number of branches that have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u32>,
    /// When a timer fires, or an event times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What holds the call back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HoldView>,
}
