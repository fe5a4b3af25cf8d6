//! The activities that a definition may name, as data: their inputs, results and compensations.
//!
//! Validation reads a registry; nothing here calls an activity.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::definition::RetryPolicy;
use crate::json::{self, JsonError};
use crate::schema::Schema;
use crate::time::{Duration, TimeError};

/// The kind of work an activity does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Category {
    /// Reads and writes a database.
    Database,
    /// Calls another system.
    ExternalApi,
    /// Sends a notification.
    Messaging,
    /// Checks whether something has happened.
    Polling,
    /// Operates on a durable entity.
    Entity,
    Other,
}

/// One activity of the registry.
#[derive(Clone, PartialEq, Debug)]
pub struct RegisteredActivity {
    pub category: Category,
    /// The schema of its input.
    pub input: Option<Schema>,
    /// The schema of its result.
    pub output: Option<Schema>,
    /// The name of the activity that compensates it.
    pub compensation: Option<String>,
    /// Time limit of one attempt.
    pub attempt_timeout: Option<Duration>,
    /// Used by tasks without a policy of their own.
    pub retry_policy: Option<RetryPolicy>,
}

impl RegisteredActivity {
    /// An activity without schemas, compensation, timeout or retry policy.
    pub fn new(category: Category) -> Self {
        Self {
            category,
            input: None,
            output: None,
            compensation: None,
            attempt_timeout: None,
            retry_policy: None,
        }
    }
}

/// Activities by name.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Registry {
    activities: BTreeMap<String, RegisteredActivity>,
}

/// Why a text is not a registry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Not of the shape `{"activities": [{"name": …, "category": …}]}`.
    #[error("the registry does not have the expected shape: {0}")]
    Shape(String),
    /// The `input` or `output` schema is invalid.
    #[error("activity {activity:?}: invalid {field} schema: {reason}")]
    Schema {
        activity: String,
        /// `input` or `output`, as in the JSON.
        field: &'static str,
        reason: String,
    },
    /// `attemptTimeout` is not a duration.
    #[error("activity {activity:?}: {source}")]
    Time { activity: String, source: TimeError },
    /// The retry policy is invalid.
    #[error("activity {activity:?}: invalid retryPolicy: {reason}")]
    RetryPolicy { activity: String, reason: String },
    /// Two activities have the same name.
    #[error("activity {activity:?} is declared twice")]
    Duplicate { activity: String },
    /// The compensation is not in the registry.
    #[error("activity {activity:?}: its compensation {compensation:?} is not registered")]
    UnknownCompensation { activity: String, compensation: String },
}

impl Registry {
    /// Reads `{"activities": [{name, category, input?, output?, compensation?, attemptTimeout?, retryPolicy?}]}`.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let value = json::parse(text)?;
        // serde would also read a struct from an array; here every activity must be an object with names.
        let entries = value.get("activities").and_then(Value::as_array).into_iter().flatten();
        if !value.is_object() || !entries.clone().all(Value::is_object) {
            let expected = "expected {\"activities\": [{\"name\": …, \"category\": …}]}";
            return Err(RegistryError::Shape(expected.to_owned()));
        }
        let file: RegistryFile =
            serde_json::from_value(value).map_err(|error| RegistryError::Shape(error.to_string()))?;
        let mut registry = Self::default();
        for entry in file.activities {
            let name = entry.name.clone();
            if name.is_empty() {
                return Err(RegistryError::Shape("an activity has an empty name".to_owned()));
            }
            if registry.activities.insert(name.clone(), entry.compile()?).is_some() {
                return Err(RegistryError::Duplicate { activity: name });
            }
        }
        for (name, activity) in &registry.activities {
            if let Some(compensation) = &activity.compensation
                && !registry.activities.contains_key(compensation)
            {
                return Err(RegistryError::UnknownCompensation {
                    activity: name.clone(),
                    compensation: compensation.clone(),
                });
            }
        }
        Ok(registry)
    }

    /// The activity with this name.
    pub fn get(&self, name: &str) -> Option<&RegisteredActivity> {
        self.activities.get(name)
    }

    /// Adds or replaces an activity.
    pub fn insert(&mut self, name: impl Into<String>, activity: RegisteredActivity) {
        self.activities.insert(name.into(), activity);
    }

    /// The names of all activities.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.activities.keys().map(String::as_str)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    activities: Vec<RegistryEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RegistryEntry {
    name: String,
    category: Category,
    input: Option<Value>,
    output: Option<Value>,
    compensation: Option<String>,
    attempt_timeout: Option<String>,
    retry_policy: Option<Value>,
}

impl RegistryEntry {
    fn compile(self) -> Result<RegisteredActivity, RegistryError> {
        let schema = |schema: Option<Value>, field| {
            let invalid = |reason| RegistryError::Schema { activity: self.name.clone(), field, reason };
            schema.as_ref().map(Schema::compile).transpose().map_err(invalid)
        };
        let timeout = self.attempt_timeout.as_deref().map(Duration::parse).transpose();
        let policy = self.retry_policy.as_ref().map(RetryPolicy::from_json).transpose();
        Ok(RegisteredActivity {
            category: self.category,
            input: schema(self.input, "input")?,
            output: schema(self.output, "output")?,
            compensation: self.compensation,
            attempt_timeout: timeout
                .map_err(|source| RegistryError::Time { activity: self.name.clone(), source })?,
            retry_policy: policy
                .map_err(|reason| RegistryError::RetryPolicy { activity: self.name.clone(), reason })?,
        })
    }
}
