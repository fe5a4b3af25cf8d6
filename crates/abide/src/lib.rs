//! The library for embedding Abide: a server whose activities and entity kinds are Rust functions of your program.
//!
//! It only re-exports what such a program needs. examples/embed.rs has a complete server in a few lines.

pub use abide_server::{
    ActivityCategory, ActivityDeclaration, CallFailure, Config, EntityKind, LocalInvocation,
    OperationContext, OperationError, OperationOutcome, ServeError, Server, ServerBuilder,
};
