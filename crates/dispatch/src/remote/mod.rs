//! The sending side: activities that other services run, called over four wire formats through one shared `Outbound`.
//!
//! ```text
//!  ActivityRouter ─► LocalActivities, in process
//!                └─► RemoteRegistry ─► RemoteActivity: contract, Admission (permits, rate limits, circuit breaker)
//!                                        ├─ encoded and decoded by rest | protobuf | grpc | envelope
//!                                        └─ Outbound: secrets, connection pools; the egress guard admits every address
//! ```
//! One attempt is made and reported; the workflow decides about retries. A failure before anything was sent has a known
//! outcome. The reasons for this design are in docs/adr/0016-sending-side.md.

mod activity;
mod admission;
mod circuit_breaker;
mod connection_pool;
mod declaration;
mod envelope;
mod exchange;
mod grpc;
pub(crate) mod input_secrets;
mod limiter;
mod outbound;
mod probe;
mod protobuf;
mod redact;
mod registry;
mod request_signing;
mod rest;
pub mod secrets;
mod tls_profile;

pub use activity::RemoteActivity;
pub use circuit_breaker::{BreakerConfig, CircuitState};
pub use declaration::{
    AuthDeclaration, CONCURRENCY_DEFAULT, ClientCertificate, DeclarationError, HmacKey, RemoteDeclaration,
    TlsDeclaration, WireFormat,
};
pub use limiter::{LimitError, TargetLimits};
pub use outbound::{Outbound, TargetConfig};
pub use registry::{RemoteRegistry, RemoteRegistryError};
pub use request_signing::{
    SIGNATURE_HEADER, SIGNATURE_KEY_ID_HEADER, SIGNATURE_NONCE_HEADER, SIGNATURE_TIMESTAMP_HEADER,
    SigningInput,
};
pub use secrets::{Secret, SecretError, SecretRef, Secrets, SecretsConfig, SystemSecrets};

#[cfg(test)]
mod tests;
