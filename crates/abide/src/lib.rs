//! Abide in a program of your own: a server with activities and kinds of entities that are Rust functions.
//!
//! Everything a server needs is here, under one name; examples/embed.rs has a whole one in a few lines.

pub use abide_server::{
    Builder, Category, Config, Declaration, EntityKind, Failure, Invocation, OperationCall, OperationError,
    OperationOutcome, ServeError, Server,
};
