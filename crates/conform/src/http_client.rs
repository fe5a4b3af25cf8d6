//! Sends one request on its own connection and reads the response, within a time limit.
//!
//! A connection per exchange costs little here, and a receiver that breaks one connection affects no other check. This
//! file knows nothing of the content of requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::Host;

use crate::receiver_url::ReceiverUrl;

/// Far more than any receiver may send.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// HTTP version and spelling of header names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HttpVariant {
    /// HTTP/1.1, header names in lower case.
    Http1,
    /// HTTP/1.1, header names In-Title-Case.
    Http1TitleCase,
    /// HTTP/2, where header names are always in lower case.
    Http2,
}

/// A request as it is sent: path, headers and body are encoded.
#[derive(Clone, Debug)]
pub(crate) struct RawRequest {
    pub(crate) http_variant: HttpVariant,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// Why there is no response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ExchangeError {
    /// No connection could be made.
    Unreachable(String),
    /// The connection was made, but no response came in time.
    TimedOut(Duration),
    /// The connection broke, or the response cannot be read.
    Broken(String),
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::TimedOut(limit) => write!(f, "no response within {limit:?}"),
            Self::Broken(why) => write!(f, "no response: {why}"),
        }
    }
}

/// Exchanges requests and responses with one receiver.
#[derive(Clone)]
pub(crate) struct ReceiverClient {
    pub(crate) url: ReceiverUrl,
    pub(crate) timeout: Duration,
    pub(crate) authorization: Option<HeaderValue>,
}

impl ReceiverClient {
    pub(crate) async fn send(&self, request: RawRequest) -> Result<RawResponse, ExchangeError> {
        let connecting = self.connect(request.http_variant == HttpVariant::Http2);
        let connected = tokio::time::timeout(self.timeout, connecting).await;
        let io = match connected {
            Ok(Ok(io)) => io,
            Ok(Err(why)) => return Err(ExchangeError::Unreachable(format!("{}: {why}", self.url.authority))),
            Err(_) => {
                let why = format!("{}: no connection within {:?}", self.url.authority, self.timeout);
                return Err(ExchangeError::Unreachable(why));
            }
        };
        match tokio::time::timeout(self.timeout, self.exchange_on(io, request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(why)) => Err(ExchangeError::Broken(why)),
            Err(_) => Err(ExchangeError::TimedOut(self.timeout)),
        }
    }

    async fn connect(&self, is_http2: bool) -> Result<Box<dyn ByteStream>, String> {
        let ReceiverUrl { host, port, is_tls, .. } = &self.url;
        let stream = match host {
            Host::Domain(name) => TcpStream::connect((name.as_str(), *port)).await,
            Host::Ipv4(address) => TcpStream::connect((*address, *port)).await,
            Host::Ipv6(address) => TcpStream::connect((*address, *port)).await,
        };
        let stream = stream.map_err(|error| error_chain(&error))?;
        // A request is one write: Nagle's algorithm would only delay it.
        drop(stream.set_nodelay(true));
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| error_chain(&error))?,
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
        };
        let connected = tls_connector(is_http2)?.connect(name, stream).await;
        Ok(Box::new(connected.map_err(|error| error_chain(&error))?))
    }

    async fn exchange_on(&self, io: Box<dyn ByteStream>, raw: RawRequest) -> Result<RawResponse, String> {
        // A connection ends with its exchange: dropping the set aborts its tasks.
        let mut tasks = JoinSet::new();
        let http_variant = raw.http_variant;
        let request = self.build_request(raw)?;
        let response = match http_variant {
            HttpVariant::Http1 | HttpVariant::Http1TitleCase => {
                let mut builder = http1::Builder::new();
                builder.title_case_headers(http_variant == HttpVariant::Http1TitleCase);
                let (mut sender, connection) =
                    builder.handshake(TokioIo::new(io)).await.map_err(|error| error_chain(&error))?;
                tasks.spawn(async move { drop(connection.await) });
                sender.send_request(request).await
            }
            HttpVariant::Http2 => {
                let builder = http2::Builder::new(TokioExecutor::new());
                let (mut sender, connection) =
                    builder.handshake(TokioIo::new(io)).await.map_err(|error| error_chain(&error))?;
                tasks.spawn(async move { drop(connection.await) });
                sender.send_request(request).await
            }
        };
        read_response(response.map_err(|error| error_chain(&error))?).await
    }

    fn build_request(&self, raw: RawRequest) -> Result<Request<Full<Bytes>>, String> {
        let RawRequest { http_variant, path, headers, body } = raw;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let authority = &self.url.authority;
        if http_variant == HttpVariant::Http2 {
            let scheme = if self.url.is_tls { "https" } else { "http" };
            *request.version_mut() = Version::HTTP_2;
            *request.uri_mut() = parse_uri(&format!("{scheme}://{authority}{path}"))?;
        } else {
            *request.uri_mut() = parse_uri(&path)?;
            let host = HeaderValue::try_from(authority.as_str()).map_err(|error| error_chain(&error))?;
            request.headers_mut().insert(HOST, host);
        }
        Ok(request)
    }
}

fn parse_uri(text: &str) -> Result<Uri, String> {
    text.parse().map_err(|error| error_chain(&error))
}

async fn read_response(response: Response<Incoming>) -> Result<RawResponse, String> {
    let (head, body) = response.into_parts();
    let collected =
        Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok(RawResponse {
        status: head.status.as_u16(),
        headers: head.headers,
        body: collected.to_bytes(),
        trailers,
    })
}

fn tls_connector(is_http2: bool) -> Result<TlsConnector, String> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error_chain(&error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A TCP or TLS connection.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// The message of an error, followed by those of its sources.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
