//! The activities a definition may name, as data: who can be called, with what, and what undoes it.
//!
//! A registry is given to validation; nothing here calls anything.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::definition::RetryPolicy;
use crate::json::{self, JsonError};
use crate::schema::Schema;
use crate::time::{Duration, TimeError};

/// What kind of work an activity does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Category {
    /// Reads and writes a database.
    Database,
    /// Calls another system.
    ExternalApi,
    /// Tells somebody.
    Messaging,
    /// Asks whether something has happened.
    Polling,
    /// Talks to a durable entity.
    Entity,
    /// Anything else.
    Other,
}

/// One activity.
#[derive(Clone, PartialEq, Debug)]
pub struct Activity {
    /// What kind of work.
    pub category: Category,
    /// What its input must be.
    pub input: Option<Schema>,
    /// What its result will be.
    pub output: Option<Schema>,
    /// The activity that undoes it.
    pub compensation: Option<String>,
    /// One delivery's limit.
    pub attempt_timeout: Option<Duration>,
    /// Used by tasks without a policy of their own.
    pub retry_policy: Option<RetryPolicy>,
}

impl Activity {
    /// An activity of which only the name is known.
    pub fn plain(category: Category) -> Self {
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
    activities: BTreeMap<String, Activity>,
}

/// Why a text is not a registry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegistryError {
    /// Not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Not of the shape `{"activities": [{"name": …, "category": …}]}`.
    #[error("the registry does not have the expected shape: {0}")]
    Shape(String),
    /// A schema that is none.
    #[error("activity {activity:?}: its {field} schema: {reason}")]
    Schema {
        /// Whose.
        activity: String,
        /// `input` or `output`.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A duration that is none.
    #[error("activity {activity:?}: {source}")]
    Time {
        /// Whose.
        activity: String,
        /// What is wrong.
        source: TimeError,
    },
    /// A retry policy that makes no sense.
    #[error("activity {activity:?}: its retryPolicy: {reason}")]
    RetryPolicy {
        /// Whose.
        activity: String,
        /// What is wrong.
        reason: String,
    },
    /// Two activities of one name.
    #[error("activity {activity:?} is there twice")]
    Duplicate {
        /// Which.
        activity: String,
    },
    /// A compensation nobody registered.
    #[error("activity {activity:?}: its compensation {compensation:?} is not registered")]
    UnknownCompensation {
        /// Whose.
        activity: String,
        /// What is missing.
        compensation: String,
    },
}

impl Registry {
    /// Reads `{"activities": [{name, category, input?, output?, compensation?, attemptTimeout?, retryPolicy?}]}`.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let value = json::parse(text)?;
        // serde reads a struct from an array too; a list of activities has names.
        let entries = value.get("activities").and_then(Value::as_array).into_iter().flatten();
        if !value.is_object() || !entries.clone().all(Value::is_object) {
            let expected = "{\"activities\": [{\"name\": …, \"category\": …}]} is expected";
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

    /// The activity of this name.
    pub fn get(&self, name: &str) -> Option<&Activity> {
        self.activities.get(name)
    }

    /// Adds or replaces an activity.
    pub fn insert(&mut self, name: impl Into<String>, activity: Activity) {
        self.activities.insert(name.into(), activity);
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.activities.keys().map(String::as_str)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    activities: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    name: String,
    category: Category,
    input: Option<Value>,
    output: Option<Value>,
    compensation: Option<String>,
    attempt_timeout: Option<String>,
    retry_policy: Option<Value>,
}

impl Entry {
    fn compile(self) -> Result<Activity, RegistryError> {
        let schema = |schema: Option<Value>, field| {
            let wrong = |reason| RegistryError::Schema { activity: self.name.clone(), field, reason };
            schema.as_ref().map(Schema::compile).transpose().map_err(wrong)
        };
        let timeout = self.attempt_timeout.as_deref().map(Duration::parse).transpose();
        let policy = self.retry_policy.as_ref().map(RetryPolicy::read_alone).transpose();
        Ok(Activity {
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
