//! What an activity says of itself: its name, its kind and what may go in and come out.
//!
//! The JSON form is the contract with whoever validates definitions; nothing here runs anything.

use serde_json::{Map, Value, json};

/// What kind of work an activity does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

impl Category {
    const ALL: [Self; 6] =
        [Self::Database, Self::ExternalApi, Self::Messaging, Self::Polling, Self::Entity, Self::Other];

    /// As it is spelled in JSON.
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

    /// The one that is spelled so in JSON.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == name)
    }
}

/// One activity, as definitions see it.
#[derive(Clone, PartialEq, Debug)]
pub struct Declaration {
    /// What definitions call it.
    pub name: String,
    /// What kind of work.
    pub category: Category,
    /// JSON Schema of the input; what does not fit is not run.
    pub input: Option<Value>,
    /// JSON Schema of the result; what does not fit is a failure.
    pub output: Option<Value>,
    /// The activity that undoes it.
    pub compensation: Option<String>,
    /// One delivery's limit, as an ISO-8601 duration. Whoever calls applies it.
    pub attempt_timeout: Option<String>,
    /// Used by tasks without a policy of their own, in the words of definitions. Whoever calls reads it.
    pub retry_policy: Option<Value>,
}

impl Declaration {
    /// An activity of which only the name and the kind are known.
    pub fn new(name: impl Into<String>, category: Category) -> Self {
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

    /// With the activity that undoes it.
    #[must_use]
    pub fn compensation(self, activity: impl Into<String>) -> Self {
        Self { compensation: Some(activity.into()), ..self }
    }

    /// With a limit for one delivery, as an ISO-8601 duration.
    #[must_use]
    pub fn attempt_timeout(self, duration: impl Into<String>) -> Self {
        Self { attempt_timeout: Some(duration.into()), ..self }
    }

    /// With a retry policy, in the words of definitions.
    #[must_use]
    pub fn retry_policy(self, policy: Value) -> Self {
        Self { retry_policy: Some(policy), ..self }
    }

    /// The entry of a registry; what is not declared is left out.
    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.fields())
    }

    /// The fields of the entry.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let text = |text: &Option<String>| text.clone().map(Value::String);
        object([
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

/// An object of those fields that are there.
pub(crate) fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// What definitions may name, as the JSON text that validation reads: sorted by name, the same for the same activities.
pub(crate) fn registry_json<'d>(declarations: impl Iterator<Item = &'d Declaration>) -> String {
    let mut declarations: Vec<&Declaration> = declarations.collect();
    declarations.sort_by(|one, other| one.name.cmp(&other.name));
    let activities: Vec<Value> = declarations.into_iter().map(Declaration::to_json).collect();
    json!({ "activities": activities }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_an_entry_of_a_registry() {
        let plain = Declaration::new("notify", Category::Messaging);
        assert_eq!(plain.to_json(), json!({"name": "notify", "category": "messaging"}));
        let full = Declaration::new("charge", Category::ExternalApi)
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
