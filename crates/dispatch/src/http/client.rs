//! Dials a checked address and makes one exchange over the connection.
//!
//! Everything happens inside the future the caller holds, so dropping it closes the connection; nothing is spawned.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::tls::{TlsError, TlsRoots};
use crate::guard::{AdmitError, Guard, Scheme, Target};
use crate::status;
use crate::transport::Failure;

/// Resolving, dialling and shaking hands together.
const CONNECT_MS_MAX: u64 = 5_000;
/// Addresses of one name that are tried; each has its share of the time.
const ADDRESSES_TRIED_MAX: u32 = 3;
/// Bytes of a response's body.
pub(crate) const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a response's head.
const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Makes connections to what the guard admits.
#[derive(Clone)]
pub(crate) struct Client {
    guard: Guard,
    tls: TlsConnector,
}

/// A connection over which nothing has been sent.
pub(crate) struct Connection {
    io: Pin<Box<dyn Stream>>,
    target: Target,
}

/// A successful response.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Bytes both ways, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

impl Client {
    /// A client that believes servers these roots vouch for.
    pub(crate) fn new(guard: Guard, roots: TlsRoots) -> Result<Self, TlsError> {
        Ok(Self { guard, tls: roots.connector()? })
    }

    /// Whether the URL may be called at all.
    pub(crate) fn target(&self, url: &str) -> Result<Target, Failure> {
        self.guard.check_url(url).map_err(|denied| Failure::for_good("AddressDenied", denied.to_string()))
    }

    /// A connection to the target. Nothing has been sent if this fails, so nothing can have run.
    pub(crate) async fn connect(&self, target: Target) -> Result<Connection, Failure> {
        let connecting = async {
            let addresses = self.guard.admit(&target).await.map_err(|error| not_admitted(&error))?;
            let tcp = dial(&addresses).await.map_err(|error| not_connected(&target, &error))?;
            match target.scheme() {
                Scheme::Http => Ok::<_, Failure>(Box::pin(tcp) as Pin<Box<dyn Stream>>),
                Scheme::Https => {
                    let name = server_name(&target).map_err(|error| not_connected(&target, &error))?;
                    let tls = self.tls.connect(name, tcp).await;
                    Ok(Box::pin(tls.map_err(|error| not_connected(&target, &error))?) as Pin<Box<dyn Stream>>)
                }
            }
        };
        match tokio::time::timeout(Duration::from_millis(CONNECT_MS_MAX), connecting).await {
            Ok(io) => Ok(Connection { io: io?, target }),
            Err(_) => Err(not_connected(&target, &std::io::Error::from(std::io::ErrorKind::TimedOut))),
        }
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
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(lost)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(lost)?;
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let (status, server) = (response.status().as_u16(), target.to_string());
            let told = status::http::Response { status, told: None, retry_after, server: &server };
            match told.failure() {
                Some(failure) => Err(failure),
                None => read(response, &target).await,
            }
        };
        beside(connection, exchange).await
    }
}

/// Reads a response as long as it is not too large.
async fn read(response: Response<Incoming>, target: &Target) -> Result<Exchanged, Failure> {
    let (head, mut incoming) = response.into_parts();
    if incoming.size_hint().lower() > RESPONSE_BYTES_MAX as u64 {
        return Err(too_large(target));
    }
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        // Trailers are of no use to anybody here.
        let Ok(data) = frame.map_err(|error| lost(target, &error))?.into_data() else { continue };
        if body.len().saturating_add(data.len()) > RESPONSE_BYTES_MAX {
            return Err(too_large(target));
        }
        body.extend_from_slice(&data);
    }
    Ok(Exchanged { status: head.status, headers: head.headers, body: body.into() })
}

/// The first of the addresses that answers.
async fn dial(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let tried = u32::try_from(addresses.len()).unwrap_or(u32::MAX).clamp(1, ADDRESSES_TRIED_MAX);
    let share = Duration::from_millis(CONNECT_MS_MAX) / tried;
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in addresses.iter().take(ADDRESSES_TRIED_MAX as usize) {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = std::io::Error::from(std::io::ErrorKind::TimedOut),
        }
    }
    Err(last)
}

/// Whose certificate the server must show.
fn server_name(
    target: &Target,
) -> Result<ServerName<'static>, tokio_rustls::rustls::pki_types::InvalidDnsNameError> {
    match (target.address(), target.name()) {
        (Some(address), _) => Ok(ServerName::from(address)),
        (None, name) => ServerName::try_from(name.unwrap_or_default().to_owned()),
    }
}

/// Polls the connection as long as the exchange needs it.
async fn beside<E: Future>(connection: impl Future, exchange: E) -> E::Output {
    let (mut connection, mut exchange) = (pin!(connection), pin!(exchange));
    let mut is_open = true;
    poll_fn(move |context| {
        // What goes wrong with the connection is told to the exchange.
        if is_open && connection.as_mut().poll(context).is_ready() {
            is_open = false;
        }
        exchange.as_mut().poll(context)
    })
    .await
}

fn not_admitted(error: &AdmitError) -> Failure {
    match error {
        AdmitError::Denied(_) => Failure::for_good("AddressDenied", chain(error)),
        AdmitError::Unresolved { .. } | AdmitError::NoAddress { .. } => {
            Failure::retryable("ConnectFailed", chain(error))
        }
    }
}

fn not_connected(target: &Target, error: &dyn Error) -> Failure {
    Failure::retryable("ConnectFailed", format!("{target} could not be reached: {}", chain(error)))
}

/// Something was, or may have been, sent. An answer that cannot be read, or whose head is too large, is no answer.
fn lost(target: &Target, error: &hyper::Error) -> Failure {
    let message = format!("the exchange with {target} broke off: {}", chain(error));
    Failure::retryable("ConnectionLost", message).with_outcome_unknown()
}

fn too_large(target: &Target) -> Failure {
    let message = format!("the response of {target} is larger than {RESPONSE_BYTES_MAX} bytes");
    Failure::for_good("ResponseTooLarge", message)
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told.push_str(": ");
        told.push_str(&error.to_string());
        cause = error.source();
    }
    told
}
