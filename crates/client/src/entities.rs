//! `/api/entities`: lists and shows entities, and calls their operations. An entity has a type and a key, and executes
//! one operation at a time.

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::ApiPath;
use crate::client::Client;
use crate::pages::Pages;
use crate::request::ClientRequest;
use crate::retry::RetrySafety;

const ENTITIES: &str = "/api/entities";

/// An entity as lists show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntitySummary {
    pub entity_type: String,
    /// Its key within the type.
    pub entity_key: String,
    /// The number of events it holds.
    pub event_count: u64,
    /// The time of its last operation.
    pub last_updated_at_utc: Timestamp,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entity {
    pub entity_type: String,
    /// Its key within the type.
    pub entity_key: String,
    /// Its state; the events are not part of it.
    #[serde(default)]
    pub state: Value,
    /// The number of events it holds.
    pub event_count: u64,
    /// The position of the oldest event it holds.
    pub first_position: u64,
    /// The position the next event will have.
    pub next_position: u64,
    /// The number of operations it executed.
    #[serde(default)]
    pub operations: u64,
    /// The time of its last operation.
    pub last_updated_at_utc: Timestamp,
}

/// An event that an entity holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntityEvent {
    /// Its position among the entity's events.
    pub position: u64,
    pub recorded_at_utc: Timestamp,
    pub event: Value,
}

/// The result of an entity operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EntityCallOutput {
    #[serde(default)]
    pub output: Value,
}

impl Client {
    /// Lists entities, of all types or of one.
    pub fn entities(&self, entity_type: Option<&str>) -> Pages<EntitySummary> {
        Pages::new(self, ApiPath::new(ENTITIES).query("type", entity_type))
    }

    /// Shows an entity.
    pub fn entity(&self, entity_type: &str, key: &str) -> ClientRequest<Entity> {
        ClientRequest::get(self, entity_path(entity_type, key))
    }

    /// The events an entity holds, oldest first, from this position on.
    pub fn entity_events(&self, entity_type: &str, key: &str, from: Option<u64>) -> Pages<EntityEvent> {
        let from = from.map(|from| from.to_string());
        Pages::new(self, entity_path(entity_type, key).segment("events").query("from", from.as_deref()))
    }

    /// Calls an operation and waits for its output. The server recognises a repeat by `operation_id`. Without one, the
    /// client generates an id.
    pub fn call_entity(
        &self,
        entity_type: &str,
        key: &str,
        operation: &str,
        input: Option<&Value>,
        operation_id: Option<&str>,
    ) -> ClientRequest<EntityCallOutput> {
        let path = entity_path(entity_type, key).segment(operation);
        let request =
            ClientRequest::new(self, Method::POST, path, RetrySafety::Unsafe).idempotency_key(operation_id);
        match input {
            Some(input) => request.json(input),
            None => request,
        }
    }
}

fn entity_path(entity_type: &str, key: &str) -> ApiPath {
    ApiPath::new(ENTITIES).segment(entity_type).segment(key)
}
