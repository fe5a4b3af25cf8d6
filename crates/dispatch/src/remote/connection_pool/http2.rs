//! HTTP/2 connections, each shared by many exchanges.
//!
//! One connection is one task and so uses at most one core; a busy origin gets several. Pings detect a server that is
//! gone. Knows nothing about the pool.

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

use super::{CONNECTION_AGE_MAX, HTTP2_IDLE_TIMEOUT, SendError};
use crate::http::{HttpResponse, IoStream as Io, RESPONSE_HEAD_BYTES_MAX, read_response};

/// Exchanges on each connection before another is opened. Servers accept at least a hundred, as the standard
/// recommends.
const STREAMS_PER_CONNECTION: usize = 64;
/// The most connections to one origin.
const CONNECTIONS_MAX: usize = 16;
/// The bytes of one body that the server may send before they are read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for all bodies together.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    /// Held by the connection itself and by each exchange.
    shared: Arc<Http2State>,
    created_at: Instant,
    last_used_at: Instant,
}

#[derive(Default)]
struct Http2State {
    /// Nothing more is sent over the connection.
    is_closed: AtomicBool,
}

/// One stream of a connection, for one exchange.
pub(super) struct Http2Stream {
    sender: SendRequest<Full<Bytes>>,
    shared: Arc<Http2State>,
}

impl Http2 {
    pub(super) async fn handshake(io: Pin<Box<dyn Io>>) -> Result<Self, hyper::Error> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(RESPONSE_HEAD_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        // The task ends when the last sender is dropped and the last exchange is over. The exchanges get its errors.
        tokio::spawn(connection);
        let now = Instant::now();
        Ok(Self { sender, shared: Arc::default(), created_at: now, last_used_at: now })
    }

    /// True if it is to be closed: broken, too old, or unused for long.
    pub(super) fn should_close(&self, now: Instant) -> bool {
        self.is_unusable(now) || (self.streams() == 0 && self.last_used_at + HTTP2_IDLE_TIMEOUT <= now)
    }

    fn is_unusable(&self, now: Instant) -> bool {
        self.sender.is_closed()
            || self.shared.is_closed.load(Ordering::Relaxed)
            || self.created_at + CONNECTION_AGE_MAX <= now
    }

    fn streams(&self) -> usize {
        Arc::strong_count(&self.shared).saturating_sub(1)
    }
}

/// A stream of the connection with the fewest exchanges.
pub(super) fn least_used(shared: &mut Vec<Http2>, now: Instant) -> Option<Http2Stream> {
    shared.retain(|connection| !connection.is_unusable(now));
    let connection = shared.iter_mut().min_by_key(|connection| connection.streams())?;
    connection.last_used_at = now;
    Some(Http2Stream { sender: connection.sender.clone(), shared: Arc::clone(&connection.shared) })
}

/// True if another connection would help.
pub(super) fn needs_another_connection(shared: &[Http2]) -> bool {
    shared.len() < CONNECTIONS_MAX
        && shared.iter().all(|connection| connection.streams() > STREAMS_PER_CONNECTION)
}

impl Http2Stream {
    /// One exchange. Dropping the future resets the stream and leaves the connection to the others.
    pub(super) async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
        bytes_max: (usize, usize),
    ) -> Result<HttpResponse, SendError> {
        let response = self.sender.try_send_request(request).await.map_err(SendError::from);
        if let Err(SendError::Unsent(..)) = &response {
            self.shared.is_closed.store(true, Ordering::Relaxed);
        }
        let response = response?;
        let (success, failure) = bytes_max;
        let bytes_max = if response.status().is_success() { success } else { failure };
        read_response(response, bytes_max).await.map_err(SendError::Lost)
    }
}
