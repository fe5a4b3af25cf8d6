//! Connections: HTTP/1.1 and HTTP/2 on one port, accepted up to a number, bounded in time and size, and closed in order.
//!
//! Knows nothing of what is served.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a client may take for the head of a request, and how long a connection may be idle between two.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_TIME_MAX: Duration = Duration::from_secs(20);
/// Headers of one request.
const HEADERS_MAX: usize = 128;
/// Bytes of a request's headers.
const HEAD_BYTES_MAX: u32 = 32 * 1024;
/// Requests at once on one connection.
const STREAMS_MAX: u32 = 1_024;
/// How long to wait after the operating system could not accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(500);

/// How connections are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Connections at once; more wait in the operating system's queue.
    pub connections_max: usize,
    /// How long requests under way may take once it is told to stop.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { connections_max: 1_024, grace: Duration::from_secs(10) }
    }
}

/// Serves until `stop` resolves; then takes no new connections, lets requests under way be answered within their grace, and closes.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: ServeOptions,
    stop: impl Future<Output = ()>,
) {
    let closing = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let room = connections.len() < options.connections_max;
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), closing.subscribe()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    drop(listener);
    closing.send_replace(true);
    let closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.grace, closed).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<bool>) {
    // An answer is one write: waiting for more to send would only hold it back.
    drop(stream.set_nodelay(true));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_TIME_MAX);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
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
        // Clients go away as they like.
        tracing::debug!(error, "a connection broke off");
    }
}
