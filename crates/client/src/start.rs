//! The request that starts a run, and its outcome. The client method is in [`crate::instances`].

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::instance::Instance;

/// The request to start a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct NewInstance {
    /// The id of the definition.
    pub workflow: String,
    /// A version range. Without it the run has the default version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The instance id. Without it the server generates one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The entity it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity_id: Option<String>,
    /// The server responds when the run has ended, or after this time.
    #[serde(skip)]
    pub wait: Option<Duration>,
    /// The server recognises a repeated start by this key, even from another process. Without it every start has a new
    /// key.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
}

impl NewInstance {
    /// A run of this definition, in its default version and without input.
    pub fn new(workflow: impl Into<String>) -> Self {
        Self {
            workflow: workflow.into(),
            version: None,
            instance_id: None,
            input: None,
            correlation_id: None,
            entity_id: None,
            wait: None,
            idempotency_key: None,
        }
    }

    /// Selects the newest version of this range.
    pub fn version(self, range: impl Into<String>) -> Self {
        Self { version: Some(range.into()), ..self }
    }

    /// Sets the instance id.
    pub fn id(self, instance_id: impl Into<String>) -> Self {
        Self { instance_id: Some(instance_id.into()), ..self }
    }

    pub fn input(self, input: Value) -> Self {
        Self { input: Some(input), ..self }
    }

    /// Sets the trace that the run belongs to.
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// Sets the entity that the run is about.
    pub fn entity_id(self, id: impl Into<String>) -> Self {
        Self { entity_id: Some(id.into()), ..self }
    }

    /// Asks the server to respond when the run has ended, or after this time.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Sets the key by which the server recognises a repeated start, even from another process. Without it every start
    /// has a new key.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self }
    }
}

/// A run that was started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedInstance {
    pub instance_id: String,
    /// The run: the instance id and the run number.
    pub execution_id: String,
    pub created_at_utc: Timestamp,
    /// Until when the server recognises a repeat of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key_expires_at_utc: Option<Timestamp>,
}

/// The outcome of a start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StartOutcome {
    /// The run ended within the wait.
    Ended(Box<Instance>),
    /// The run is still going on.
    Running(StartedInstance),
}
