//! Serves HTTP/1.1 and HTTP/2 on one port, with limits on connections, time and size, and shuts down gracefully.
//!
//! It knows nothing of the routes it serves.

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

/// Time limit for the head of a request, and for an idle connection between two requests.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a silent HTTP/2 connection is pinged, and the time limit for its response.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PONG_TIMEOUT: Duration = Duration::from_secs(20);
const HEADERS_MAX: usize = 128;
/// Limit for all headers of one request.
const HEAD_BYTES_MAX: u32 = 32 * 1024;
/// Concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;
/// Delay before the next `accept` after one failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// How connections are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Concurrent connections; more wait in the operating system's queue.
    pub connections_max: usize,
    /// Time limit for open requests after the stop signal.
    pub shutdown_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { connections_max: 1_024, shutdown_timeout: Duration::from_secs(10) }
    }
}

/// Serves until `stop` resolves. Then it accepts no new connections, lets open requests finish within the shutdown
/// timeout, and closes.
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
        let has_capacity = connections.len() < options.connections_max;
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if has_capacity => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, router.clone(), closing.subscribe()));
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
        }
    }
    drop(listener);
    closing.send_replace(true);
    let closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.shutdown_timeout, closed).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve_connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<bool>) {
    // A response is one write: Nagle's algorithm would only delay it.
    drop(stream.set_nodelay(true));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PONG_TIMEOUT);
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
        // Clients may disconnect at any time.
        tracing::debug!(error, "connection error");
    }
}
