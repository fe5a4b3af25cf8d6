//! Tests of the HTTP API from the client's side, on a real node over the reference store.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on panics")]

mod activities;
mod activity_declarations;
mod backup;
mod body_limits;
mod cloud_event_forms;
mod cloud_events;
mod control;
mod dead_letters;
mod dispatch_pages;
mod dispatches;
mod durable_functions;
mod entities;
mod entity_activities;
mod event_routes;
mod full_shards;
mod hostile_requests;
mod idempotency;
mod instance_list;
mod onboarding;
mod openapi_conformance;
mod openapi_document;
mod origin_check;
mod purges;
mod readiness;
mod remote_activities;
mod server;
mod slow_clients;
mod starts;
mod stats;
mod stuck;
mod test_api;
mod workflows;
