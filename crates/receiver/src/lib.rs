//! The receiving side of the dispatch contract: serves handlers by name over HTTP and gRPC, and does each call once.
//!
//! ```text
//!  POST /activities/{name}  ─┐                metadata ─► finished before? the recorded result
//!   JSON, protobuf, envelope ├─► Receiver ─►           ─► in progress?     ABORTED
//!  gRPC Invoke, Probe       ─┘                         ─► too late?        DEADLINE_EXCEEDED
//!                                                      ─► claim (durable) ─► Handler ─► record (durable) ─► response
//! ```
//! A call is identified by (execution id, activity, idempotency key). A handler that keeps its own rows in the same
//! store returns them with its output. Both become durable in one commit, so no crash leaves an effect without its
//! record. A handler with an effect elsewhere has it at least once, and gets the idempotency key to deduplicate there.
//!
//! This crate knows nothing of workflows, and only the binary knows which store is used.
//! docs/adr/0015-dispatch-contract.md gives the reasons; docs/formats/receiver.md describes the stored rows.

mod active_claims;
mod builder;
mod clock;
pub mod conformance;
mod grpc;
mod handler;
mod handler_rows;
mod http;
mod http_server;
mod idempotency;
mod options;
mod receiver;
mod refusals;
mod retention;
mod rows;

pub use builder::{HandlerRegisterError, ReceiverBuilder, ReceiverOpenError};
pub use clock::ReceiverClock;
pub use handler::{Handler, HandlerFailure, HandlerInvocation, HandlerOutput};
pub use handler_rows::{HandlerRows, HandlerWrite};
pub use http_server::{ServeOptions, serve};
pub use options::ReceiverOptions;
pub use receiver::{ActivityRequest, ActivityResponse, Receiver};
pub use retention::{SweepError, SweepSummary};
