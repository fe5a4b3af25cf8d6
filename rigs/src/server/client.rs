//! The HTTP client of the rigs: one connection that is reused while it lasts, and requests whose response arrives or is
//! lost.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How long a client waits for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client waits before it reconnects.
const RECONNECT_DELAY: Duration = Duration::from_millis(5);

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum RigResponse {
    Received(u16, Value),
    /// The request may have been executed or not.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RigRequest<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub body: Option<&'a Value>,
    pub idempotency_key: Option<&'a str>,
}

impl<'a> RigRequest<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: &Method::GET, path, body: None, idempotency_key: None }
    }

    pub(crate) fn post(path: &'a str, body: &'a Value) -> Self {
        Self { method: &Method::POST, path, body: Some(body), idempotency_key: None }
    }
}

#[derive(Debug)]
pub(crate) struct RigClient {
    /// The address of the server, while there is one.
    up: watch::Receiver<Option<SocketAddr>>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl RigClient {
    pub(crate) fn new(up: watch::Receiver<Option<SocketAddr>>) -> Self {
        Self { up, connection: None }
    }

    /// Sends a request as soon as there is a server. A 503, whose outcome is unknown, counts as lost; a 429 is retried.
    pub(crate) async fn send(&mut self, request: RigRequest<'_>) -> RigResponse {
        loop {
            let Some(mut connection) = self.connect().await else { return RigResponse::Lost };
            match tokio::time::timeout(RESPONSE_TIMEOUT, exchange(&mut connection, request)).await {
                Ok(Some((429, _))) => {
                    self.connection = Some(connection);
                    tokio::time::sleep(RECONNECT_DELAY * 10).await;
                }
                Ok(Some((503, _))) | Ok(None) | Err(_) => return RigResponse::Lost,
                Ok(Some((status, body))) => {
                    self.connection = Some(connection);
                    return RigResponse::Received(status, body);
                }
            }
        }
    }

    /// The current connection or a new one; `None` when the rig has ended.
    async fn connect(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Some(connection);
        }
        loop {
            let address = (*self.up.wait_for(Option::is_some).await.ok()?)?;
            if let Ok(stream) = TcpStream::connect(address).await
                && stream.set_nodelay(true).is_ok()
                && let Ok((connection, driver)) = http1::handshake(TokioIo::new(stream)).await
            {
                // The request itself fails if the connection does.
                tokio::spawn(async move { drop(driver.await) });
                return Some(connection);
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    }
}

/// Sends a request and reads the whole response; `None` if the connection failed.
async fn exchange(
    connection: &mut SendRequest<Full<Bytes>>,
    request: RigRequest<'_>,
) -> Option<(u16, Value)> {
    let mut builder = Request::builder().method(request.method).uri(request.path).header("host", "localhost");
    if request.body.is_some() {
        builder = builder.header("content-type", "application/json");
    }
    if let Some(key) = request.idempotency_key {
        builder = builder.header("idempotency-key", key);
    }
    let body = request.body.map(ToString::to_string).unwrap_or_default();
    let response = connection.send_request(builder.body(Full::from(body)).ok()?).await.ok()?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&bytes).ok()?))
}
