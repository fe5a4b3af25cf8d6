//! The LOCAL transport: activities that are Rust functions, called in process.
//!
//! Only what is registered here can be called; nothing of a definition is ever run as code. Knows nothing of workflows: what a definition
//! may name is handed over as JSON.

mod activities;
mod builtin;
mod http_request;

pub use crate::declaration::{Category, Declaration};
pub use activities::{Activities, Invocation, RegisterError};
