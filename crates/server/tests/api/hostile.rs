//! Requests that mean harm or are made by mistake: each gets its own refusal, and none is held in memory for long.

use std::net::SocketAddr;

use abide_server::{Config, Server};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, echo, failed};

/// Everything that reads a body.
const READERS: [&str; 5] = [
    "/api/workflows",
    "/api/instances",
    "/api/instances/purge",
    "/api/instances/i/events/Go",
    "/api/instances/i/suspend",
];

#[tokio::test]
async fn json_that_is_hardly_json_is_refused_by_everything_that_reads_it() {
    let world = World::new().await;
    world.publish("w", &echo()).await;
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
            let (status, code, _) = world.ask(Method::POST, path, body.clone()).await.error();
            // The limit on bytes may come first.
            let refused = matches!(status, 400 | 413);
            assert!(refused && code == "VALIDATION_ERROR", "{path}, {name}: {status} {code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::new().await;
    let began = tokio::time::Instant::now();
    for body in [Body::new(Never(None)), Body::new(Never(Some("{\"workflow\"".into())))] {
        let request = Request::post("/api/instances").header("content-type", "application/json");
        let refused = world.send(request.body(body).unwrap()).await;
        assert_eq!(refused.error(), failed(408, "VALIDATION_ERROR", ""));
    }
    assert_eq!(began.elapsed().as_secs(), 60);
}

/// A body that stops before its end.
struct Never(Option<axum::body::Bytes>);

impl axum::body::HttpBody for Never {
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

async fn server(folder: &std::path::Path, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.store.data = folder.to_owned();
    config.store.shards = 1;
    change(&mut config);
    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    server
}

/// Sends bytes on a connection of their own; the status that is answered, and none if the connection is closed without one.
async fn status(address: SocketAddr, bytes: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has seen enough may close while the rest is still being sent.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_too_large_or_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let address = server.address();
    let begin = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    let many = |count: usize| -> String { (0..count).map(|number| format!("x-{number}: y\r\n")).collect() };
    for (name, head, expected) in [
        ("as it should be", format!("{}\r\n", begin("/healthz")), 200),
        ("as many headers as may be", format!("{}{}\r\n", begin("/healthz"), many(60)), 200),
        ("more headers than may be", format!("{}{}\r\n", begin("/healthz"), many(70)), 431),
        ("10,000 headers", format!("{}{}\r\n", begin("/healthz"), many(10_000)), 431),
        ("a huge header", format!("{}x: {}\r\n\r\n", begin("/healthz"), "y".repeat(1_000_000)), 431),
        ("a long path", format!("{}\r\n", begin(&format!("/{}", "a".repeat(10_000)))), 414),
        ("a huge path", format!("{}\r\n", begin(&format!("/{}", "a".repeat(1_000_000)))), 431),
        ("no HTTP", "\x16\x03\x01 hello\r\n\r\n".to_owned(), 400),
    ] {
        let answered = status(address, head.as_bytes()).await;
        assert_eq!(answered, Some(expected), "{name}");
    }
    assert_eq!(status(address, format!("{}\r\n", begin("/healthz")).as_bytes()).await, Some(200));
    server.stop().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").await.unwrap();
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert!((30..=31).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    tokio::time::resume();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_under_way_share_what_room_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let address = server.address();
    let size = 1024 * 1024;
    let head =
        format!("POST /api/instances HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    let head = format!("{head}connection: close\r\ncontent-length: {size}\r\n\r\n");
    let (tell, mut told) = tokio::sync::mpsc::channel(64);
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // All but the last byte, or as much as is taken.
        drop(stream.write_all(&vec![b' '; size - 1]).await);
        let tell = tell.clone();
        slow.spawn(async move {
            let mut answer = Vec::new();
            // Whoever sends more than is read of it may find the connection closed before it sees the answer.
            drop(stream.read_to_end(&mut answer).await);
            tell.send(String::from_utf8_lossy(&answer).into_owned()).await.unwrap();
        });
    }
    for _ in 0..32 {
        let answer = told.recv().await.unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 429"), "{answer}");
    }
    let small = json!({"workflow": "none"}).to_string();
    let head =
        format!("POST /api/instances HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    let small = format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n{small}", small.len());
    assert_eq!(status(address, small.as_bytes()).await, Some(404), "a small body needs no room");
    slow.shutdown().await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |_| ()).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let ask = format!("GET /api/openapi.json HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    // Asks and asks until the server, which cannot get rid of its answers, gives up.
    while stream.write_all(ask.as_bytes()).await.is_ok() {}
    assert!((30..=31).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    tokio::time::resume();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_if_there_is_one_holds_for_all_but_those_who_ask_how_the_server_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), |config| config.server.requests_per_second = 5).await;
    let address = server.address();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(status(address, get("/api/activities").as_bytes()).await);
    }
    assert!(answers.contains(&Some(200)) && answers.contains(&Some(429)), "{answers:?}");
    assert_eq!(answers[0], Some(200));
    for _ in 0..20 {
        assert_eq!(status(address, get("/readyz").as_bytes()).await, Some(200));
    }
    server.stop().await;
}
