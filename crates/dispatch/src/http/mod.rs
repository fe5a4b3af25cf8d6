//! HTTP to targets that the guard admits: dialling, TLS, and what a response is read as; and the client of one exchange over a connection
//! of its own.
//!
//! ```text
//!  Target ─► Connector::connect: admit, dial a checked address, TLS ─► one request, one capped response
//!            nothing has been sent if this fails                       nobody knows whether it was handled if this fails
//! ```
//! No redirects, no proxies. Knows nothing of activities; every failure is classified by the table that all transports share.

mod beside;
mod client;
mod connect;
mod headers;
mod response;
#[cfg(test)]
pub(crate) mod test_server;
mod tls;

pub(crate) use beside::beside;
pub(crate) use client::Client;
pub(crate) use connect::{Connector, Stream, not_connected};
#[cfg(test)]
pub(crate) use connect::{Dial, Dialling};
pub(crate) use headers::{HeaderRefused, metadata_headers, outgoing_headers};
pub(crate) use response::{Exchanged, RESPONSE_HEAD_BYTES_MAX, lost, read, too_large};
pub use tls::TlsError;
pub(crate) use tls::{Identity, Offer, TlsRoots};
