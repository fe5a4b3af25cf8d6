//! The LOCAL transport: activities that are Rust functions, called in process.
//!
//! Only registered activities can be called; nothing in a definition is ever run as code. Knows nothing about
//! workflows: the activities that a definition may use are passed on as JSON.

mod activities;
mod builtin;
mod http_request;

pub use crate::declaration::{ActivityCategory, ActivityDeclaration};
pub use activities::{LocalActivities, LocalInvocation, LocalRegisterError};
