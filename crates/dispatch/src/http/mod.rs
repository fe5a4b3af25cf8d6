//! One HTTP exchange over a connection of its own, to a target that the guard admits.
//!
//! ```text
//!  Target ─► Client::connect: admit, dial a checked address, TLS ─► Connection::exchange: one request, one capped response
//!            nothing has been sent if this fails                     nobody knows whether it was handled if this fails
//! ```
//! No redirects, no proxies, no pool. Knows nothing of activities; every failure is classified by the table that all transports share.

mod client;
mod headers;
#[cfg(test)]
pub(crate) mod test_server;
mod tls;

pub(crate) use client::{Client, Exchanged};
pub(crate) use headers::{HeaderRefused, metadata_headers, outgoing_headers};
pub use tls::TlsError;
pub(crate) use tls::TlsRoots;
