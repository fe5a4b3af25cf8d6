//! Kinds of entities written in Rust: operations on a state of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use abide_workflow::Timestamp;
use abide_workflow::json::Json;

use super::EntityId;
use crate::panicked;

/// What entities of a type can do besides accumulating events.
///
/// An operation is a pure step from a state to the next: it is called by the shard between two others and must be quick; what takes
/// time or talks to somebody belongs into an activity. A refused operation has changed nothing.
pub trait EntityKind: Send + Sync {
    /// One operation.
    fn operate(&self, call: &OperationCall<'_>) -> Result<OperationOutcome, OperationError>;
}

/// What an operation is given.
#[derive(Debug)]
pub struct OperationCall<'c> {
    /// On which entity.
    pub entity: &'c EntityId,
    /// Its name, as it was asked for.
    pub operation: &'c str,
    /// Its input.
    pub input: &'c Json,
    /// The state so far; none before the first operation.
    pub state: Option<&'c Json>,
    /// The time.
    pub now: Timestamp,
}

/// What an operation came to.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationOutcome {
    /// The next state; none leaves it as it is.
    pub state: Option<Json>,
    /// What is answered.
    pub output: Json,
}

/// Why an operation was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// The kind has no such operation.
    #[error("entities of this type have no operation {name:?}")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The input does not fit.
    #[error("{reason}")]
    Input {
        /// What is wrong.
        reason: String,
    },
    /// The kind's own code panicked. Nothing has changed.
    #[error("the operation panicked: {reason}")]
    Panicked {
        /// What it said.
        reason: String,
    },
    /// The entity is not in a state to do that.
    #[error("{reason}")]
    Refused {
        /// A word for programs.
        code: String,
        /// Why.
        reason: String,
    },
}

impl OperationError {
    /// A word for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Unknown { .. } => "OperationUnknown",
            Self::Input { .. } => "OperationInputInvalid",
            Self::Panicked { .. } => "OperationPanicked",
            Self::Refused { code, .. } => code,
        }
    }
}

/// The kinds a node knows, by type.
#[derive(Clone, Default)]
pub struct Kinds(Arc<BTreeMap<String, Arc<dyn EntityKind>>>);

impl Kinds {
    /// With another kind; one of the same type is replaced.
    #[must_use]
    pub fn with(self, entity_type: &str, kind: impl EntityKind + 'static) -> Self {
        let mut kinds = Arc::unwrap_or_clone(self.0);
        kinds.insert(entity_type.to_ascii_lowercase(), Arc::new(kind));
        Self(Arc::new(kinds))
    }

    /// Runs an operation of the entity's kind. One that panics has changed nothing; whatever else the shard does goes on.
    pub(crate) fn operate(&self, call: &OperationCall<'_>) -> Result<OperationOutcome, OperationError> {
        match self.0.get(call.entity.kind()) {
            Some(kind) => catch_unwind(AssertUnwindSafe(|| kind.operate(call))).unwrap_or_else(|panic| {
                Err(OperationError::Panicked { reason: panicked::text(&*panic).to_owned() })
            }),
            None => Err(OperationError::Unknown { name: call.operation.to_owned() }),
        }
    }

    /// The types, in order.
    pub fn types(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
