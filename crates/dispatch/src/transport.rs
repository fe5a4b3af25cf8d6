//! One delivery of one call over some wire, and the answers it can have.
//!
//! A transport delivers once and reports; it never retries. Whether to try again is decided where the workflow advances.

use std::fmt;
use std::future::Future;

use crate::metadata::Metadata;

/// One delivery of an activity call.
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The activity's registered name.
    pub activity: String,
    /// The input, as JSON text.
    pub input: Vec<u8>,
    /// The seven canonical keys.
    pub metadata: Metadata,
    /// This delivery's own time limit.
    pub attempt_timeout_ms: u64,
}

impl fmt::Debug for Call {
    /// The input may hold resolved secrets, so its size is shown and nothing else.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("activity", &self.activity)
            .field("input_bytes", &self.input.len())
            .field("metadata", &self.metadata)
            .field("attempt_timeout_ms", &self.attempt_timeout_ms)
            .finish()
    }
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The activity ran and this is its result, as JSON text.
    Completed(Vec<u8>),
    /// The activity, or the way to it, failed.
    Failed(Failure),
}

/// A failed delivery, classified by the one table that all transports share.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    /// Stable code, matched by `onError` and `nonRetryable`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether another delivery may help.
    pub retryable: bool,
    /// Whether the activity may have run: true for timeouts and broken connections after sending.
    pub outcome_unknown: bool,
}

/// A way to reach activities.
pub trait Transport: Send + Sync {
    /// Delivers the call once. Dropping the future cancels the delivery as far as the wire allows.
    fn deliver(&self, call: Call) -> impl Future<Output = Answer> + Send;
}
