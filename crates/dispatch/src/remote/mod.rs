//! The sending side: activities that other services run, reached over four wires by one way out.
//!
//! ```text
//!  Everywhere ─► Activities in process
//!            └─► Directory ─► Remote: contract, gate (places, pace, breaker)
//!                               ├─ written and read by rest | protobuf | grpc | envelope
//!                               └─ Outbound: secrets, connections; every address is the guard's to admit
//! ```
//! A delivery is made once and reported: retries are decided where the workflow advances. What fails before anything was sent has a known
//! outcome. docs/adr/0016-sending-side.md has the reasons.

mod activity;
mod breaker;
mod credentials;
mod declaration;
mod directory;
mod envelope;
mod exchange;
mod gate;
mod grpc;
mod input_secrets;
mod limits;
mod outbound;
mod pool;
mod probe;
mod protobuf;
mod redact;
mod rest;
pub mod secrets;
mod tls_profile;

pub use activity::Remote;
pub use breaker::{BreakerConfig, Circuit};
pub use credentials::{SIGNATURE, SIGNATURE_KEY_ID, SIGNATURE_NONCE, SIGNATURE_TIMESTAMP, Signed};
pub use declaration::{
    Auth, CONCURRENCY_DEFAULT, ClientCertificate, DeclarationError, Hmac, RemoteDeclaration, Tls, Wire,
};
pub use directory::{Directory, DirectoryError, Everywhere};
pub use limits::{LimitError, TargetLimits};
pub use outbound::{Outbound, TargetConfig};
pub use secrets::{Secret, SecretError, SecretRef, Secrets, SecretsConfig, SystemSecrets};

#[cfg(test)]
mod tests;
