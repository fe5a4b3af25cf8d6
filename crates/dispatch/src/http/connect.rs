//! Connections to what the guard admits: the one place of this crate that dials.
//!
//! Every address is checked before it is dialled, and the connection goes to that very address. Knows nothing of what is sent.

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

use crate::guard::{AdmitError, Guard, Scheme, Target};
use crate::transport::Failure;

/// Resolving, dialling and shaking hands together.
pub(crate) const CONNECT_MS_MAX: u64 = 5_000;
/// Addresses of one name that are tried; each has its share of the time.
const ADDRESSES_TRIED_MAX: u32 = 3;

/// A connection to come.
pub(crate) type Dialling<'d> = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send + 'd>>;

/// Opens connections. A trait, so that a test can count them.
pub(crate) trait Dial: Send + Sync + 'static {
    /// A connection to this address, which has been checked.
    fn dial(&self, address: SocketAddr) -> Dialling<'_>;
}

/// The operating system.
#[derive(Clone, Copy, Debug)]
struct SystemDial;

impl Dial for SystemDial {
    fn dial(&self, address: SocketAddr) -> Dialling<'_> {
        Box::pin(TcpStream::connect(address))
    }
}

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    guard: Guard,
    dial: Arc<dyn Dial>,
}

/// Bytes both ways, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A connection over which nothing has been sent.
pub(crate) struct Connected {
    pub(crate) io: Pin<Box<dyn Stream>>,
    /// Whether both sides agreed on HTTP/2.
    pub(crate) is_http2: bool,
}

impl Connector {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard, dial: Arc::new(SystemDial) }
    }

    #[cfg(test)]
    pub(crate) fn with_dial(guard: Guard, dial: impl Dial) -> Self {
        Self { guard, dial: Arc::new(dial) }
    }

    /// What decides who may be called.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// A connection to the target. Nothing has been sent if this fails, so nothing can have run.
    pub(crate) async fn connect(&self, target: &Target, tls: &TlsConnector) -> Result<Connected, Failure> {
        let connecting = async {
            let addresses = self.guard.admit(target).await.map_err(|error| not_admitted(&error))?;
            let tcp = self.dial_one_of(&addresses).await.map_err(|error| not_connected(target, &error))?;
            if target.scheme() == Scheme::Http {
                return Ok(Connected { io: Box::pin(tcp), is_http2: false });
            }
            let name = server_name(target).map_err(|error| not_connected(target, &error))?;
            let tls = tls.connect(name, tcp).await.map_err(|error| not_connected(target, &error))?;
            let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok(Connected { io: Box::pin(tls), is_http2 })
        };
        let timed_out = |_| not_connected(target, &io::Error::from(io::ErrorKind::TimedOut));
        tokio::time::timeout(Duration::from_millis(CONNECT_MS_MAX), connecting).await.map_err(timed_out)?
    }

    /// The first of the addresses that answers.
    async fn dial_one_of(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let tried = u32::try_from(addresses.len()).unwrap_or(u32::MAX).clamp(1, ADDRESSES_TRIED_MAX);
        let share = Duration::from_millis(CONNECT_MS_MAX) / tried;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses.iter().take(ADDRESSES_TRIED_MAX as usize) {
            match tokio::time::timeout(share, self.dial.dial(*address)).await {
                Ok(Ok(stream)) => {
                    // Requests are written at once; holding back the last part of one gains nothing.
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
            }
        }
        Err(last)
    }
}

/// Whose certificate the server must show.
fn server_name(target: &Target) -> Result<ServerName<'static>, InvalidDnsNameError> {
    match (target.address(), target.name()) {
        (Some(address), _) => Ok(ServerName::from(address)),
        (None, name) => ServerName::try_from(name.unwrap_or_default().to_owned()),
    }
}

fn not_admitted(error: &AdmitError) -> Failure {
    match error {
        AdmitError::Denied(_) => Failure::for_good("AddressDenied", chain(error)),
        AdmitError::Unresolved { .. } | AdmitError::NoAddress { .. } => {
            Failure::retryable("ConnectFailed", chain(error))
        }
    }
}

pub(crate) fn not_connected(target: &Target, error: &dyn Error) -> Failure {
    Failure::retryable("ConnectFailed", format!("{target} could not be reached: {}", chain(error)))
}

/// An error with its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told.push_str(": ");
        told.push_str(&error.to_string());
        cause = error.source();
    }
    told
}
