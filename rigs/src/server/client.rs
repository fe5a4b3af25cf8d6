//! The client of the rigs: it waits until there is a server, and its requests get a response or are lost.

use std::net::SocketAddr;
use std::time::Duration;

use abide_testkit::http_client::{HttpConnection, HttpRequest};
use serde_json::Value;
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

#[derive(Debug)]
pub(crate) struct RigClient {
    /// The address of the server, while there is one.
    up: watch::Receiver<Option<SocketAddr>>,
    connection: Option<HttpConnection>,
}

impl RigClient {
    pub(crate) fn new(up: watch::Receiver<Option<SocketAddr>>) -> Self {
        Self { up, connection: None }
    }

    /// Sends a request as soon as there is a server. A 503, whose outcome is unknown, counts as lost; a 429 is retried.
    pub(crate) async fn send(&mut self, request: &HttpRequest) -> RigResponse {
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
    async fn connect(&mut self) -> Option<HttpConnection> {
        if let Some(connection) = self.connection.take().filter(HttpConnection::is_open) {
            return Some(connection);
        }
        loop {
            let address = (*self.up.wait_for(Option::is_some).await.ok()?)?;
            match HttpConnection::open(address).await {
                Ok(connection) => return Some(connection),
                Err(_) => tokio::time::sleep(RECONNECT_DELAY).await,
            }
        }
    }
}

/// Sends a request and reads the whole response; `None` if the connection failed.
async fn exchange(connection: &mut HttpConnection, request: &HttpRequest) -> Option<(u16, Value)> {
    let response = connection.exchange(request).await.ok()?;
    Some((response.status, response.json().ok()?))
}
