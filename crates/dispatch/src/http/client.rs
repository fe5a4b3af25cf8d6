//! One exchange over a connection of its own.
//!
//! Everything happens inside the future the caller holds, so dropping it closes the connection; nothing is spawned.

use std::pin::Pin;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsConnector;

use super::beside::beside;
use super::connect::{Connector, Stream, not_connected};
use super::response::{self, Exchanged, RESPONSE_HEAD_BYTES_MAX, lost, too_large};
use super::tls::{Offer, TlsError, TlsRoots};
use crate::guard::{Guard, Target};
use crate::status;
use crate::transport::Failure;

/// Bytes of a response's body.
pub(crate) const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// Makes connections to what the guard admits.
#[derive(Clone)]
pub(crate) struct Client {
    connector: Connector,
    tls: TlsConnector,
}

/// A connection over which nothing has been sent.
pub(crate) struct Connection {
    io: Pin<Box<dyn Stream>>,
    target: Target,
}

impl Client {
    /// A client that believes servers these roots vouch for.
    pub(crate) fn new(guard: Guard, roots: TlsRoots) -> Result<Self, TlsError> {
        Ok(Self { connector: Connector::new(guard), tls: roots.connector(Offer::Http1, None)? })
    }

    #[cfg(test)]
    pub(crate) fn over(connector: Connector, tls: TlsConnector) -> Self {
        Self { connector, tls }
    }

    /// Whether the URL may be called at all.
    pub(crate) fn target(&self, url: &str) -> Result<Target, Failure> {
        let denied = self.connector.guard().check_url(url);
        denied.map_err(|denied| Failure::for_good("AddressDenied", denied.to_string()))
    }

    /// A connection to the target. Nothing has been sent if this fails, so nothing can have run.
    pub(crate) async fn connect(&self, target: Target) -> Result<Connection, Failure> {
        let connected = self.connector.connect(&target, &self.tls).await?;
        Ok(Connection { io: connected.io, target })
    }
}

impl Connection {
    /// One request and its response. The body of a failure is not read: its status says all that is needed.
    pub(crate) async fn exchange(self, mut request: Request<Full<Bytes>>) -> Result<Exchanged, Failure> {
        let Self { io, target } = self;
        let host = HeaderValue::from_str(target.authority());
        request.headers_mut().insert(HOST, host.map_err(|error| not_connected(&target, &error))?);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let lost = |error: hyper::Error| lost(&target, &error);
        let mut builder = http1::Builder::new();
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX as usize);
        let (mut sender, mut connection) = builder.handshake(TokioIo::new(io)).await.map_err(lost)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(lost)?;
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let (status, server) = (response.status().as_u16(), target.to_string());
            let told = status::http::Response { status, told: None, retry_after, server: &server };
            match told.failure() {
                Some(failure) => Err(failure),
                None => response::read(response, RESPONSE_BYTES_MAX).await.map_err(lost),
            }
        };
        let exchanged = beside(Pin::new(&mut connection), exchange).await.0?;
        if exchanged.body.is_none() { Err(too_large(&target, RESPONSE_BYTES_MAX)) } else { Ok(exchanged) }
    }
}
