//! Hostile and broken requests: each gets its own error, and none is held in memory for long.

use std::net::SocketAddr;

use abide_server::{Config, Server};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::http_request;
use crate::test_api::{TestApi, echo, failed};

/// Paths whose handlers read a body.
const READERS: [&str; 5] = [
    "/api/workflows",
    "/api/instances",
    "/api/instances/purge",
    "/api/instances/i/events/Go",
    "/api/instances/i/suspend",
];

#[tokio::test]
async fn malformed_json_is_rejected_by_every_handler_that_reads_a_body() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let levels = 100_000;
    let bodies: [(&str, Vec<u8>); 12] = [
        ("deep arrays", [vec![b'['; levels], vec![b']'; levels]].concat()),
        ("deep arrays without an end", vec![b'['; levels]),
        ("deep objects", b"{\"a\":".repeat(levels)),
        ("a huge exponent", b"{\"input\": 1e999999999}".to_vec()),
        ("a huge integer", format!("{{\"input\": {}}}", "9".repeat(10_000)).into_bytes()),
        ("a key twice", b"{\"reason\": \"a\", \"reason\": \"b\"}".to_vec()),
        ("a key twice, inside", b"{\"input\": {\"a\": [{\"b\": 1, \"b\": 2}]}}".to_vec()),
        ("broken UTF-8", b"{\"reason\": \"\xc3\x28\"}".to_vec()),
        ("an overlong NUL", b"{\"reason\": \"\xc0\x80\"}".to_vec()),
        ("half a pair", b"{\"reason\": \"\\ud800\"}".to_vec()),
        ("a NUL", b"{\"reason\": \"\0\"}".to_vec()),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
    ];
    for path in READERS {
        for (name, body) in &bodies {
            let (status, code, _) = api.request(Method::POST, path, body.clone()).await.error();
            // The size limit may apply first.
            let rejected = matches!(status, 400 | 413);
            assert!(rejected && code == "VALIDATION_ERROR", "{path}, {name}: {status} {code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_times_out() {
    let api = TestApi::new().await;
    let began = tokio::time::Instant::now();
    for body in [Body::new(StalledBody(None)), Body::new(StalledBody(Some("{\"workflow\"".into())))] {
        let request = Request::post("/api/instances").header("content-type", "application/json");
        let rejected = api.send(request.body(body).unwrap()).await;
        assert_eq!(rejected.error(), failed(408, "VALIDATION_ERROR", ""));
    }
    assert_eq!(began.elapsed().as_secs(), 60);
}

/// A body that stops before its end.
struct StalledBody(Option<axum::body::Bytes>);

impl axum::body::HttpBody for StalledBody {
    type Data = axum::body::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        match self.0.take() {
            Some(piece) => std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(piece)))),
            None => std::task::Poll::Pending,
        }
    }
}

pub(crate) async fn server(folder: &std::path::Path, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.store.data = folder.to_owned();
    config.store.shards = 1;
    change(&mut config);
    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    server
}

