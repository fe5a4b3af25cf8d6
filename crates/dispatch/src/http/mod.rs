//! HTTP to targets that the egress guard admits: dialling, TLS, reading responses, and a client that uses one
//! connection per exchange.
//!
//! ```text
//!  Target ─► Connector::connect: admit, dial a checked address, TLS ─► one request, one capped response
//!            if this fails, nothing has been sent                      if this fails, the outcome is unknown
//! ```
//! No redirects, no proxies. Knows nothing about activities; every failure is classified by the table that all
//! transports share.

mod connect;
mod drive_connection;
mod headers;
mod one_shot_client;
mod response;
#[cfg(test)]
pub(crate) mod test_server;
mod tls;

pub(crate) use connect::{Connector, IoStream, connect_failed};
#[cfg(test)]
pub(crate) use connect::{DialFuture, Dialer};
pub(crate) use drive_connection::drive_connection;
pub(crate) use headers::{InvalidHeader, add_metadata_headers, caller_headers};
pub(crate) use one_shot_client::OneShotClient;
pub(crate) use response::{
    HttpResponse, RESPONSE_HEAD_BYTES_MAX, connection_lost, read_response, response_too_large,
};
pub use tls::TlsError;
pub(crate) use tls::{AlpnOffer, ClientIdentity, TlsRoots};
