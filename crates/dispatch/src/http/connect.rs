//! Opens connections to targets that the egress guard admits: the only place in this crate that dials.
//!
//! Every address is checked before it is dialled, and the connection goes to that very address. Knows nothing about
//! what is sent.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};

use crate::egress_guard::{AdmitError, EgressGuard, Scheme, Target};
use crate::hold::HoldReason;
use crate::transport::CallFailure;

/// The time for resolving, dialling and the TLS handshake together.
pub(crate) const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// Addresses of one name that are tried; each gets an equal share of the time.
const ADDRESSES_TRIED_MAX: u32 = 3;

/// The future of a dialled connection.
pub(crate) type DialFuture<'d> = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send + 'd>>;

/// Opens connections. A trait, so that a test can count them.
pub(crate) trait Dialer: Send + Sync + 'static {
    /// Connects to this address, which has been checked.
    fn dial(&self, address: SocketAddr) -> DialFuture<'_>;
}

/// Dials through the operating system.
#[derive(Clone, Copy, Debug)]
struct SystemDialer;

impl Dialer for SystemDialer {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        Box::pin(TcpStream::connect(address))
    }
}

/// Opens connections to admitted targets.
#[derive(Clone)]
pub(crate) struct Connector {
    guard: EgressGuard,
    dialer: Arc<dyn Dialer>,
}

/// Bytes both ways, with or without TLS.
pub(crate) trait IoStream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> IoStream for S {}

/// A connection over which nothing has been sent.
pub(crate) struct NewConnection {
    pub(crate) io: Pin<Box<dyn IoStream>>,
    /// True if both sides agreed on HTTP/2.
    pub(crate) is_http2: bool,
}

impl Connector {
    pub(crate) fn new(guard: EgressGuard) -> Self {
        Self { guard, dialer: Arc::new(SystemDialer) }
    }

    #[cfg(test)]
    pub(crate) fn with_dialer(guard: EgressGuard, dial: impl Dialer) -> Self {
        Self { guard, dialer: Arc::new(dial) }
    }

    pub(crate) fn guard(&self) -> &EgressGuard {
        &self.guard
    }

    /// Connects to the target. If this fails, nothing has been sent, so nothing can have run.
    pub(crate) async fn connect(
        &self,
        target: &Target,
        tls: &TlsConnector,
    ) -> Result<NewConnection, CallFailure> {
        let connecting = async {
            let addresses = self.guard.admit(target).await.map_err(|error| admit_failed(&error))?;
            let tcp = self
                .dial_first_reachable(&addresses)
                .await
                .map_err(|error| connect_failed(target, &error))?;
            if target.scheme() == Scheme::Http {
                return Ok(NewConnection { io: Box::pin(tcp), is_http2: false });
            }
            let name = server_name(target).map_err(|error| connect_failed(target, &error))?;
            let tls = tls.connect(name, tcp).await.map_err(|error| connect_failed(target, &error))?;
            let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok(NewConnection { io: Box::pin(tls), is_http2 })
        };
        let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
        let connected = tokio::time::timeout(limit, connecting).await;
        connected.map_err(|_| connect_failed(target, &timed_out(limit)))?
    }

    /// Connects to the first address that can be reached.
    async fn dial_first_reachable(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let tried = u32::try_from(addresses.len()).unwrap_or(u32::MAX).clamp(1, ADDRESSES_TRIED_MAX);
        let share = Duration::from_millis(CONNECT_TIMEOUT_MS) / tried;
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses.iter().take(ADDRESSES_TRIED_MAX as usize) {
            match tokio::time::timeout(share, self.dialer.dial(*address)).await {
                Ok(Ok(stream)) => {
                    // Requests are written in one go, so holding back the last part of one gains nothing.
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last_error = error,
                Err(_) => last_error = timed_out(share),
            }
        }
        Err(last_error)
    }
}

fn timed_out(after: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("timed out after {} ms", after.as_millis()))
}

/// The name that the server's certificate must be for.
fn server_name(target: &Target) -> Result<ServerName<'static>, InvalidDnsNameError> {
    match (target.address(), target.name()) {
        (Some(address), _) => Ok(ServerName::from(address)),
        (None, name) => ServerName::try_from(name.unwrap_or_default().to_owned()),
    }
}

fn admit_failed(error: &AdmitError) -> CallFailure {
    match error {
        AdmitError::Denied(_) => CallFailure::permanent("AddressDenied", error_chain(error)),
        AdmitError::Unresolved { .. } | AdmitError::NoAddress { .. } => {
            CallFailure::held(HoldReason::NotConnected, "ConnectFailed", error_chain(error))
        }
    }
}

pub(crate) fn connect_failed(target: &Target, error: &dyn Error) -> CallFailure {
    let message = format!("{target} could not be reached: {}", error_chain(error));
    CallFailure::held(HoldReason::NotConnected, "ConnectFailed", message)
}

/// An error with its causes.
pub(super) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
