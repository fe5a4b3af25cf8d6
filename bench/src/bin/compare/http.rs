//! The client, the same for every system: HTTP/1.1 on a kept-alive connection, one request at a time. It implements
//! only as much of the protocol as the measured servers use, and does little work, because it shares the cores with
//! them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No response is larger than this; a hundred branches are about ten KiB.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// The loopback address with this port.
pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The bytes of a request.
pub(crate) struct BenchRequest {
    bytes: Vec<u8>,
}

impl BenchRequest {
    pub(crate) fn get(path: &str) -> Self {
        Self { bytes: format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes() }
    }

    /// With a JSON body.
    pub(crate) fn post(path: &str, body: &str) -> Self {
        Self::with("POST", path, body)
    }

    /// With a JSON body.
    pub(crate) fn put(path: &str, body: &str) -> Self {
        Self::with("PUT", path, body)
    }

    fn with(method: &str, path: &str, body: &str) -> Self {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        Self { bytes: format!("{head}content-length: {length}\r\n\r\n{body}").into_bytes() }
    }
}

pub(crate) struct BenchResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl BenchResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The status and the beginning of the body, for error messages.
    pub(crate) fn excerpt(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
        format!("{} {body}", self.status)
    }
}

/// Sends one request on a new connection, with this timeout.
pub(crate) async fn once(port: u16, request: &BenchRequest, within: Duration) -> io::Result<BenchResponse> {
    let mut client = KeepAliveClient::new(local(port), within);
    client.send(request).await
}

/// A client with one connection: opened when needed, and reopened after it failed.
pub(crate) struct KeepAliveClient {
    address: SocketAddr,
    within: Duration,
    connection: Option<Connection>,
}

impl KeepAliveClient {
    pub(crate) fn new(address: SocketAddr, within: Duration) -> Self {
        Self { address, within, connection: None }
    }

    pub(crate) async fn send(&mut self, request: &BenchRequest) -> io::Result<BenchResponse> {
        let open = self.connection.take();
        let exchange = async {
            let mut connection = match open {
                Some(connection) => connection,
                None => Connection::open(self.address).await?,
            };
            let response = connection.exchange(request).await?;
            Ok((connection, response))
        };
        let (connection, response) = tokio::time::timeout(self.within, exchange)
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no response in time")))?;
        if !connection.closing {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes that are read and not yet consumed.
    buffer: Vec<u8>,
    /// True if the server closes the connection after this response.
    closing: bool,
}

/// The length of a body.
enum Body {
    Bytes(usize),
    Chunks,
}

impl Connection {
    async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096), closing: false })
    }

    async fn exchange(&mut self, request: &BenchRequest) -> io::Result<BenchResponse> {
        self.stream.write_all(&request.bytes).await?;
        let head = self.until(b"\r\n\r\n").await?;
        let head = std::str::from_utf8(&head).map_err(|_| broken("the response head is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.ok_or_else(|| broken("the response has no status"))?;
        let mut length = Body::Bytes(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let name = name.trim();
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length =
                    Body::Bytes(value.parse().map_err(|_| broken("the content-length is not a number"))?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked")
            {
                length = Body::Chunks;
            } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
                self.closing = true;
            }
        }
        let body = match length {
            Body::Bytes(bytes) => self.exactly(bytes).await?,
            Body::Chunks => self.chunks().await?,
        };
        Ok(BenchResponse { status, body })
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n").await?;
            let size = std::str::from_utf8(&line).ok().and_then(|line| {
                usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).ok()
            });
            let size = size.ok_or_else(|| broken("a chunk has no size"))?;
            let chunk = self.exactly(size).await?;
            self.until(b"\r\n").await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// Reads everything before this mark; the mark is consumed too.
    async fn until(&mut self, mark: &[u8]) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let fresh = self.buffer.get(searched..).unwrap_or_default();
            if let Some(found) = fresh.windows(mark.len()).position(|window| window == mark) {
                let mut bytes: Vec<u8> = self.buffer.drain(..searched + found + mark.len()).collect();
                bytes.truncate(searched + found);
                return Ok(bytes);
            }
            searched = (self.buffer.len() + 1).saturating_sub(mark.len());
            self.more().await?;
        }
    }

    async fn exactly(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > RESPONSE_BYTES_MAX {
            return Err(broken("the response is too large"));
        }
        while self.buffer.len() < bytes {
            self.more().await?;
        }
        Ok(self.buffer.drain(..bytes).collect())
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.buffer.len() > RESPONSE_BYTES_MAX {
            return Err(broken("the response is too large"));
        }
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
