//! Sends one request over an HTTP/1.1 connection (no TLS) and keeps idle connections for the next one.
//!
//! It knows nothing about API resources, the response envelope or retries.

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

use crate::address::{ApiPath, ServerAddress};
use crate::error::ClientError;

/// The time for name resolution and connecting together.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// The number of idle connections that are kept.
const IDLE_CONNECTIONS_MAX: usize = 32;
/// How long an idle connection is kept. Servers keep them longer, so a request seldom uses one that is being closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(3);
/// The largest accepted response. The largest that the server sends is a page of history.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

type Sender = SendRequest<Full<Bytes>>;

#[derive(Clone, Debug)]
pub(crate) struct ServerRequest {
    pub(crate) method: Method,
    pub(crate) path: ApiPath,
    pub(crate) body: Bytes,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) idempotency_key: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ServerResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The body of a response that may be of any size.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    server: String,
    body: Incoming,
    /// Keeps the connection open.
    _sender: Sender,
}

impl ResponseStream {
    /// The next bytes, or `None` at the end of the response.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            let interrupted = |source: hyper::Error| ClientError::Interrupted {
                server: self.server.clone(),
                source: source.into(),
            };
            if let Ok(bytes) = frame.map_err(interrupted)?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Transport {
    address: ServerAddress,
    idle: Mutex<Vec<(Instant, Sender)>>,
}

impl Transport {
    pub(crate) fn new(address: ServerAddress) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Host and port of the server, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.address.authority
    }

    /// Sends one request and reads its response.
    pub(crate) async fn exchange(
        &self,
        server_request: &ServerRequest,
    ) -> Result<ServerResponse, ClientError> {
        let (sender, response) = self.send(server_request).await?;
        self.read_response(sender, response).await
    }

    /// Sends one request. The body of a successful response is to be read piece by piece; another response is read.
    pub(crate) async fn exchange_streamed(
        &self,
        server_request: &ServerRequest,
    ) -> Result<Result<ResponseStream, ServerResponse>, ClientError> {
        let (sender, response) = self.send(server_request).await?;
        if !response.status().is_success() {
            return self.read_response(sender, response).await.map(Err);
        }
        Ok(Ok(ResponseStream {
            server: self.server().to_owned(),
            body: response.into_body(),
            _sender: sender,
        }))
    }

    async fn send(
        &self,
        server_request: &ServerRequest,
    ) -> Result<(Sender, Response<Incoming>), ClientError> {
        loop {
            let (mut sender, is_fresh) = match self.take_idle() {
                Some(sender) => (sender, false),
                None => (self.connect().await?, true),
            };
            match sender.try_send_request(self.build_request(server_request)?).await {
                Ok(response) => return Ok((sender, response)),
                // The idle connection was closed meanwhile. The request was not sent, so another connection takes it.
                Err(unsent) if unsent.message().is_some() && !is_fresh => {}
                Err(error) => return Err(self.interrupted(error.into_error())),
            }
        }
    }

    fn build_request(&self, server_request: &ServerRequest) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(&server_request.method)
            .uri(self.address.target(&server_request.path))
            .header(HOST, &self.address.authority)
            .header(ACCEPT, "application/json");
        if let Some(content_type) = server_request.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(key) = &server_request.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(server_request.body.clone()));
        request.map_err(|error| ClientError::InvalidRequest { reason: error.to_string() })
    }

    /// An idle connection that is not known to be closed.
    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((since, sender)) = idle.pop() {
            if since.elapsed() < IDLE_TIME_MAX && sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn return_idle(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX && !sender.is_closed() {
            idle.push((Instant::now(), sender));
        }
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
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
        // The task ends when the sender is dropped. The sender reports the connection's errors to its user.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn read_response(
        &self,
        sender: Sender,
        response: Response<Incoming>,
    ) -> Result<ServerResponse, ClientError> {
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let body = match Limited::new(body, RESPONSE_BYTES_MAX).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let reason = format!("it has more than {RESPONSE_BYTES_MAX} bytes");
                return Err(ClientError::UnexpectedResponse {
                    server: self.server().to_owned(),
                    status,
                    reason,
                });
            }
            Err(error) => return Err(self.interrupted(error)),
        };
        self.return_idle(sender);
        Ok(ServerResponse { status, headers: head.headers, body })
    }

    fn interrupted(&self, source: impl Into<Box<dyn Error + Send + Sync>>) -> ClientError {
        ClientError::Interrupted { server: self.server().to_owned(), source: source.into() }
    }
}
