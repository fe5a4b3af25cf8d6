//! `/api/entities`: things with a type and a key that take one operation at a time.

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::pages::Pages;
use crate::retry::Repeat;

const ENTITIES: &str = "/api/entities";

/// An entity as lists show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntitySummary {
    /// Its type.
    pub entity_type: String,
    /// Its key within the type.
    pub entity_key: String,
    /// Events it holds.
    pub event_count: u64,
    /// When it last took an operation.
    pub last_updated_at_utc: Timestamp,
}

/// An entity.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entity {
    /// Its type.
    pub entity_type: String,
    /// Its key within the type.
    pub entity_key: String,
    /// What it keeps besides its events.
    #[serde(default)]
    pub state: Value,
    /// Events it holds.
    pub event_count: u64,
    /// The position of the oldest event it holds.
    pub first_position: u64,
    /// The position the next event will have.
    pub next_position: u64,
    /// Operations it took.
    #[serde(default)]
    pub operations: u64,
    /// When it last took one.
    pub last_updated_at_utc: Timestamp,
}

/// An event that an entity holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntityEvent {
    /// Its place among the entity's events.
    pub position: u64,
    /// When it was recorded.
    pub recorded_at_utc: Timestamp,
    /// The event itself.
    pub event: Value,
}

/// What an operation answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Called {
    /// Its output.
    #[serde(default)]
    pub output: Value,
}

impl Client {
    /// Lists entities, of all types or of one.
    pub fn entities(&self, entity_type: Option<&str>) -> Pages<EntitySummary> {
        Pages::new(self, Path::of(ENTITIES).query("type", entity_type))
    }

    /// Shows an entity.
    pub fn entity(&self, entity_type: &str, key: &str) -> Call<Entity> {
        Call::get(self, entity(entity_type, key))
    }

    /// The events an entity holds, oldest first, from this position on.
    pub fn entity_events(&self, entity_type: &str, key: &str, from: Option<u64>) -> Pages<EntityEvent> {
        let from = from.map(|from| from.to_string());
        Pages::new(self, entity(entity_type, key).segment("events").query("from", from.as_deref()))
    }

    /// Calls an operation and waits for its output. The id by which a repeat is recognised is the caller's, or a new one.
    pub fn call_entity(
        &self,
        entity_type: &str,
        key: &str,
        operation: &str,
        input: Option<&Value>,
        operation_id: Option<&str>,
    ) -> Call<Called> {
        let path = entity(entity_type, key).segment(operation);
        let call = Call::new(self, Method::POST, path, Repeat::Unsafe).keyed(operation_id);
        match input {
            Some(input) => call.json(input),
            None => call,
        }
    }
}

fn entity(entity_type: &str, key: &str) -> Path {
    Path::of(ENTITIES).segment(entity_type).segment(key)
}
