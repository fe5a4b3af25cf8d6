//! One HTTP/1.1 connection, which carries one exchange after the other.
//!
//! Whoever uses it polls it, and while it is idle nobody does: whether it is still open is looked at when it is taken.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::{AGE_MAX, Broken, IDLE_HTTP1};
use crate::http::{Exchanged, RESPONSE_HEAD_BYTES_MAX, Stream, beside, read};

type Io = TokioIo<Pin<Box<dyn Stream>>>;

pub(super) struct Http1 {
    sender: SendRequest<Full<Bytes>>,
    connection: Box<Connection<Io, Full<Bytes>>>,
    made: Instant,
    used: Instant,
}

impl Http1 {
    pub(super) async fn over(io: Pin<Box<dyn Stream>>) -> Result<Self, hyper::Error> {
        let mut builder = Builder::new();
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX as usize);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await?;
        let now = Instant::now();
        Ok(Self { sender, connection: Box::new(connection), made: now, used: now })
    }

    /// How long it may be idle.
    pub(super) fn kept_until(&self) -> Instant {
        (self.used + IDLE_HTTP1).min(self.made + AGE_MAX)
    }

    /// Whether the other side has neither hung up nor said anything unasked.
    pub(super) async fn is_open(&mut self) -> bool {
        let connection = &mut self.connection;
        poll_fn(|context| Poll::Ready(Pin::new(&mut *connection).poll(context).is_pending())).await
    }

    /// One exchange. The connection comes back if it can carry another; dropping this closes it.
    pub(super) async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
        bytes_max: (usize, usize),
    ) -> Result<(Exchanged, Option<Self>), Broken> {
        let sender = &mut self.sender;
        let exchange = async move {
            let response = sender.try_send_request(request).await.map_err(Broken::from)?;
            let (success, failure) = bytes_max;
            let bytes_max = if response.status().is_success() { success } else { failure };
            read(response, bytes_max).await.map_err(Broken::Lost)
        };
        let (exchanged, is_open) = beside(Pin::new(&mut *self.connection), exchange).await;
        let exchanged = exchanged?;
        let is_kept = is_open && exchanged.body.is_some() && self.is_ready().await;
        self.used = Instant::now();
        Ok((exchanged, Some(self).filter(|_| is_kept)))
    }

    /// Whether the last exchange is over for both sides. One that is not is not waited for.
    async fn is_ready(&mut self) -> bool {
        let Self { sender, connection, .. } = self;
        poll_fn(|context| {
            let is_open = Pin::new(&mut *connection).poll(context).is_pending();
            Poll::Ready(is_open && matches!(sender.poll_ready(context), Poll::Ready(Ok(()))))
        })
        .await
    }
}
