//! The server: configuration, the HTTP API, metrics, and the composition root that assembles a store, activities and
//! a node.
//!
//! It exposes the runtime to the outside. It decides nothing about runs (the runtime does) or about definitions
//! (validation does).
//!
//! ```text
//!  socket ─► connections ─► rest (a file per resource) ──────► App: node, definitions ─► response or error ─► socket
//!                           durable_functions (the same runs
//!                           under the Durable Functions API)
//! ```

mod activity_catalogue;
mod api_request;
mod app;
pub mod backup;
mod byte_budget;
pub mod config;
mod connection_load;
mod connections;
mod correlation;
mod data_check;
mod data_layout;
mod durable_functions;
mod error;
pub mod logging;
mod metrics;
mod openapi;
mod origin_check;
mod rate_limit;
mod readiness_watch;
mod response;
mod response_share;
mod rest;
pub mod server;
mod write_timeout;

pub use activity_catalogue::{ActivityCatalogue, CatalogueError};
pub use app::{App, AppLimits};
pub use config::Config;
pub use data_check::{CheckError, check_data_folder};
pub use origin_check::OriginPolicy;
pub use rest::{BackupSource, openapi_document, router};
pub use server::{ServeError, Server, ServerBuilder};

pub use abide_dispatch::{ActivityCategory, ActivityDeclaration, CallFailure, LocalInvocation};
pub use abide_runtime::entity::{EntityKind, OperationContext, OperationError, OperationOutcome};
pub use abide_store_embedded::StoreOpenError;