/// Sends bytes on a new connection; returns the status of the response, or none if the connection is closed without
/// one.
async fn status(address: SocketAddr, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has seen enough may close while the rest is still being sent.
    drop(stream.write_all(bytes).await);
    let mut response = Vec::new();
    drop(stream.read_to_end(&mut response).await);
    let response = String::from_utf8_lossy(&response);
    response.split(' ').nth(1).and_then(|status| status.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_too_large_or_invalid_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let address = server.address();
    let begin = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let many = |count: usize| -> String { (0..count).map(|number| format!("x-{number}: y\r\n")).collect() };
    for (name, head, expected) in [
        ("valid", format!("{}\r\n", begin("/healthz")), 200),
        ("the maximum of headers", format!("{}{}\r\n", begin("/healthz"), many(60)), 200),
        ("too many headers", format!("{}{}\r\n", begin("/healthz"), many(70)), 431),
        ("10,000 headers", format!("{}{}\r\n", begin("/healthz"), many(10_000)), 431),
        ("a huge header", format!("{}x: {}\r\n\r\n", begin("/healthz"), "y".repeat(1_000_000)), 431),
        ("a long path", format!("{}\r\n", begin(&format!("/{}", "a".repeat(10_000)))), 414),
        ("a huge path", format!("{}\r\n", begin(&format!("/{}", "a".repeat(1_000_000)))), 431),
        ("no HTTP", "\x16\x03\x01 hello\r\n\r\n".to_owned(), 400),
    ] {
        let status = status(address, head.as_bytes()).await;
        assert_eq!(status, Some(expected), "{name}");
    }
    assert_eq!(status(address, format!("{}\r\n", begin("/healthz")).as_bytes()).await, Some(200));
    server.stop().await;
}

/// Sends bytes on a new connection, without ending it; returns everything the server sends until it closes.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8(response).unwrap().to_ascii_lowercase()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_before_the_body_is_read_says_that_the_connection_closes() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let address = server.address();
    let rest = "/api/instances";
    let durable = "/runtime/webhooks/durabletask/orchestrators/w";
    let json = "content-type: application/json\r\n";
    for (name, path, headers, expected) in [
        ("too large", rest, format!("{json}content-length: 9000000\r\n"), 413),
        ("too large", durable, format!("{json}content-length: 9000000\r\n"), 413),
        ("no JSON", rest, "content-type: text/html\r\ncontent-length: 5\r\n".to_owned(), 415),
        ("chunked", rest, "content-type: text/html\r\ntransfer-encoding: chunked\r\n".to_owned(), 415),
        ("another origin", rest, format!("{json}origin: http://evil.example\r\ncontent-length: 5\r\n"), 403),
        (
            "another origin",
            durable,
            format!("{json}origin: http://evil.example\r\ncontent-length: 5\r\n"),
            403,
        ),
        ("unknown path", "/none", format!("{json}content-length: 5\r\n"), 404),
        ("a body nobody reads", "/healthz", format!("{json}content-length: 5\r\n"), 405),
    ] {
        // The body itself is never sent.
        let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n");
        let response = exchange(address, head.as_bytes()).await;
        assert!(response.starts_with(&format!("http/1.1 {expected} ")), "{name}: {response}");
        assert!(response.contains("\r\nconnection: close\r\n"), "{name}: {response}");
    }
    // A refusal after the body keeps the connection: the second request is answered on it.
    let bad = format!("POST {rest} HTTP/1.1\r\nhost: {address}\r\n{json}content-length: 5\r\n\r\nwrong");
    let last = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let response = exchange(address, format!("{bad}{last}").as_bytes()).await;
    assert!(response.starts_with("http/1.1 400 ") && response.contains("http/1.1 200 "), "{response}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_encoding_other_than_chunked_is_rejected_and_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let address = server.address();
    let send = async |codings: &[&str]| {
        let codings: String =
            codings.iter().map(|coding| format!("Transfer-Encoding: {coding}\r\n")).collect();
        let head = format!("POST /api/instances HTTP/1.1\r\nhost: {address}\r\n{codings}");
        let body = "content-type: application/json\r\n\r\n14\r\n{\"workflow\": \"none\"}\r\n0\r\n\r\n";
        let last = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        exchange(address, format!("{head}{body}{last}").as_bytes()).await
    };
    for accepted in ["chunked", "Chunked", " CHUNKED "] {
        let response = send(&[accepted]).await;
        assert!(response.starts_with("http/1.1 404 "), "{accepted}: {response}");
        assert!(response.contains("http/1.1 200 "), "the connection stays: {accepted}: {response}");
    }
    let rejected: [&[&str]; 7] = [
        &["gzip"],
        &["identity"],
        &["gzip, chunked"],
        &["chunked, chunked"],
        &["chunked, identity"],
        &["chunked", "chunked"],
        &["gzip", "chunked"],
    ];
    for codings in rejected {
        let response = send(codings).await;
        assert!(response.starts_with("http/1.1 400 "), "{codings:?}: {response}");
        assert!(response.contains("\r\nconnection: close\r\n"), "{codings:?}: {response}");
        assert!(!response.contains("http/1.1 200 "), "nothing after it is served: {codings:?}: {response}");
    }
    server.stop().await;
}

#[tokio::test]
async fn incomplete_headers_close_the_connection_after_a_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").await.unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let mut response = Vec::new();
    drop(stream.read_to_end(&mut response).await);
    assert!((30..=31).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    tokio::time::resume();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_large_bodies_share_the_body_budget() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let address = server.address();
    let size = 1024 * 1024;
    let head =
        format!("POST /api/instances HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    let head = format!("{head}connection: close\r\ncontent-length: {size}\r\n\r\n");
    let (sender, mut responses) = tokio::sync::mpsc::channel(64);
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // All but the last byte, or as much as the server reads.
        drop(stream.write_all(&vec![b' '; size - 1]).await);
        let sender = sender.clone();
        slow.spawn(async move {
            let mut response = Vec::new();
            // A client that sends more than the server reads may find the connection closed before it sees the
            // response.
            drop(stream.read_to_end(&mut response).await);
            sender.send(String::from_utf8_lossy(&response).into_owned()).await.unwrap();
        });
    }
    for _ in 0..32 {
        let response = responses.recv().await.unwrap();
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 429"), "{response}");
    }
    let small = json!({"workflow": "none"}).to_string();
    let (status, _) = http_request(address, "POST", "/api/instances", &small).await;
    assert_eq!(status, 404, "a small body needs no budget");
    slow.shutdown().await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let request = format!("GET /api/openapi.json HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    // Sends requests until the server, which cannot deliver its responses, closes the connection.
    while stream.write_all(request.as_bytes()).await.is_ok() {}
    assert!((30..=31).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    tokio::time::resume();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configured_rate_limit_applies_to_everything_but_health_checks() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |config| config.server.requests_per_second = 5).await;
    let address = server.address();
    let mut responses = Vec::new();
    for _ in 0..20 {
        responses.push(http_request(address, "GET", "/api/activities", "").await.0);
    }
    assert!(responses.contains(&200) && responses.contains(&429), "{responses:?}");
    assert_eq!(responses[0], 200);
    for _ in 0..20 {
        assert_eq!(http_request(address, "GET", "/readyz", "").await.0, 200);
    }
    server.stop().await;
}
