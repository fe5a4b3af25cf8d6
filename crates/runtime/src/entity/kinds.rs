//! Entity kinds written in Rust: operations on an entity's own state.
//!
//! Rows and idempotency are not known here. An operation that is refused or panics changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use abide_workflow::Timestamp;
use abide_workflow::json::Json;

use super::EntityId;
use crate::panics;

/// The operations of an entity type, besides those that every entity has. A program that embeds the server provides it.
///
/// An operation is a pure step from one state to the next. The shard calls it in its own task, so it must be quick:
/// work that takes time or needs I/O belongs in an activity. A refused operation has changed nothing.
pub trait EntityKind: Send + Sync {
    /// Executes one operation. Its new state and the stored reply become durable in one commit; a repeated operation
    /// with the same idempotency key does not come here.
    fn operate(&self, call: &OperationContext<'_>) -> Result<OperationOutcome, OperationError>;
}

/// The input of an operation.
#[derive(Debug)]
pub struct OperationContext<'c> {
    pub entity: &'c EntityId,
    /// The operation's name, as the client wrote it.
    pub operation: &'c str,
    pub input: &'c Json,
    /// The current state; none until an operation has set one.
    pub state: Option<&'c Json>,
    pub now: Timestamp,
}

/// The result of an operation, as the kind returns it.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationOutcome {
    /// The next state; none leaves it unchanged.
    pub state: Option<Json>,
    /// Returned to the client.
    pub output: Json,
}

/// The reason why an operation was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// The kind has no such operation.
    #[error("entities of this type have no operation {name:?}")]
    UnknownOperation { name: String },
    /// The input is not valid.
    #[error("{reason}")]
    InvalidInput { reason: String },
    /// The kind's code panicked. Nothing was changed.
    #[error("the operation panicked: {reason}")]
    Panicked {
        /// The panic's message.
        reason: String,
    },
    /// The entity's state does not allow the operation.
    #[error("{reason}")]
    Refused {
        /// The error code.
        code: String,
        reason: String,
    },
}

impl OperationError {
    /// The error code with which the call of a workflow fails.
    pub fn code(&self) -> &str {
        match self {
            Self::UnknownOperation { .. } => "OperationUnknown",
            Self::InvalidInput { .. } => "OperationInputInvalid",
            Self::Panicked { .. } => "OperationPanicked",
            Self::Refused { code, .. } => code,
        }
    }
}

/// The entity kinds of a node, by type.
#[derive(Clone, Default)]
pub struct EntityKinds(Arc<BTreeMap<String, Arc<dyn EntityKind>>>);

impl EntityKinds {
    /// Adds a kind; a kind of the same type is replaced.
    #[must_use]
    pub fn with(self, entity_type: &str, kind: impl EntityKind + 'static) -> Self {
        let mut kinds = Arc::unwrap_or_clone(self.0);
        kinds.insert(entity_type.to_ascii_lowercase(), Arc::new(kind));
        Self(Arc::new(kinds))
    }

    /// Executes an operation of the entity's kind, in the task of the shard, which then writes the result. A panic
    /// changes nothing, and the shard goes on with other work.
    pub(crate) fn operate(&self, call: &OperationContext<'_>) -> Result<OperationOutcome, OperationError> {
        match self.0.get(call.entity.entity_type()) {
            Some(kind) => panics::catch(|| kind.operate(call))
                .unwrap_or_else(|reason| Err(OperationError::Panicked { reason })),
            None => Err(OperationError::UnknownOperation { name: call.operation.to_owned() }),
        }
    }

    /// The types, in order. An entity activity that names no type looks for the key in each of them.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for EntityKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
