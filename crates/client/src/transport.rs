//! Connections to the server, kept for the next request, and one exchange over one of them.
//!
//! HTTP/1.1 in the clear. Knows nothing of resources, of the envelope or of repeats.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use url::Host;

use crate::address::{Address, Path};
use crate::error::ClientError;

/// Resolving and dialling together.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Connections that are kept though nobody uses them.
const IDLE_MAX: usize = 32;
/// How long they are kept: shorter than servers keep them, so that a request seldom meets one that is being closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(3);
/// Bytes of an answer. The largest is a page of history.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

type Sender = SendRequest<Full<Bytes>>;

/// What goes over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) path: Path,
    pub(crate) body: Bytes,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) idempotency_key: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Transport {
    address: Address,
    idle: Mutex<Vec<(Instant, Sender)>>,
}

impl Transport {
    pub(crate) fn new(address: Address) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Where the server is, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.address.authority
    }

    /// One request and its answer.
    pub(crate) async fn exchange(&self, outgoing: &Outgoing) -> Result<Answer, ClientError> {
        loop {
            let (mut sender, is_fresh) = match self.take() {
                Some(sender) => (sender, false),
                None => (self.dial().await?, true),
            };
            match sender.try_send_request(self.request(outgoing)?).await {
                Ok(response) => return self.read(sender, response).await,
                // A kept connection that was closed meanwhile: the request has not left, and goes over another.
                Err(unsent) if unsent.message().is_some() && !is_fresh => {}
                Err(error) => return Err(self.interrupted(error.into_error())),
            }
        }
    }

    fn request(&self, outgoing: &Outgoing) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(&outgoing.method)
            .uri(self.address.target(&outgoing.path))
            .header(HOST, &self.address.authority)
            .header(ACCEPT, "application/json");
        if let Some(kind) = outgoing.content_type {
            request = request.header(CONTENT_TYPE, kind);
        }
        if let Some(key) = &outgoing.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(outgoing.body.clone()));
        request.map_err(|error| ClientError::Request { reason: error.to_string() })
    }

    /// A kept connection that is still good, as far as can be told.
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((since, sender)) = idle.pop() {
            if since.elapsed() < IDLE_TIME_MAX && sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push((Instant::now(), sender));
        }
    }

    async fn dial(&self) -> Result<Sender, ClientError> {
        let unreachable = |source| ClientError::Unreachable { server: self.server().to_owned(), source };
        let port = self.address.port;
        let connecting = async {
            let stream = match &self.address.host {
                Host::Domain(name) => TcpStream::connect((name.as_str(), port)).await?,
                Host::Ipv4(ip) => TcpStream::connect(SocketAddr::from((*ip, port))).await?,
                Host::Ipv6(ip) => TcpStream::connect(SocketAddr::from((*ip, port))).await?,
            };
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let connected = tokio::time::timeout(CONNECT_TIME_MAX, connecting).await;
        let stream =
            connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(unreachable)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| self.interrupted(error))?;
        // It ends when the sender is dropped; what goes wrong with it is told to whoever uses it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn read(&self, sender: Sender, response: Response<Incoming>) -> Result<Answer, ClientError> {
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let reason = format!("it has more than {ANSWER_BYTES_MAX} bytes");
                return Err(ClientError::Unexpected { server: self.server().to_owned(), status, reason });
            }
            Err(error) => return Err(self.interrupted(error)),
        };
        self.keep(sender);
        Ok(Answer { status, headers: head.headers, body })
    }

    fn interrupted(&self, source: impl Into<Box<dyn Error + Send + Sync>>) -> ClientError {
        ClientError::Interrupted { server: self.server().to_owned(), source: source.into() }
    }
}
