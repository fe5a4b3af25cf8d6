//! The server: configuration, the HTTP interface, metrics, and the composition root that puts a store, activities and a node together.
//!
//! It is: how the runtime is reached from outside. It is not: deciding anything about runs, which the runtime does, or about definitions,
//! which validation does.
//!
//! ```text
//!  socket ─► listen ─► rest (a file per resource) ─► App: node, definitions ─► envelope or error ─► socket
//!                       durable (the same, as Durable Functions has it)
//! ```

mod app;
mod asked;
pub mod backup;
mod bodies;
mod callers;
mod catalogue;
mod check;
pub mod config;
mod correlation;
mod durable;
mod envelope;
mod error;
mod layout;
mod listen;
pub mod logging;
mod metrics;
mod openapi;
mod rate;
mod rest;
pub mod serve;
mod watched;

pub use app::{App, AppLimits};
pub use callers::Callers;
pub use catalogue::{Catalogue, CatalogueError};
pub use check::{CheckError, check};
pub use config::Config;
pub use rest::{interface, router};
pub use serve::{Builder, ServeError, Server};

pub use abide_dispatch::{Category, Declaration, Failure, Invocation};
pub use abide_runtime::entity::{EntityKind, OperationCall, OperationError, OperationOutcome};
pub use abide_store_embedded::OpenError;
