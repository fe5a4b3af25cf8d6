//! The client, the same for every system: HTTP/1.1 on a connection that stays open, one request at a time, and no more of the
//! protocol than the measured servers speak. Both cores of a small machine are shared with it, so it does little.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No answer is larger than this; a hundred branches are about ten KiB.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A port of this machine.
pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A request as it goes over the wire.
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    pub(crate) fn get(path: &str) -> Self {
        Self { bytes: format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes() }
    }

    /// With a body of JSON.
    pub(crate) fn post(path: &str, body: &str) -> Self {
        Self::with("POST", path, body)
    }

    /// With a body of JSON.
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

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// For people: the status and the beginning of the body.
    pub(crate) fn excerpt(&self) -> String {
        let body: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
        format!("{} {body}", self.status)
    }
}

/// One request, on a connection of its own, within this time.
pub(crate) async fn once(port: u16, request: &Request, within: Duration) -> io::Result<Answer> {
    let mut line = Line::new(local(port), within);
    line.send(request).await
}

/// A line to a server: opened when it is needed, and anew after it broke.
pub(crate) struct Line {
    address: SocketAddr,
    within: Duration,
    connection: Option<Connection>,
}

impl Line {
    pub(crate) fn new(address: SocketAddr, within: Duration) -> Self {
        Self { address, within, connection: None }
    }

    pub(crate) async fn send(&mut self, request: &Request) -> io::Result<Answer> {
        let taken = self.connection.take();
        let exchange = async {
            let mut connection = match taken {
                Some(connection) => connection,
                None => Connection::open(self.address).await?,
            };
            let answer = connection.exchange(request).await?;
            Ok((connection, answer))
        };
        let (connection, answer) = tokio::time::timeout(self.within, exchange)
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))?;
        if !connection.closing {
            self.connection = Some(connection);
        }
        Ok(answer)
    }
}

struct Connection {
    stream: TcpStream,
    /// Read and not yet consumed.
    buffer: Vec<u8>,
    /// The server has said that it closes.
    closing: bool,
}

/// How long the body is.
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

    async fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        self.stream.write_all(&request.bytes).await?;
        let head = self.until(b"\r\n\r\n").await?;
        let head = std::str::from_utf8(&head).map_err(|_| broken("a head that is no text"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.ok_or_else(|| broken("no status"))?;
        let mut length = Body::Bytes(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let (name, value) = (name.trim(), value.trim());
            if name.eq_ignore_ascii_case("content-length") {
                length = Body::Bytes(value.parse().map_err(|_| broken("no length"))?);
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
        Ok(Answer { status, body })
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.until(b"\r\n").await?;
            let size = std::str::from_utf8(&line).ok().and_then(|line| {
                usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).ok()
            });
            let size = size.ok_or_else(|| broken("a chunk without a size"))?;
            let chunk = self.exactly(size).await?;
            self.until(b"\r\n").await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// Everything before this mark, which is consumed too.
    async fn until(&mut self, mark: &[u8]) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let fresh = self.buffer.get(searched..).unwrap_or_default();
            if let Some(found) = fresh.windows(mark.len()).position(|window| window == mark) {
                let mut taken: Vec<u8> = self.buffer.drain(..searched + found + mark.len()).collect();
                taken.truncate(searched + found);
                return Ok(taken);
            }
            searched = (self.buffer.len() + 1).saturating_sub(mark.len());
            self.more().await?;
        }
    }

    async fn exactly(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > ANSWER_BYTES_MAX {
            return Err(broken("an answer too large"));
        }
        while self.buffer.len() < bytes {
            self.more().await?;
        }
        Ok(self.buffer.drain(..bytes).collect())
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.buffer.len() > ANSWER_BYTES_MAX {
            return Err(broken("an answer too large"));
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
