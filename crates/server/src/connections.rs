//! Accepts connections up to a maximum, bounds each in time and size, and closes all of them gracefully when the server
//! stops.
//!
//! Knows nothing about the requests it serves.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection_load::ConnectionLoad;
use crate::write_timeout::WriteTimeoutStream;

/// Connections beyond the maximum, for health checks: a full server must be able to say that it is full. Each serves
/// one short request. Further connections wait in the operating system's queue.
const RESERVED_CONNECTIONS: usize = 64;
/// How long a client may take to send the request headers, and how long a connection may idle between two requests.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The same, for a reserved connection.
const RESERVED_HEADER_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Headers of a request that are read at all. The lower limit that applies to requests is enforced later, where the
/// error response can have an envelope.
const HEADERS_MAX: usize = 128;
/// Of the request line and the headers.
const HEADER_BYTES_MAX: usize = 32 * 1024;
/// What a connection reads ahead, and the bytes of earlier responses it may still have to send when it begins another
/// one. Without it that is 400 KiB each.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// What the operating system buffers of a response, of a connection whose client reads nothing. It doubles the number
/// for its own needs. Left to itself it takes up to 4 MiB, until all connections of the machine starve.
const SEND_BUFFER_BYTES: u32 = 128 * 1024;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// How long to wait after a failed accept: the operating system lacks a resource that other processes must free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);
/// How long connections may take to close after the node has drained.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct ConnectionConfig {
    pub(crate) router: Router,
    /// Serves the reserved connections.
    pub(crate) overload_router: Router,
    /// Without the reserved connections.
    pub(crate) connections_max: usize,
    /// How long a client may take nothing of a response.
    pub(crate) stall_timeout: Duration,
    pub(crate) load: Arc<ConnectionLoad>,
}

/// Listens, with a bounded send buffer for every connection it will accept.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server need not wait for connections of the last one.
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until `stop` resolves. Then it accepts no new ones, lets requests in progress finish, awaits
/// `drain`, which drains the node, and aborts connections that are still open after [`CLOSE_TIMEOUT`].
pub(crate) async fn serve_connections(
    listener: TcpListener,
    config: ConnectionConfig,
    stop: impl Future<Output = ()>,
    drain: impl Future<Output = ()>,
) {
    let closing = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        config.load.set_connections(connections.len());
        let full = connections.len() >= config.connections_max;
        let may_accept = connections.len() < config.connections_max.saturating_add(RESERVED_CONNECTIONS);
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if may_accept => match accepted {
                Ok((stream, client)) => {
                    let stream = WriteTimeoutStream::new(stream, client, config.stall_timeout, Arc::clone(&config.load));
                    let router = if full { &config.overload_router } else { &config.router };
                    connections.spawn(serve_connection(stream, router.clone(), full, closing.subscribe()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listener);
    closing.send_replace(true);
    drain.await;
    let closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        connections.shutdown().await;
    }
}

/// Serves one connection until the client or a timeout ends it, or until `closing` is true and the request in progress
/// has its response. A reserved connection serves one request.
async fn serve_connection(
    stream: WriteTimeoutStream,
    router: Router,
    reserved: bool,
    mut closing: watch::Receiver<bool>,
) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(if reserved { RESERVED_HEADER_READ_TIMEOUT } else { HEADER_READ_TIMEOUT })
        .keep_alive(!reserved)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADER_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let closing = async { drop(closing.wait_for(|closing| *closing).await) };
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => ended,
        () = closing => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        // Clients may disconnect at any time: this is no failure of the server.
        tracing::debug!(%error, "connection closed with an error");
    }
}
