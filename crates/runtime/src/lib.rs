//! Runs workflows durably: shards that own runs, turns, timers, calls, recovery.
//!
//! [`Shard`] is a state machine without clock, task or socket; [`event`] is all it hears and wants. Drivers carry it: [`node`] with tokio,
//! the simulator with dice.

pub mod config;
pub mod crash;
pub mod declared;
pub mod definitions;
pub mod entity;
pub mod event;
pub mod fsck;
pub mod hands;
pub mod lease;
pub mod moment;
pub mod node;
mod panicked;
pub mod placement;
#[cfg(feature = "faults")]
pub mod planted;
pub mod post;
pub mod request;
pub mod routes;
pub mod run;
mod shard;

pub use config::Config;
pub use event::{
    CallId, Depth, Effect, Event, FoundEntity, Kept, LookedUp, Notice, PlanError, ScanPurpose, Stopped,
};
pub use moment::Moment;
pub use node::Node;
pub use request::{Done, Refused, Repeat, Reply, Request, RunView, Start, Started, Ticket, ViewStatus};
pub use shard::Shard;
