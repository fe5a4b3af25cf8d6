//! The TCP stream of one client, whose writes time out: a write that makes no progress for too long is an error and
//! ends the connection.
//!
//! Without it a client that stops reading would keep its connection, and the buffered response, forever. Reads have no
//! timeout here.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::connection_load::ConnectionLoad;

#[derive(Debug)]
pub(crate) struct WriteTimeoutStream {
    stream: TcpStream,
    client: SocketAddr,
    /// How long a client may take nothing of a response.
    stall_timeout: Duration,
    load: Arc<ConnectionLoad>,
    /// Runs while a write is blocked.
    stall_timer: Option<Pin<Box<Sleep>>>,
}

impl WriteTimeoutStream {
    pub(crate) fn new(
        stream: TcpStream,
        client: SocketAddr,
        stall_timeout: Duration,
        load: Arc<ConnectionLoad>,
    ) -> Self {
        // A response is one write: waiting for more to send would only delay it.
        drop(stream.set_nodelay(true));
        Self { stream, client, stall_timeout, load, stall_timer: None }
    }

    /// The result of a write, or an error if it has made no progress for too long.
    fn check_stall<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall_timer = None;
            return written;
        }
        let timeout = self.stall_timeout;
        let stalled = self.stall_timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stalled.as_mut().poll(context));
        self.load.count_stalled();
        tracing::info!(client = %self.client, ?timeout, "connection closed: its client takes nothing of a response");
        // Otherwise the operating system keeps what is buffered, and offers it to the client for minutes.
        drop(self.stream.set_zero_linger());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the response")))
    }
}

impl AsyncRead for WriteTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteTimeoutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_stall(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.check_stall(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
