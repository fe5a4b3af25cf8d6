//! One client's way to the server: a connection that is kept while it lasts, and requests that are answered or lost.

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

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it waits before it tries to connect again.
const AGAIN: Duration = Duration::from_millis(5);

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Told(u16, Value),
    /// It may have been done or not.
    Lost,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub body: Option<&'a Value>,
    pub idempotency_key: Option<&'a str>,
}

impl<'a> Ask<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: &Method::GET, path, body: None, idempotency_key: None }
    }

    pub(crate) fn post(path: &'a str, body: &'a Value) -> Self {
        Self { method: &Method::POST, path, body: Some(body), idempotency_key: None }
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    /// Where the server is, while there is one.
    up: watch::Receiver<Option<SocketAddr>>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) fn new(up: watch::Receiver<Option<SocketAddr>>) -> Self {
        Self { up, connection: None }
    }

    /// Asks as soon as there is a server. What the server says may be either, 503, counts as lost; what it cannot take now, 429, is
    /// asked again.
    pub(crate) async fn ask(&mut self, ask: Ask<'_>) -> Answer {
        loop {
            let Some(mut connection) = self.connect().await else { return Answer::Lost };
            match tokio::time::timeout(PATIENCE, exchange(&mut connection, ask)).await {
                Ok(Some((429, _))) => {
                    self.connection = Some(connection);
                    tokio::time::sleep(AGAIN * 10).await;
                }
                Ok(Some((503, _))) | Ok(None) | Err(_) => return Answer::Lost,
                Ok(Some((status, body))) => {
                    self.connection = Some(connection);
                    return Answer::Told(status, body);
                }
            }
        }
    }

    /// The connection there is, or a new one; none when the rig is over.
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
                // What goes wrong with the connection is told to the request.
                tokio::spawn(async move { drop(driver.await) });
                return Some(connection);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Sends a request and reads the whole answer; `None` if anything went wrong on the way.
async fn exchange(connection: &mut SendRequest<Full<Bytes>>, ask: Ask<'_>) -> Option<(u16, Value)> {
    let mut request = Request::builder().method(ask.method).uri(ask.path).header("host", "localhost");
    if ask.body.is_some() {
        request = request.header("content-type", "application/json");
    }
    if let Some(key) = ask.idempotency_key {
        request = request.header("idempotency-key", key);
    }
    let body = ask.body.map(ToString::to_string).unwrap_or_default();
    let response = connection.send_request(request.body(Full::from(body)).ok()?).await.ok()?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&bytes).ok()?))
}
