//! The dispatch contract: what one activity call carries and which results it can have, the same for every transport.
//!
//! This crate does not know workflows or storage. No transport type appears in the signatures of [`transport`], so
//! LOCAL, REST, gRPC and Protobuf-over-HTTP are interchangeable, and a simulator is one more transport. The crate
//! contains the LOCAL transport, the remote ones, and the egress guard that every call to another system passes.
//! Senders and receivers of all wire formats share [`metadata`], [`status`] and [`wire`].

mod activity_router;
pub mod call_journal;
mod contract;
mod declaration;
mod duration;
pub mod egress_guard;
pub mod hold;
mod http;
pub mod identity;
pub mod local;
pub mod metadata;
pub mod remote;
mod schema;
pub mod status;
pub mod transport;
pub mod wire;

pub use activity_router::ActivityRouter;
pub use contract::ContractError;
pub use declaration::{ActivityCategory, ActivityDeclaration};
pub use egress_guard::{EgressGuard, EgressGuardConfig};
pub use hold::{HoldNotice, HoldReason};
pub use http::TlsError;
pub use identity::{CallIdentity, FanOutStep, IdempotencyKey};
pub use local::{LocalActivities, LocalInvocation};
pub use metadata::{Metadata, MetadataError};
pub use status::{RpcCode, RpcStatus};
pub use transport::{ActivityTransport, AttemptResult, CallAttempt, CallFailure, PermitSource};
