//! Entities: keyed durable objects that take one operation at a time, as those who ask see them.
//!
//! Every entity accumulates events; a kind written in Rust ([`EntityKind`]) adds operations on a state of its own. An operation that carries
//! an id has its effect once, however often it comes. Where an entity lives and how its rows change is the shard's business; readers
//! ([`EntityReader`]) go past it to what is committed.

mod asked;
mod id;
mod kinds;
mod reader;

use abide_workflow::json::Json;
use abide_workflow::{InstanceId, Timestamp};
use serde::{Deserialize, Serialize};

pub use asked::Asked;
pub use id::{EntityId, InvalidEntityId, session_instance, session_key};
pub use kinds::{EntityKind, Kinds, OperationCall, OperationError, OperationOutcome};
pub use reader::{EntityReadError, EntityReader, EntityView, EventsPage, ListedEntity, RecordedEvent};

use crate::request::Repeat;

/// The engine in whose name events from outside are dead-lettered.
pub const INGRESS: &str = "ingress";

/// One operation on one entity.
#[derive(Clone, Debug)]
pub struct Operate {
    /// On which.
    pub entity: EntityId,
    /// What.
    pub operation: Operation,
    /// How to tell a repeat of it from another.
    pub repeat: Option<Repeat>,
    /// Among which ids that is told.
    pub scope: &'static str,
    /// What a run is told or started for, in the same commit.
    pub route: Option<Box<Routed>>,
}

/// What an entity can be asked to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Append an event.
    RecordEvent {
        /// The event.
        event: Json,
    },
    /// Forget events: all, or those up to a position, so that what was recorded meanwhile stays.
    Clear {
        /// The last position to forget.
        up_to: Option<u64>,
    },
    /// An operation of the entity's kind.
    Custom {
        /// Its name.
        name: String,
        /// Its input.
        input: Json,
    },
}

/// What an operation came to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Operated {
    /// Its output, as JSON text.
    pub output: String,
    /// When it was done.
    pub done_at: Timestamp,
    /// Until when a repeat is recognised, if it carried an id.
    pub repeats_until: Option<Timestamp>,
    /// Whether this is the answer to an earlier copy of it.
    #[serde(skip)]
    pub repeated: bool,
}

/// What an event from outside does to the run of its session, besides being recorded. Stored: append only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Routed {
    /// The run's instance; it lives on the shard of the entity.
    pub instance_id: InstanceId,
    /// Whether a run is started if none lives.
    pub starts: bool,
    /// The name the event is raised under in a run that lives; none if it is not raised.
    pub raises: Option<String>,
    /// The definition to start.
    pub workflow: String,
    /// The versions that will do, as text; none for the default version.
    pub version: Option<String>,
    /// The type of the entity.
    pub entity_type: String,
    /// The key of the entity.
    pub entity_key: String,
    /// The event, as JSON text.
    pub event: String,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// What tells the event from others in the dead-letter queue.
    pub message_id: String,
}
