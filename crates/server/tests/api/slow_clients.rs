//! Clients that do not take their responses: what they hold is bounded, and what others get meanwhile.

use std::net::SocketAddr;

use abide_server::Config;
use abide_testkit::http_client::{HttpRequest, send_once};
use abide_workflow::Duration;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::hostile_requests::server;
use crate::server::http_request;
use crate::test_api::{definition, echo};

/// A run whose view has about two megabytes: more than the operating system buffers.
async fn start_large_run(address: SocketAddr) {
    let published = definition("w", "1.0.0", &echo()).to_string();
    while !matches!(http_request(address, "POST", "/api/workflows", &published).await.0, 200 | 201) {}
    let start = json!({"workflow": "w", "instanceId": "large", "input": "x".repeat(1_000_000)}).to_string();
    // On a busy machine a server that waits for replies only briefly may need several requests.
    while http_request(address, "POST", "/api/instances?wait=PT30S", &start).await.0 != 200 {}
}

/// Sends a request on a new connection and reads nothing.
async fn request_without_reading(address: SocketAddr, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    kilobytes.unwrap().parse::<u64>().unwrap() * 1024
}

async fn metric(address: SocketAddr, name: &str) -> u64 {
    let response = send_once(address, &HttpRequest::get("/metrics")).await.unwrap();
    assert_eq!(response.status, 200);
    let text = String::from_utf8(response.body.to_vec()).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
}

/// Waits until a client that does not read holds room for its response.
async fn room_is_held(address: SocketAddr) {
    while metric(address, "abide_response_bytes_held ").await == 0 {}
}

/// Room for one large response at a time.
fn one_large_response(config: &mut Config) {
    config.server.response_bytes_max = 1_000_000;
}

const LARGE: &str = "/api/instances/large";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_response_waits_until_others_are_taken_and_small_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), one_large_response).await;
    let address = server.address();
    start_large_run(address).await;
    let mut first = request_without_reading(address, LARGE).await;
    room_is_held(address).await;
    let second = tokio::spawn(async move { http_request(address, "GET", LARGE, "").await });
    // More work for the server than the large response.
    for path in ["/api/instances/none", "/api/activities?limit=1", "/healthz"].repeat(50) {
        let (status, _) = http_request(address, "GET", path, "").await;
        assert!(matches!(status, 200 | 404), "{path}: {status}");
    }
    assert!(!second.is_finished(), "there is no room for it");
    let mut taken = Vec::new();
    first.read_to_end(&mut taken).await.unwrap();
    assert!(taken.starts_with(b"HTTP/1.1 200 ") && taken.len() > 2_000_000, "{}", taken.len());
    let (status, shown) = second.await.unwrap();
    assert_eq!((status, shown["data"]["output"].as_str().map(str::len)), (200, Some(1_000_000)));
    while metric(address, "abide_response_bytes_held ").await > 0 {}
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_response_without_room_in_time_is_refused_in_the_form_of_its_api() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut Config| {
        one_large_response(config);
        config.server.reply_timeout = Duration(1_000);
    };
    let server = server(folder.path(), change).await;
    let address = server.address();
    start_large_run(address).await;
    let held = request_without_reading(address, LARGE).await;
    room_is_held(address).await;
    let mut refused = String::new();
    request_without_reading(address, LARGE).await.read_to_string(&mut refused).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("\"RATE_LIMITED\""), "{refused}");
    let durable = "/runtime/webhooks/durabletask/instances/large?showInput=true";
    let (status, refused) = http_request(address, "GET", durable, "").await;
    assert_eq!(status, 429, "{refused}");
    assert!(refused["Message"].as_str().unwrap().contains("too many large responses"), "{refused}");
    // A start takes effect whether its response has room or not.
    let start = json!({"workflow": "w", "instanceId": "other", "input": "x".repeat(1_000_000)}).to_string();
    let (status, unknown) = http_request(address, "POST", "/api/instances?wait=PT30S", &start).await;
    assert_eq!((status, &unknown["error"]["details"][0]["code"]), (503, &json!("OUTCOME_UNKNOWN")));
    assert_eq!(metric(address, "abide_requests_refused_total{reason=\"responseBytes\"} ").await, 3);
    drop(held);
    while metric(address, "abide_response_bytes_held ").await > 0 {}
    assert_eq!(http_request(address, "GET", "/api/instances/other", "").await.0, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_nothing_loses_its_connection_and_its_room() {
    let folder = tempfile::tempdir().unwrap();
    let change = |config: &mut Config| {
        one_large_response(config);
        config.server.stall_timeout = Duration(300);
    };
    let server = server(folder.path(), change).await;
    let address = server.address();
    start_large_run(address).await;
    let mut stalled = request_without_reading(address, LARGE).await;
    room_is_held(address).await;
    // It waits for room, which only the stalled client can return.
    assert_eq!(http_request(address, "GET", LARGE, "").await.0, 200);
    assert_eq!(metric(address, "abide_connections_stalled_total ").await, 1);
    let mut taken = Vec::new();
    let ended = stalled.read_to_end(&mut taken).await;
    assert!(ended.is_err() && taken.len() < 1_000_000, "{ended:?} after {} bytes", taken.len());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_do_not_read_hold_no_more_than_the_response_budget() {
    let folder = tempfile::tempdir().unwrap();
    let budget = 10_000_000;
    let server = server(folder.path(), |config| config.server.response_bytes_max = budget).await;
    let address = server.address();
    start_large_run(address).await;
    let before = resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(request_without_reading(address, LARGE).await);
    }
    // Each needs two megabytes, so there is no room for another one.
    while metric(address, "abide_response_bytes_held ").await < 8_000_000 {}
    for _ in 0..200 {
        assert!(metric(address, "abide_response_bytes_held ").await <= budget as u64);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100_000_000, "{grown} bytes for 100 clients that ask for two megabytes each");
    assert!(metric(address, "abide_connections ").await >= 100);
    drop(clients);
    while metric(address, "abide_response_bytes_held ").await > 0 {}
    server.stop().await;
}
