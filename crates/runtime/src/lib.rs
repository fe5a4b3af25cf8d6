//! Runs workflows durably: shards own runs and are responsible for their turns, timers, calls and recovery.
//!
//! [`Shard`] is a state machine without clock, task or socket: it handles events and returns effects, both defined in
//! [`event`]. Two drivers execute the effects: [`node`] with tokio, the simulator in virtual time.

pub mod activity_declarations;
pub mod config;
pub mod crash_point;
pub mod definitions;
pub mod entity;
pub mod event;
pub mod event_routes;
mod fault_check;
#[cfg(feature = "faults")]
pub mod fault_injection;
pub mod fsck;
pub mod lease;
pub mod node;
pub mod now;
mod panics;
pub mod placement;
pub mod request;
pub mod run;
pub mod run_message;
mod shard;
pub mod store_effects;
pub mod turnstile;

pub use config::ShardConfig;
pub use event::{
    AttemptId, Effect, EntityLookup, Event, FailedCall, InstanceLookup, LookupDepth, OperatorEvent,
    PlanError, ScanPurpose, SendTicket, StopReason, StoredReplyLookup,
};
pub use node::Node;
pub use now::Now;
pub use request::{
    IdempotentReply, QueueLimit, RequestError, RequestId, RequestIdempotency, RunView, ShardReply,
    ShardRequest, StartRequest, StartedRun, ViewStatus,
};
pub use shard::Shard;
