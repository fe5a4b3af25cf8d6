//! A run to be started, and what became of it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::instance::Instance;

/// A run to be started.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Start {
    /// The definition.
    pub workflow: String,
    /// The range its version must be in; without it the default version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The instance's id; without it the server makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// What it begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The entity it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity_id: Option<String>,
    /// The answer comes when the run has ended, or after so long.
    #[serde(skip)]
    pub wait: Option<Duration>,
    /// By which it is recognised if it comes again, also from another process. Without it every start has a new one.
    #[serde(skip)]
    pub key: Option<String>,
}

impl Start {
    /// Of this definition, in its default version, with no input.
    pub fn of(workflow: impl Into<String>) -> Self {
        Self {
            workflow: workflow.into(),
            version: None,
            instance_id: None,
            input: None,
            correlation_id: None,
            entity_id: None,
            wait: None,
            key: None,
        }
    }

    /// In the newest version of this range.
    pub fn version(self, range: impl Into<String>) -> Self {
        Self { version: Some(range.into()), ..self }
    }

    /// Under this instance id.
    pub fn id(self, instance_id: impl Into<String>) -> Self {
        Self { instance_id: Some(instance_id.into()), ..self }
    }

    /// With this input.
    pub fn input(self, input: Value) -> Self {
        Self { input: Some(input), ..self }
    }

    /// As a part of this trace.
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// For this entity.
    pub fn entity_id(self, id: impl Into<String>) -> Self {
        Self { entity_id: Some(id.into()), ..self }
    }

    /// Answered when the run has ended, or after so long.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Recognised by this key if it comes again, also from another process. Without it every start has a new one.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }
}

/// A run that has begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The instance.
    pub instance_id: String,
    /// The run.
    pub execution_id: String,
    /// When it was taken.
    pub created_at_utc: Timestamp,
    /// Until when the request is recognised if it comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key_expires_at_utc: Option<Timestamp>,
}

/// What became of a start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StartOutcome {
    /// It has ended within the wait.
    Ended(Box<Instance>),
    /// It goes on.
    Running(Started),
}
