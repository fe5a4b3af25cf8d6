//! The HTTP interface as its clients meet it, on a real node over the reference store.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on panics")]

mod activities;
mod bodies;
mod callers;
mod cloud_event_forms;
mod cloud_events;
mod declared;
mod described;
mod dispatch_pages;
mod dispatches;
mod dlq;
mod durable;
mod entities;
mod entity_activities;
mod events;
mod hostile;
mod interface;
mod lists;
mod purges;
mod readiness;
mod remote;
mod repeats;
mod routes;
mod server;
mod starts;
mod stats;
mod stuck;
mod workflows;
mod world;
