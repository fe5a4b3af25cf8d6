//! Requests that are rejected before they are interpreted, and the common parts of all responses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Method, Request};
use hyper::body::Frame;
use serde_json::json;

use crate::test_api::{BODY_BYTES_MAX, TestApi, echo, failed};

#[tokio::test]
async fn a_body_that_is_too_large_is_rejected_with_or_without_a_content_length() {
    let api = TestApi::new().await;
    let large = vec![b' '; BODY_BYTES_MAX + 1];
    let with_length = Request::post("/api/instances").header("content-length", large.len());
    let with_length = with_length.body(Body::from(large.clone())).unwrap();
    assert_eq!(api.send(with_length).await.error(), failed(413, "VALIDATION_ERROR", ""));
    let pieces = ChunkedBody(large.chunks(1_000).map(Bytes::copy_from_slice).collect());
    let without_length = Request::post("/api/instances").body(Body::new(pieces)).unwrap();
    assert_eq!(api.send(without_length).await.error(), failed(413, "VALIDATION_ERROR", ""));
}

#[tokio::test]
async fn only_uncompressed_json_is_accepted() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let send = async |name: &str, value: &str| {
        let request = Request::post("/api/instances").header(name, value);
        api.send(request.body(Body::from("{\"workflow\":\"w\"}")).unwrap()).await
    };
    assert_eq!(send("content-type", "application/json; charset=utf-8").await.status, 202);
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-type", "application/json; charset=latin1"),
        ("content-encoding", "gzip"),
    ] {
        assert_eq!(send(name, value).await.error(), failed(415, "VALIDATION_ERROR", ""), "{value}");
    }
    let untyped = Request::post("/api/instances").header("host", "localhost");
    let untyped = api.send_as_is(untyped.body(Body::from("{\"workflow\":\"w\"}")).unwrap()).await;
    assert_eq!(untyped.error(), failed(415, "VALIDATION_ERROR", ""), "a body needs a content type");
}

#[tokio::test]
async fn malformed_and_ambiguous_json_is_rejected() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let deep = format!("{{\"workflow\":\"w\",\"input\":{}{}}}", "[".repeat(80), "]".repeat(80));
    for body in [
        "",
        "{",
        "nonsense",
        "{\"workflow\":\"w\"} {}",
        "{\"workflow\":\"w\",\"workflow\":\"v\"}",
        "{\"workflow\":\"w\",\"input\":123456789012345678901234567890}",
        &deep,
    ] {
        let rejected = api.request(Method::POST, "/api/instances", body.to_owned()).await;
        let (status, code, _) = rejected.error();
        assert_eq!((status, code.as_str()), (400, "VALIDATION_ERROR"), "{body}");
    }
    let not_text = api.request(Method::POST, "/api/instances", vec![b'"', 0xff, b'"']).await;
    assert_eq!(not_text.error(), failed(400, "VALIDATION_ERROR", ""));
}

#[tokio::test]
async fn unknown_paths_and_methods_have_the_envelope_too() {
    let api = TestApi::new().await;
    for path in
        ["/", "/api", "/api/instances/", "/api//instances", "/api/instances/i/history/x", "/healthz/x"]
    {
        assert_eq!(api.get(path).await.error(), failed(404, "RESOURCE_NOT_FOUND", ""), "{path}");
    }
    let rejected = api.request(Method::PUT, "/api/instances/i", Body::empty()).await;
    assert_eq!(rejected.error(), failed(405, "VALIDATION_ERROR", ""));
    let allowed = rejected.headers["allow"].to_str().unwrap();
    assert!(allowed.contains("GET") && allowed.contains("DELETE"), "{allowed}");
    let long = api.get(&format!("/api/instances/{}", "a".repeat(9_000))).await;
    assert_eq!(long.error(), failed(414, "VALIDATION_ERROR", ""));
}

#[tokio::test]
async fn every_response_has_the_clients_correlation_id_or_a_new_one() {
    let api = TestApi::new().await;
    let correlation_id = async |path: &str, id: &str| {
        let request = Request::get(path).header("x-correlation-id", id).body(Body::empty()).unwrap();
        api.send(request).await.headers["x-correlation-id"].to_str().unwrap().to_owned()
    };
    for path in ["/healthz", "/readyz", "/metrics", "/api/instances/none", "/nowhere"] {
        assert_eq!(correlation_id(path, "mine:1").await, "mine:1", "{path}");
        let generated = correlation_id(path, "not mine").await;
        assert_eq!((generated.len(), generated.as_bytes()[14]), (36, b'7'), "{path}");
    }
    let response = api.get("/healthz").await;
    assert_eq!(response.headers["x-content-type-options"], "nosniff");
    assert_eq!(response.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn metrics_count_what_has_happened() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    for _ in 0..3 {
        let ended = api.post("/api/instances?wait=PT30S", &json!({"workflow": "w"})).await;
        assert_eq!(ended.status, 200);
    }
    let metrics = api.get("/metrics").await;
    assert_eq!(metrics.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "abide_instances_started_total 3",
        "abide_instances_ended_total{status=\"Completed\"} 3",
        "abide_instance_duration_seconds_count 3",
        "abide_shards_working 8",
        "abide_shards_recovering_carefully 0",
        "abide_store_usable 1",
    ] {
        assert!(metrics.text.lines().any(|found| found == line), "{line} is not in {}", metrics.text);
    }
}

#[tokio::test]
async fn calls_that_wait_for_a_permit_are_not_counted_as_running() {
    let api = TestApi::with_config(|config| config.runtime.max_concurrent_activity_functions = 1).await;
    let states = json!({
        "Begin": {"type": "task", "activity": "core.delay", "input": {"duration": "PT1H"}, "attemptTimeout": "PT2H", "next": "Done"},
        "Done": {"type": "succeed"},
    });
    assert_eq!(api.publish("w", &states).await.status, 201);
    for _ in 0..3 {
        assert_eq!(api.post("/api/instances", &json!({"workflow": "w"})).await.status, 202);
    }
    let counted = async || {
        let text = api.get("/metrics").await.text;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        (value("abide_calls_running "), value("abide_calls_waiting "))
    };
    // The calls are made in separate tasks.
    while counted().await.1 != "2" {
        tokio::task::yield_now().await;
    }
    assert_eq!(counted().await, ("1".to_owned(), "2".to_owned()));
}

/// A body of several pieces without a known length.
struct ChunkedBody(VecDeque<Bytes>);

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}
