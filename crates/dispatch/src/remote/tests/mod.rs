//! The sending side against real servers on the loopback address.

mod activity_router;
mod connection_pool;
mod failure_bodies;
mod fixtures;
mod grpc;
mod permits;
mod probe;
mod server;
mod ssrf;
mod target_limits;
mod tls;
mod unresponsive_targets;
mod wire_formats;
