//! Handlers: async functions from an input to an output, with the metadata they get and the rows they may return.
//!
//! A handler knows nothing of wires, claims and records. It may run more than once for one call if it failed, took too
//! long or the process died; it never runs again once its result is recorded.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use abide_dispatch::{Metadata, RpcStatus};
use bytes::Bytes;
use serde_json::Value;

use crate::handler_rows::HandlerWrite;

/// One attempt of a call, as its handler gets it.
#[derive(Clone, PartialEq)]
pub struct HandlerInvocation {
    pub activity: String,
    pub input: Value,
    /// The JSON text of the input, exactly as received.
    pub input_bytes: Bytes,
    /// Includes the idempotency key, by which a system behind the handler can deduplicate.
    pub metadata: Metadata,
}

impl fmt::Debug for HandlerInvocation {
    /// Leaves out the input, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerInvocation")
            .field("activity", &self.activity)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

/// The success of an attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct HandlerOutput {
    pub output: Value,
    /// Rows that become durable in the commit that records the output: both or neither.
    pub writes: Vec<HandlerWrite>,
}

/// The failure of an attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct HandlerFailure {
    /// The code decides: a permanent failure is recorded, after a retryable one the next attempt runs.
    pub status: RpcStatus,
    /// Rows that become durable despite the failure, in the commit that records it or releases the claim.
    pub writes: Vec<HandlerWrite>,
}

impl HandlerOutput {
    /// An output with the handler's own rows.
    pub fn with_writes(output: Value, writes: Vec<HandlerWrite>) -> Self {
        Self { output, writes }
    }
}

impl From<Value> for HandlerOutput {
    fn from(output: Value) -> Self {
        Self { output, writes: Vec::new() }
    }
}

impl From<RpcStatus> for HandlerFailure {
    fn from(status: RpcStatus) -> Self {
        Self { status, writes: Vec::new() }
    }
}

/// Executes one activity. Async functions that return `Result<Value, RpcStatus>` are handlers.
pub trait Handler: Send + Sync + 'static {
    /// Makes one attempt. The future is dropped when the claim expires, and then another attempt may run: a step that
    /// must not be cut short belongs in its own task.
    fn handle(
        &self,
        invocation: HandlerInvocation,
    ) -> impl Future<Output = Result<HandlerOutput, HandlerFailure>> + Send;
}

impl<H, F, D, E> Handler for H
where
    H: Fn(HandlerInvocation) -> F + Send + Sync + 'static,
    F: Future<Output = Result<D, E>> + Send,
    D: Into<HandlerOutput>,
    E: Into<HandlerFailure>,
{
    async fn handle(&self, invocation: HandlerInvocation) -> Result<HandlerOutput, HandlerFailure> {
        match self(invocation).await {
            Ok(output) => Ok(output.into()),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// The future of a running attempt.
pub(crate) type HandlerFuture = Pin<Box<dyn Future<Output = Result<HandlerOutput, HandlerFailure>> + Send>>;

/// A [`Handler`] as a trait object.
pub(crate) trait DynHandler: Send + Sync {
    fn handle_boxed(self: Arc<Self>, invocation: HandlerInvocation) -> HandlerFuture;
}

impl<H: Handler> DynHandler for H {
    fn handle_boxed(self: Arc<Self>, invocation: HandlerInvocation) -> HandlerFuture {
        Box::pin(async move { self.handle(invocation).await })
    }
}
