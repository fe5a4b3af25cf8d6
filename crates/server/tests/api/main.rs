//! The HTTP interface as its clients meet it, on a real node over the reference store.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on panics")]

mod bodies;
mod callers;
mod durable;
mod events;
mod readiness;
mod repeats;
mod server;
mod starts;
mod workflows;
mod world;
