//! What does the work: an async function from an input to an output, and what it is told and may give back besides.
//!
//! A handler knows nothing of wires, claims and records. It may be run more than once for one piece of work if it failed, took too long or
//! the process died; it is never run again once its answer is recorded.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use abide_dispatch::{Metadata, Status};
use bytes::Bytes;
use serde_json::Value;

use crate::effects::Effect;

/// One attempt at one piece of work.
#[derive(Clone, PartialEq)]
pub struct Invocation {
    /// The activity's name.
    pub activity: String,
    /// What it is given.
    pub input: Value,
    /// The same as it came: the bytes of its JSON text.
    pub bytes: Bytes,
    /// What travels with the call. The idempotency key is what a system behind the handler can be exact by.
    pub metadata: Metadata,
}

impl fmt::Debug for Invocation {
    /// The input may hold secrets, so it is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("activity", &self.activity)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

/// Done.
#[derive(Clone, PartialEq, Debug)]
pub struct Done {
    /// What came of it.
    pub output: Value,
    /// Rows that become durable in the commit that records the output: both or neither.
    pub effects: Vec<Effect>,
}

/// Not done.
#[derive(Clone, PartialEq, Debug)]
pub struct Failed {
    /// Why. Its code decides whether the answer is recorded, or the next attempt runs again.
    pub status: Status,
    /// Rows that become durable all the same, in the commit that records the failure or gives up the claim.
    pub effects: Vec<Effect>,
}

impl Done {
    /// With rows of the handler's own.
    pub fn with(output: Value, effects: Vec<Effect>) -> Self {
        Self { output, effects }
    }
}

impl From<Value> for Done {
    fn from(output: Value) -> Self {
        Self { output, effects: Vec::new() }
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self { status, effects: Vec::new() }
    }
}

/// Does the work of one activity. Async functions that answer `Result<Value, Status>` are handlers.
pub trait Handler: Send + Sync + 'static {
    /// Makes one attempt. The future is dropped when the claim ends, and then the work may be run again: what must not be cut short
    /// belongs into a task of its own.
    fn handle(&self, invocation: Invocation) -> impl Future<Output = Result<Done, Failed>> + Send;
}

impl<H, F, D, E> Handler for H
where
    H: Fn(Invocation) -> F + Send + Sync + 'static,
    F: Future<Output = Result<D, E>> + Send,
    D: Into<Done>,
    E: Into<Failed>,
{
    async fn handle(&self, invocation: Invocation) -> Result<Done, Failed> {
        match self(invocation).await {
            Ok(done) => Ok(done.into()),
            Err(failed) => Err(failed.into()),
        }
    }
}

/// An attempt under way.
pub(crate) type Handling = Pin<Box<dyn Future<Output = Result<Done, Failed>> + Send>>;

/// A handler whose type is forgotten.
pub(crate) trait AnyHandler: Send + Sync {
    fn handle_any(self: Arc<Self>, invocation: Invocation) -> Handling;
}

impl<H: Handler> AnyHandler for H {
    fn handle_any(self: Arc<Self>, invocation: Invocation) -> Handling {
        Box::pin(async move { self.handle(invocation).await })
    }
}
