//! An HTTP/1.1 client for development: one request at a time on a connection that is kept alive. It implements only as
//! much of the protocol as our servers use, and does little work, because in a benchmark it shares the cores with them.
//!
//! It repeats nothing: whether a lost response may be requested again is for its users to know. Tests that send
//! malformed bytes write them to a socket of their own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// No response is larger than this.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// The bytes of a request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    bytes: Vec<u8>,
    /// Where the headers end, so that more can be added.
    headers_end: usize,
}

impl HttpRequest {
    pub fn get(path: &str) -> Self {
        Self::new(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n"), "")
    }

    /// With a JSON body.
    pub fn post(path: &str, body: impl fmt::Display) -> Self {
        Self::with_body("POST", path, body)
    }

    /// With a JSON body.
    pub fn put(path: &str, body: impl fmt::Display) -> Self {
        Self::with_body("PUT", path, body)
    }

    /// With a JSON body, which may be empty.
    pub fn with_body(method: &str, path: &str, body: impl fmt::Display) -> Self {
        let body = body.to_string();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        Self::new(&format!("{head}content-length: {length}\r\n"), &body)
    }

    fn new(head: &str, body: &str) -> Self {
        Self { bytes: [head, "\r\n", body].concat().into_bytes(), headers_end: head.len() }
    }

    /// Adds a header, whose name is sent as it is written here.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let line = format!("{name}: {value}\r\n").into_bytes();
        let end = self.headers_end;
        self.headers_end += line.len();
        self.bytes.splice(end..end, line);
        self
    }
}

#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub body: Vec<u8>,
}

impl HttpResponse {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> serde_json::Result<Value> {
        serde_json::from_slice(&self.body)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status and the beginning of the body, for error messages.
    pub fn excerpt(&self) -> String {
        let body: String = self.text().chars().take(300).collect();
        format!("{} {body}", self.status)
    }
}

/// Sends one request on a connection of its own, which the server is told to close.
pub async fn send_once(address: SocketAddr, request: &HttpRequest) -> io::Result<HttpResponse> {
    HttpConnection::open(address).await?.exchange(&request.clone().header("connection", "close")).await
}

/// A client of one server with one connection: opened when needed, and reopened after it failed.
#[derive(Debug)]
pub struct HttpClient {
    address: SocketAddr,
    within: Duration,
    connection: Option<HttpConnection>,
}

impl HttpClient {
    /// Each request, with connecting, may take this long.
    pub fn new(address: SocketAddr, within: Duration) -> Self {
        Self { address, within, connection: None }
    }

    pub async fn send(&mut self, request: &HttpRequest) -> io::Result<HttpResponse> {
        let open = self.connection.take();
        let exchange = async {
            let mut connection = match open {
                Some(connection) => connection,
                None => HttpConnection::open(self.address).await?,
            };
            let response = connection.exchange(request).await?;
            Ok((connection, response))
        };
        let (connection, response) = tokio::time::timeout(self.within, exchange)
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no response in time")))?;
        self.connection = Some(connection).filter(|connection| !connection.closing);
        Ok(response)
    }
}

/// A connection to a server. After an error it must not be used again.
#[derive(Debug)]
pub struct HttpConnection {
    stream: TcpStream,
    /// Bytes that are read and not yet consumed.
    buffer: Vec<u8>,
    /// True if the server closes the connection after this response.
    closing: bool,
}

/// The length of a body.
enum BodyLength {
    Bytes(usize),
    Chunks,
}

impl HttpConnection {
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096), closing: false })
    }

    /// False if the server has closed the connection, as far as is known here, or has announced it.
    pub fn is_open(&self) -> bool {
        let nothing_arrived = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        !self.closing && self.stream.try_read(&mut [0]).is_err_and(nothing_arrived)
    }

    pub async fn exchange(&mut self, request: &HttpRequest) -> io::Result<HttpResponse> {
        self.write(request).await?;
        let head = self.until(b"\r\n\r\n").await?;
        let head = std::str::from_utf8(&head).map_err(|_| broken("the response head is not UTF-8"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.ok_or_else(|| broken("the response has no status"))?;
        let mut length = BodyLength::Bytes(0);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let name = name.trim();
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                let bytes = value.parse().map_err(|_| broken("the content-length is not a number"))?;
                length = BodyLength::Bytes(bytes);
            } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked")
            {
                length = BodyLength::Chunks;
            } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
                self.closing = true;
            }
        }
        let body = match length {
            BodyLength::Bytes(bytes) => self.exactly(bytes).await?,
            BodyLength::Chunks => self.chunks().await?,
        };
        Ok(HttpResponse { status, body })
    }

    /// Sends a request and does not wait for the response.
    pub async fn write(&mut self, request: &HttpRequest) -> io::Result<()> {
        self.stream.write_all(&request.bytes).await
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Answers each request on one connection with the next of these texts, and then closes it.
    async fn serve(responses: &'static [&'static str]) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = Vec::with_capacity(4096);
            for response in responses {
                assert!(stream.read_buf(&mut received).await.unwrap() > 0);
                stream.write_all(response.as_bytes()).await.unwrap();
            }
            String::from_utf8(received).unwrap()
        });
        (address, serving)
    }

    #[tokio::test]
    async fn bodies_with_a_length_and_in_chunks_are_read_on_one_connection() {
        let (address, serving) = serve(&[
            "HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
            "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
        ])
        .await;
        let mut connection = HttpConnection::open(address).await.unwrap();
        let first = connection.exchange(&HttpRequest::post("/p", "1").header("X-Key", "k")).await.unwrap();
        assert_eq!((first.status, first.json().unwrap()), (201, serde_json::json!({"a": 1})));
        let second = connection.exchange(&HttpRequest::get("/q")).await.unwrap();
        assert_eq!((second.is_success(), second.excerpt().as_str()), (false, "404 abcde"));
        let sent = serving.await.unwrap();
        assert_eq!(
            sent,
            "POST /p HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\
             X-Key: k\r\n\r\n1GET /q HTTP/1.1\r\nhost: localhost\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_not_open() {
        let (address, serving) = serve(&["HTTP/1.1 200 OK\r\n\r\n"]).await;
        let mut connection = HttpConnection::open(address).await.unwrap();
        assert!(connection.exchange(&HttpRequest::get("/")).await.is_ok());
        serving.await.unwrap();
        connection.stream.readable().await.unwrap();
        assert!(!connection.is_open());
        assert!(connection.exchange(&HttpRequest::get("/")).await.is_err());
    }
}
