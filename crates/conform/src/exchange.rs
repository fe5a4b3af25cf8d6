//! One request and its response, over a connection of its own, within its time.
//!
//! A connection per exchange costs little here, and a receiver that spoils one spoils no other check. Knows nothing of what is sent.

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

use crate::place::Place;

/// Bytes of an answer: far more than any receiver may give.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How requests are put on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// HTTP/1.1, header names in lower case.
    Http1,
    /// HTTP/1.1, header names In-Title-Case.
    Http1TitleCase,
    /// HTTP/2, which has lower case only.
    Http2,
}

/// A request, spelled.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) manner: Manner,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Exchanged {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// Why there is no response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// There is no connection.
    Unreachable(String),
    /// There is one, and no answer came in time.
    TimedOut(Duration),
    /// It broke off, or an answer came that cannot be read.
    Broken(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::TimedOut(limit) => write!(f, "none within {limit:?}"),
            Self::Broken(why) => write!(f, "none: {why}"),
        }
    }
}

/// Makes exchanges with one place.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) place: Place,
    pub(crate) time_max: Duration,
    pub(crate) authorization: Option<HeaderValue>,
}

impl Client {
    pub(crate) async fn exchange(&self, written: Written) -> Result<Exchanged, Lost> {
        let connecting = self.connect(written.manner == Manner::Http2);
        let connected = tokio::time::timeout(self.time_max, connecting).await;
        let io = match connected {
            Ok(Ok(io)) => io,
            Ok(Err(why)) => return Err(Lost::Unreachable(format!("{}: {why}", self.place.authority))),
            Err(_) => {
                let why = format!("{}: no connection within {:?}", self.place.authority, self.time_max);
                return Err(Lost::Unreachable(why));
            }
        };
        match tokio::time::timeout(self.time_max, self.over(io, written)).await {
            Ok(Ok(exchanged)) => Ok(exchanged),
            Ok(Err(why)) => Err(Lost::Broken(why)),
            Err(_) => Err(Lost::TimedOut(self.time_max)),
        }
    }

    async fn connect(&self, is_http2: bool) -> Result<Box<dyn Stream>, String> {
        let Place { host, port, is_tls, .. } = &self.place;
        let stream = match host {
            Host::Domain(name) => TcpStream::connect((name.as_str(), *port)).await,
            Host::Ipv4(address) => TcpStream::connect((*address, *port)).await,
            Host::Ipv6(address) => TcpStream::connect((*address, *port)).await,
        };
        let stream = stream.map_err(|error| chain(&error))?;
        // A request is one write: waiting for more would only hold it back.
        drop(stream.set_nodelay(true));
        if !is_tls {
            return Ok(Box::new(stream));
        }
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.clone()).map_err(|error| chain(&error))?,
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
        };
        let connected = tls(is_http2)?.connect(name, stream).await;
        Ok(Box::new(connected.map_err(|error| chain(&error))?))
    }

    async fn over(&self, io: Box<dyn Stream>, written: Written) -> Result<Exchanged, String> {
        // Connections end with their exchange: dropping the set ends its tasks.
        let mut tasks = JoinSet::new();
        let manner = written.manner;
        let request = self.request(written)?;
        let response = match manner {
            Manner::Http1 | Manner::Http1TitleCase => {
                let mut builder = http1::Builder::new();
                builder.title_case_headers(manner == Manner::Http1TitleCase);
                let (mut sender, connection) =
                    builder.handshake(TokioIo::new(io)).await.map_err(|error| chain(&error))?;
                tasks.spawn(async move { drop(connection.await) });
                sender.send_request(request).await
            }
            Manner::Http2 => {
                let builder = http2::Builder::new(TokioExecutor::new());
                let (mut sender, connection) =
                    builder.handshake(TokioIo::new(io)).await.map_err(|error| chain(&error))?;
                tasks.spawn(async move { drop(connection.await) });
                sender.send_request(request).await
            }
        };
        read(response.map_err(|error| chain(&error))?).await
    }

    fn request(&self, written: Written) -> Result<Request<Full<Bytes>>, String> {
        let Written { manner, path, headers, body } = written;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let authority = &self.place.authority;
        if manner == Manner::Http2 {
            let scheme = if self.place.is_tls { "https" } else { "http" };
            *request.version_mut() = Version::HTTP_2;
            *request.uri_mut() = uri(&format!("{scheme}://{authority}{path}"))?;
        } else {
            *request.uri_mut() = uri(&path)?;
            let host = HeaderValue::try_from(authority.as_str()).map_err(|error| chain(&error))?;
            request.headers_mut().insert(HOST, host);
        }
        Ok(request)
    }
}

fn uri(text: &str) -> Result<Uri, String> {
    text.parse().map_err(|error| chain(&error))
}

async fn read(response: Response<Incoming>) -> Result<Exchanged, String> {
    let (head, body) = response.into_parts();
    let collected =
        Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok(Exchanged {
        status: head.status.as_u16(),
        headers: head.headers,
        body: collected.to_bytes(),
        trailers,
    })
}

fn tls(is_http2: bool) -> Result<TlsConnector, String> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| chain(&error))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What carries bytes both ways.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An error with what it came from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
