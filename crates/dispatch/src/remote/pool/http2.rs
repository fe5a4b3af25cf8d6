//! HTTP/2 connections, each shared by many exchanges.
//!
//! One connection is one task and so at most one core; a busy origin gets several. Pings find out whether the other side is still there.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::Instant;

use super::{AGE_MAX, Broken, IDLE_HTTP2};
use crate::http::{Exchanged, RESPONSE_HEAD_BYTES_MAX, Stream as Io, read};

/// Exchanges on each connection before there is another one. Servers take at least a hundred, as the standard recommends.
const STREAMS_EACH: usize = 64;
/// Connections to one origin.
const CONNECTIONS_MAX: usize = 16;
/// What the other side may send of one body before it is read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// What it may send of all bodies.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    /// Held by the connection itself and by each exchange.
    mark: Arc<Mark>,
    made: Instant,
    used: Instant,
}

#[derive(Default)]
struct Mark {
    /// Nothing more is sent over it.
    is_over: AtomicBool,
}

/// One exchange's part of a connection.
pub(super) struct Stream {
    sender: SendRequest<Full<Bytes>>,
    mark: Arc<Mark>,
}

impl Http2 {
    pub(super) async fn over(io: Pin<Box<dyn Io>>) -> Result<Self, hyper::Error> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(RESPONSE_HEAD_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        // It ends when the last sender is gone and the last exchange is over. What goes wrong is told to the exchanges.
        tokio::spawn(connection);
        let now = Instant::now();
        Ok(Self { sender, mark: Arc::default(), made: now, used: now })
    }

    /// Whether it is to be closed: broken, too old, or unused for long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.is_unusable(now) || (self.streams() == 0 && self.used + IDLE_HTTP2 <= now)
    }

    fn is_unusable(&self, now: Instant) -> bool {
        self.sender.is_closed() || self.mark.is_over.load(Ordering::Relaxed) || self.made + AGE_MAX <= now
    }

    fn streams(&self) -> usize {
        Arc::strong_count(&self.mark).saturating_sub(1)
    }
}

/// A part of the connection that carries the least.
pub(super) fn least_used(shared: &mut Vec<Http2>, now: Instant) -> Option<Stream> {
    shared.retain(|connection| !connection.is_unusable(now));
    let connection = shared.iter_mut().min_by_key(|connection| connection.streams())?;
    connection.used = now;
    Some(Stream { sender: connection.sender.clone(), mark: Arc::clone(&connection.mark) })
}

/// Whether another connection would help.
pub(super) fn are_crowded(shared: &[Http2]) -> bool {
    shared.len() < CONNECTIONS_MAX && shared.iter().all(|connection| connection.streams() > STREAMS_EACH)
}

impl Stream {
    /// One exchange. Dropping this resets the stream and leaves the connection to the others.
    pub(super) async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
        bytes_max: (usize, usize),
    ) -> Result<Exchanged, Broken> {
        let response = self.sender.try_send_request(request).await.map_err(Broken::from);
        if let Err(Broken::Unsent(..)) = &response {
            self.mark.is_over.store(true, Ordering::Relaxed);
        }
        let response = response?;
        let (success, failure) = bytes_max;
        let bytes_max = if response.status().is_success() { success } else { failure };
        read(response, bytes_max).await.map_err(Broken::Lost)
    }
}
