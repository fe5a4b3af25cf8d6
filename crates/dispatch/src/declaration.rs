//! The declaration of an activity: its name, its category and the schemas of its input and output.
//!
//! The JSON form is the contract with the validation of definitions. Nothing here runs an activity.

use serde_json::{Map, Value, json};

/// The kind of work that an activity does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActivityCategory {
    /// Reads and writes a database.
    Database,
    /// Calls another system.
    ExternalApi,
    /// Sends a message or a notification.
    Messaging,
    /// Checks whether something has happened.
    Polling,
    /// Calls a durable entity.
    Entity,
    /// Any other kind of work.
    Other,
}

impl ActivityCategory {
    const ALL: [Self; 6] =
        [Self::Database, Self::ExternalApi, Self::Messaging, Self::Polling, Self::Entity, Self::Other];

    /// The name of the category in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::ExternalApi => "externalApi",
            Self::Messaging => "messaging",
            Self::Polling => "polling",
            Self::Entity => "entity",
            Self::Other => "other",
        }
    }

    /// The category with this name in JSON.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == name)
    }
}

/// One activity, as definitions see it.
#[derive(Clone, PartialEq, Debug)]
pub struct ActivityDeclaration {
    /// The name that definitions use.
    pub name: String,
    pub category: ActivityCategory,
    /// JSON Schema of the input; the activity is not called with an input that does not match.
    pub input: Option<Value>,
    /// JSON Schema of the result; a result that does not match is a failure.
    pub output: Option<Value>,
    /// The activity that compensates this one.
    pub compensation: Option<String>,
    /// The timeout of one attempt, as an ISO-8601 duration. The caller applies it.
    pub attempt_timeout: Option<String>,
    /// For tasks without a policy of their own, in the language of definitions. The caller applies it.
    pub retry_policy: Option<Value>,
}

impl ActivityDeclaration {
    /// A declaration with only a name and a category.
    pub fn new(name: impl Into<String>, category: ActivityCategory) -> Self {
        Self {
            name: name.into(),
            category,
            input: None,
            output: None,
            compensation: None,
            attempt_timeout: None,
            retry_policy: None,
        }
    }

    /// With a JSON Schema for the input.
    #[must_use]
    pub fn input(self, schema: Value) -> Self {
        Self { input: Some(schema), ..self }
    }

    /// With a JSON Schema for the result.
    #[must_use]
    pub fn output(self, schema: Value) -> Self {
        Self { output: Some(schema), ..self }
    }

    /// With the activity that compensates this one.
    #[must_use]
    pub fn compensation(self, activity: impl Into<String>) -> Self {
        Self { compensation: Some(activity.into()), ..self }
    }

    /// With a timeout for one attempt, as an ISO-8601 duration.
    #[must_use]
    pub fn attempt_timeout(self, duration: impl Into<String>) -> Self {
        Self { attempt_timeout: Some(duration.into()), ..self }
    }

    /// With a retry policy, in the language of definitions.
    #[must_use]
    pub fn retry_policy(self, policy: Value) -> Self {
        Self { retry_policy: Some(policy), ..self }
    }

    /// The entry in a registry, without the fields that are not declared.
    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.to_json_fields())
    }

    /// The fields of the entry in a registry.
    pub(crate) fn to_json_fields(&self) -> Map<String, Value> {
        let text = |text: &Option<String>| text.clone().map(Value::String);
        json_object([
            ("name", Some(Value::String(self.name.clone()))),
            ("category", Some(Value::String(self.category.as_str().to_owned()))),
            ("input", self.input.clone()),
            ("output", self.output.clone()),
            ("compensation", text(&self.compensation)),
            ("attemptTimeout", text(&self.attempt_timeout)),
            ("retryPolicy", self.retry_policy.clone()),
        ])
    }
}

/// An object of the fields that have a value.
pub(crate) fn json_object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The activities that definitions may use, as the JSON text that validation reads. Sorted by name, so the same
/// activities always give the same text.
pub(crate) fn registry_json<'d>(declarations: impl Iterator<Item = &'d ActivityDeclaration>) -> String {
    let mut declarations: Vec<&ActivityDeclaration> = declarations.collect();
    declarations.sort_by(|one, other| one.name.cmp(&other.name));
    let activities: Vec<Value> = declarations.into_iter().map(ActivityDeclaration::to_json).collect();
    json!({ "activities": activities }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_becomes_an_entry_of_a_registry() {
        let plain = ActivityDeclaration::new("notify", ActivityCategory::Messaging);
        assert_eq!(plain.to_json(), json!({"name": "notify", "category": "messaging"}));
        let full = ActivityDeclaration::new("charge", ActivityCategory::ExternalApi)
            .input(json!({"type": "object"}))
            .output(json!(true))
            .compensation("refund")
            .attempt_timeout("PT30S")
            .retry_policy(json!({"maxAttempts": 3}));
        let expected = json!({
            "name": "charge", "category": "externalApi", "input": {"type": "object"}, "output": true,
            "compensation": "refund", "attemptTimeout": "PT30S", "retryPolicy": {"maxAttempts": 3},
        });
        assert_eq!(full.to_json(), expected);
    }
}
