//! The dispatch contract: what one activity call carries, and what may come back, whatever transport it takes.
//!
//! This crate does not know workflows or storage. No transport type appears in the signatures of [`transport`], so LOCAL, REST, gRPC and
//! Protobuf-over-HTTP are interchangeable, and a simulator is one more of them. LOCAL is here, and the guard that every call to another
//! system passes; [`metadata`], [`status`] and [`wire`] are what senders and receivers of all wires share.

mod contract;
mod declaration;
mod duration;
pub mod guard;
mod http;
pub mod identity;
pub mod journal;
pub mod local;
pub mod metadata;
pub mod remote;
mod schema;
pub mod status;
pub mod transport;
pub mod wire;

pub use contract::ContractError;
pub use declaration::{Category, Declaration};
pub use guard::{Guard, GuardConfig};
pub use http::TlsError;
pub use identity::{FanOut, IdempotencyKey, WorkIdentity};
pub use local::{Activities, Invocation};
pub use metadata::{MalformedMetadata, Metadata};
pub use status::{Code, Status};
pub use transport::{Answer, Call, Failure, Room, Transport};
