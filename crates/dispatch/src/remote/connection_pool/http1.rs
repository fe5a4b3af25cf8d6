//! One HTTP/1.1 connection, which carries one exchange after the other.
//!
//! The exchange that uses it polls it. While it is idle it is not polled, so it is checked when it is taken out of the
//! pool. Knows nothing about the pool.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::{CONNECTION_AGE_MAX, HTTP1_IDLE_TIMEOUT, SendError};
use crate::http::{HttpResponse, IoStream, RESPONSE_HEAD_BYTES_MAX, drive_connection, read_response};

type Io = TokioIo<Pin<Box<dyn IoStream>>>;

pub(super) struct Http1 {
    sender: SendRequest<Full<Bytes>>,
    connection: Box<Connection<Io, Full<Bytes>>>,
    created_at: Instant,
    last_used_at: Instant,
}

impl Http1 {
    pub(super) async fn handshake(io: Pin<Box<dyn IoStream>>) -> Result<Self, hyper::Error> {
        let mut builder = Builder::new();
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX as usize);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        let now = Instant::now();
        Ok(Self { sender, connection: Box::new(connection), created_at: now, last_used_at: now })
    }

    /// Until when the connection may be idle.
    pub(super) fn idle_deadline(&self) -> Instant {
        (self.last_used_at + HTTP1_IDLE_TIMEOUT).min(self.created_at + CONNECTION_AGE_MAX)
    }

    /// True if the server has neither closed the connection nor sent anything unasked.
    pub(super) async fn is_open(&mut self) -> bool {
        let connection = &mut self.connection;
        poll_fn(|context| Poll::Ready(Pin::new(&mut *connection).poll(context).is_pending())).await
    }

    /// One exchange. Returns the connection if it can carry another; dropping the future closes it.
    pub(super) async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
        bytes_max: (usize, usize),
    ) -> Result<(HttpResponse, Option<Self>), SendError> {
        let sender = &mut self.sender;
        let exchange = async move {
            let response = sender.try_send_request(request).await.map_err(SendError::from)?;
            let (success, failure) = bytes_max;
            let bytes_max = if response.status().is_success() { success } else { failure };
            read_response(response, bytes_max).await.map_err(SendError::Lost)
        };
        let (response, is_open) = drive_connection(Pin::new(&mut *self.connection), exchange).await;
        let response = response?;
        let is_reusable = is_open && response.body.is_some() && self.is_ready().await;
        self.last_used_at = Instant::now();
        Ok((response, Some(self).filter(|_| is_reusable)))
    }

    /// True if the last exchange is complete on both sides. Does not wait until it is.
    async fn is_ready(&mut self) -> bool {
        let Self { sender, connection, .. } = self;
        poll_fn(|context| {
            let is_open = Pin::new(&mut *connection).poll(context).is_pending();
            Poll::Ready(is_open && matches!(sender.poll_ready(context), Poll::Ready(Ok(()))))
        })
        .await
    }
}
