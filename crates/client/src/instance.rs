//! An instance as the server shows it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Status {
    /// Taken, and has not moved yet.
    Pending,
    /// It moves, or waits for something.
    Running,
    /// It takes messages and does not move.
    Suspended,
    /// It cannot go on and was set aside.
    Parked,
    /// It ended well.
    Completed,
    /// It ended with an error.
    Failed,
    /// It was ended by an order.
    Terminated,
    /// It ended and the next run began.
    ContinuedAsNew,
    /// Of the vocabulary; no run of a JSON workflow has it.
    Canceled,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// Whether the run has ended.
    pub fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Terminated | Self::ContinuedAsNew | Self::Canceled
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names are the vocabulary itself.
        fmt::Debug::fmt(self, f)
    }
}

/// An instance and its current run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The instance.
    pub instance_id: String,
    /// The run.
    pub execution_id: String,
    /// The definition.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// What it began with.
    pub input: Value,
    /// What it ended with.
    pub output: Option<Value>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it is about.
    pub entity_id: Option<String>,
    /// When it began.
    pub created_at_utc: Timestamp,
    /// When it moved last.
    pub last_updated_at_utc: Timestamp,
    /// Where its branches are.
    #[serde(default)]
    pub current_states: Vec<CurrentState>,
    /// Why it was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_reason: Option<String>,
}

/// An instance as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSummary {
    /// The instance.
    pub instance_id: String,
    /// The run.
    pub execution_id: String,
    /// The definition.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// The trace it belongs to.
    pub correlation_id: Option<String>,
    /// The entity it is about.
    pub entity_id: Option<String>,
    /// When it began.
    pub created_at_utc: Timestamp,
    /// When it moved last.
    pub last_updated_at_utc: Timestamp,
    /// Why it failed, as the list has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// What goes wrong inside a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The state that raised it.
    #[serde(default)]
    pub state: Option<String>,
    /// Whether another delivery may help.
    #[serde(default)]
    pub retryable: bool,
}

/// Where a branch is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentState {
    /// The state's path in the definition.
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// What it waits for.
    pub waiting_for: WaitingFor,
}

/// What a branch waits for. `kind` says which of the others are there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingFor {
    /// `nothing`, `activity`, `timer`, `event`, `child` or `branches`.
    pub kind: String,
    /// The activity's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Which delivery of it is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How many have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The event's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The instance that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_instance_id: Option<String>,
    /// How many branches there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// How many of them have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u32>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}
