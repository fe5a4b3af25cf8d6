//! The receiving side of the dispatch contract: handlers by name, behind HTTP and gRPC, each piece of work done once.
//!
//! ```text
//!  POST /activities/{name}  ─┐                metadata ─► finished before? the recorded answer
//!   JSON, protobuf, envelope ├─► Receiver ─►           ─► in progress?     ABORTED
//!  gRPC Invoke, Probe       ─┘                         ─► too late?        DEADLINE_EXCEEDED
//!                                                      ─► claim (durable) ─► Handler ─► record (durable) ─► answer
//! ```
//! A piece of work is (execution id, activity, idempotency key). A handler that keeps its own rows in the same store hands them back with
//! its answer, and both become durable in one commit: there is no moment at which a crash leaves an effect without its record. A handler
//! whose effect is elsewhere has it at least once; it gets the key to be exact there.
//!
//! This crate knows nothing of workflows, and only the binary knows which store it is. docs/adr/0015 says why it is so, and
//! docs/formats/receiver.md what is stored.

mod builder;
mod clock;
pub mod conformance;
mod effects;
mod grpc;
mod handler;
mod http;
mod options;
mod receiver;
mod records;
mod refusals;
mod rows;
mod running;
mod serve;
mod sweep;

pub use builder::{Builder, OpenError, RegisterError};
pub use clock::Clock;
pub use effects::{Effect, Effects};
pub use handler::{Done, Failed, Handler, Invocation};
pub use options::Options;
pub use receiver::{Receiver, Reply, Request};
pub use serve::{ServeOptions, serve};
pub use sweep::{SweepError, Swept};
