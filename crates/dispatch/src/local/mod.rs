//! The LOCAL transport: activities that are Rust functions, called in process.
//!
//! Only what is registered here can be called; nothing of a definition is ever run as code. Knows nothing of workflows: what a definition
//! may name is handed over as JSON.

mod activities;
mod builtin;
mod declaration;
mod duration;
mod http_request;
mod schema;

pub use activities::{Activities, Invocation, RegisterError};
pub use declaration::{Category, Declaration};
