//! A client that opens a new connection for each exchange.
//!
//! Everything happens inside the future that the caller holds, so dropping it closes the connection; nothing is
//! spawned. Knows nothing about activities.

use std::pin::Pin;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use tokio_rustls::TlsConnector;

use super::connect::{Connector, IoStream};
use super::drive_connection::drive_connection;
use super::response::{self, HttpResponse, RESPONSE_HEAD_BYTES_MAX, connection_lost, response_too_large};
use super::tls::{AlpnOffer, TlsError, TlsRoots};
use crate::egress_guard::{EgressGuard, Target};
use crate::status;
use crate::status::excerpt::AnsweredBody;
use crate::transport::CallFailure;
use crate::wire::FAILURE_BYTES_MAX;

/// The largest body of a response, in bytes.
pub(crate) const RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// Opens connections to targets that the guard admits.
#[derive(Clone)]
pub(crate) struct OneShotClient {
    connector: Connector,
    tls: TlsConnector,
}

/// A connection over which nothing has been sent.
pub(crate) struct OneShotConnection {
    io: Pin<Box<dyn IoStream>>,
    target: Target,
}

impl OneShotClient {
    /// A client that trusts the servers certified by these roots.
    pub(crate) fn new(guard: EgressGuard, roots: TlsRoots) -> Result<Self, TlsError> {
        Ok(Self { connector: Connector::new(guard), tls: roots.connector(AlpnOffer::Http1, None)? })
    }

    #[cfg(test)]
    pub(crate) fn with_connector(connector: Connector, tls: TlsConnector) -> Self {
        Self { connector, tls }
    }

    /// Checks that the URL may be called at all.
    pub(crate) fn check_url(&self, url: &str) -> Result<Target, CallFailure> {
        let checked = self.connector.guard().check_url(url);
        checked.map_err(|denied| CallFailure::permanent("AddressDenied", denied.to_string()))
    }

    /// Connects to the target. If this fails, nothing has been sent, so nothing can have run.
    pub(crate) async fn connect(&self, target: Target) -> Result<OneShotConnection, CallFailure> {
        let connected = self.connector.connect(&target, &self.tls).await?;
        Ok(OneShotConnection { io: connected.io, target })
    }
}

impl OneShotConnection {
    /// Sends one request and reads its response. Of the body of a failure only the beginning is read, and not for long:
    /// its status is enough.
    pub(crate) async fn exchange(
        self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<HttpResponse, CallFailure> {
        let Self { io, target } = self;
        let host = HeaderValue::from_str(target.authority());
        let invalid = |_| CallFailure::permanent("AddressDenied", "the host is invalid in a request");
        request.headers_mut().insert(HOST, host.map_err(invalid)?);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let lost = |error: hyper::Error| connection_lost(&target, &error);
        let mut builder = http1::Builder::new();
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX as usize);
        let (mut sender, mut connection) = builder.handshake(TokioIo::new(io)).await.map_err(lost)?;
        let exchange = async {
            let mut response = sender.send_request(request).await.map_err(lost)?;
            let beginning = match response.status().is_success() {
                true => Vec::new(),
                false => response::read_beginning(response.body_mut(), FAILURE_BYTES_MAX).await,
            };
            let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            let failed = status::http::FailureResponse {
                status: response.status().as_u16(),
                body_status: None,
                retry_after: header(RETRY_AFTER),
                server: &target.to_string(),
                body: AnsweredBody { bytes: &beginning, content_type: header(CONTENT_TYPE) },
            };
            match failed.into_failure() {
                Some(failure) => Err(failure),
                None => response::read_response(response, RESPONSE_BYTES_MAX).await.map_err(lost),
            }
        };
        let exchanged = drive_connection(Pin::new(&mut connection), exchange).await.0?;
        if exchanged.body.is_none() {
            Err(response_too_large(&target, RESPONSE_BYTES_MAX))
        } else {
            Ok(exchanged)
        }
    }
}
