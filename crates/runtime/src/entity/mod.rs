//! Entities, as clients see them: keyed durable objects that execute one operation at a time.
//!
//! Every entity records events; a kind written in Rust ([`EntityKind`]) adds operations on a state of its own. An
//! operation with an idempotency key takes effect once, however often it is sent. Ordering operations and writing rows
//! are not done here but in the shard; readers ([`EntityReader`]) bypass the shard and read the committed rows.

pub(crate) mod events_read;
mod id;
mod kinds;
mod parsed_operation;
mod reader;

use abide_workflow::json::Json;
use abide_workflow::{InstanceId, Timestamp};
use serde::{Deserialize, Serialize};

pub use id::{EntityId, InvalidEntityId, session_instance_id, session_placement_key};
pub use kinds::{EntityKind, EntityKinds, OperationContext, OperationError, OperationOutcome};
pub use parsed_operation::ParsedOperation;
pub use reader::{EntityEventsPage, EntityReadError, EntityReader, EntityView, ListedEntity, RecordedEvent};

use crate::request::RequestIdempotency;

/// The engine named in the dead letters of external events.
pub const INGRESS_ENGINE: &str = "ingress";

/// One operation on one entity.
#[derive(Clone, Debug)]
pub struct OperationRequest {
    pub entity: EntityId,
    pub operation: EntityOperation,
    /// Recognises a repetition of this operation.
    pub idempotency: Option<RequestIdempotency>,
    /// The scope in which the idempotency key is unique.
    pub idempotency_scope: &'static str,
    /// What the recorded event means for a run: put into the inbox as a run message, in the same commit.
    pub session_event: Option<Box<SessionEvent>>,
}

/// An operation that changes an entity, or may change it.
#[derive(Clone, PartialEq, Debug)]
pub enum EntityOperation {
    /// Append an event.
    RecordEvent { event: Json },
    /// Delete events: all, or those up to a position, so that events recorded in the meantime stay.
    Clear {
        /// The last position to delete.
        up_to: Option<u64>,
    },
    /// An operation of the entity's kind.
    Custom { name: String, input: Json },
}

/// The result of an operation, as the shard replies it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OperationReply {
    /// JSON text.
    pub output: String,
    pub done_at: Timestamp,
    /// The time until which a repetition is recognised, if the operation had an idempotency key.
    pub idempotent_until: Option<Timestamp>,
    /// True if this is the stored reply of an earlier copy of the operation.
    #[serde(skip)]
    pub is_replay: bool,
}

/// The effect of an external event on the run of its session, besides being recorded. Stored: append only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionEvent {
    /// The run's instance, on the shard of the entity.
    pub instance_id: InstanceId,
    /// True if a run is started when none is live.
    pub starts_run: bool,
    /// The name under which the event is raised in a live run; none if it is not raised.
    pub raised_as: Option<String>,
    /// The definition of the run to start.
    pub workflow: String,
    /// The accepted version range, as text; none for the default version.
    pub version: Option<String>,
    pub entity_type: String,
    pub entity_key: String,
    /// JSON text.
    pub event: String,
    pub correlation_id: String,
    /// Identifies the event in the dead-letter queue.
    pub message_id: String,
}
