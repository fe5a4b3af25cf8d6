//! Connections: accepted up to a number, each bounded in time and size, all of them closed in order when the server stops.
//!
//! Knows nothing of what is served.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::watched::Watched;

/// Connections beyond those that are served, for whoever asks how the server is: it must be able to say that it is full. Each is for one
/// request, and short. More wait in the operating system's queue.
const RESERVE: usize = 64;
/// How long a client may take for the head of a request, and how long a connection may be idle between two.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// The same, on a connection of the reserve.
const RESERVE_TIME_MAX: Duration = Duration::from_secs(2);
/// Headers of one request that are read at all; how many a request may have is for others to say, who can say it with an envelope.
const HEADERS_MAX: usize = 128;
/// Bytes of a request's line and headers.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// How long to wait after the operating system could not accept: it is out of something that others must give back.
const ACCEPT_AGAIN: Duration = Duration::from_millis(500);
/// How long connections may take to end once the server has nothing more to say.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// What is served to whom.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// Everything.
    pub(crate) all: Router,
    /// What a connection of the reserve gets.
    pub(crate) reserve: Router,
    /// Connections at the same time, without the reserve.
    pub(crate) connections_max: usize,
}

/// Serves connections until `stop` resolves; then takes no new ones, lets requests under way be answered, and ends when `drained` has
/// resolved and the connections are closed.
pub(crate) async fn serve(
    listener: TcpListener,
    served: Served,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) {
    let closing = watch::Sender::new(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let full = connections.len() >= served.connections_max;
        let room = connections.len() < served.connections_max.saturating_add(RESERVE);
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, _)) => {
                    let router = if full { &served.reserve } else { &served.all };
                    connections.spawn(connection(stream, router.clone(), full, closing.subscribe()));
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
    drained.await;
    let closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_MAX, closed).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(stream: TcpStream, router: Router, of_reserve: bool, mut closing: watch::Receiver<bool>) {
    // An answer is one write: waiting for more to send would only hold it back.
    drop(stream.set_nodelay(true));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(if of_reserve { RESERVE_TIME_MAX } else { HEAD_TIME_MAX })
        .keep_alive(!of_reserve)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Watched::new(stream)), TowerToHyperService::new(router));
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
        // Clients go away as they like.
        tracing::debug!(%error, "a connection broke off");
    }
}
