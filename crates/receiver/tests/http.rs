//! Tests what only the HTTP wires have: content types, headers, methods and paths.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use abide_dispatch::RpcStatus;
use abide_dispatch::wire::{ENVELOPE, JSON, PROBE_HEADER, PROTOBUF, json, protobuf};
use abide_ids::Timestamp;
use abide_receiver::{
    HandlerInvocation, HandlerRegisterError, Receiver, ReceiverClock, ReceiverOpenError, ReceiverOptions,
};
use abide_store::memory::MemoryStore;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

async fn router() -> Router {
    let builder =
        Receiver::builder(Arc::new(MemoryStore::default()), ReceiverClock::new(|| Timestamp(1_000)));
    let echo = async |invocation: HandlerInvocation| {
        Ok::<_, RpcStatus>(json!([invocation.activity, invocation.input]))
    };
    let full = async |_: HandlerInvocation| {
        Err::<Value, _>(
            RpcStatus::new(abide_dispatch::RpcCode::ResourceExhausted, "later").with_retry_after_ms(1_001),
        )
    };
    builder
        .handler("echo", echo)
        .handler("echo two", echo)
        .handler("full", full)
        .open()
        .await
        .unwrap()
        .router()
}

async fn answer(router: &Router, request: Request<Body>) -> (u16, HeaderMap, Bytes) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    (status, headers, response.into_body().collect().await.unwrap().to_bytes())
}

fn post(path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header("content-type", content_type).body(body.into()).unwrap()
}

#[tokio::test]
async fn an_unsupported_content_type_is_rejected() {
    let router = router().await;
    for content_type in
        ["", "text/plain", "application/xml", "application/jsonp", "application/protobuf", "json"]
    {
        let (status, headers, body) = answer(&router, post("/activities/echo", content_type, "{}")).await;
        assert_eq!((status, &headers["content-type"]), (415, &JSON.parse().unwrap()), "{content_type}");
        let failure = json::read_failure(&body).unwrap();
        assert_eq!(
            (failure.code.name(), failure.reason.as_deref()),
            ("INVALID_ARGUMENT", Some("CONTENT_TYPE_UNSUPPORTED"))
        );
    }
    let (status, _, _) =
        answer(&router, Request::post("/activities/echo").body(Body::from("{}")).unwrap()).await;
    assert_eq!(status, 415);
    for supported in ["application/json", "Application/JSON; charset=utf-8", " application/json ;x=y"] {
        assert_eq!(answer(&router, post("/activities/echo", supported, "{}")).await.0, 200, "{supported}");
    }
}

#[tokio::test]
async fn headers_that_contradict_the_context_are_rejected() {
    let router = router().await;
    let context = r#"{"executionId": "e/1", "idempotencyKey": "k", "retryAttempt": 1}"#;
    let envelope = |context: &str, headers: &[(&'static str, &'static str)]| {
        let body = format!(
            r#"{{"protocolVersion": "tpf.envelope.v1", "control": {{"context": {context}}}, "payload": {{"kind": "json", "data": 1}}}}"#
        );
        let mut request = post("/activities/echo", ENVELOPE, body);
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request
    };
    let same = [("x-tpf-execution-id", "e/1"), ("x-tpf-idempotency-key", "k"), ("x-tpf-retry-attempt", "1")];
    for headers in [&[][..], &same] {
        assert_eq!(answer(&router, envelope(context, headers)).await.0, 200, "{headers:?}");
    }
    let [execution, key, attempt] = same;
    for (context, headers) in [
        (context, &[("x-tpf-execution-id", "e/2"), key, attempt][..]),
        (context, &[execution, ("x-tpf-idempotency-key", "other"), attempt]),
        (context, &[execution, key]),
        (context, &[execution]),
        ("null", &same),
    ] {
        let (status, _, body) = answer(&router, envelope(context, headers)).await;
        let failure = json::read_failure(&body).unwrap();
        assert_eq!((status, failure.reason.as_deref()), (400, Some("METADATA_MALFORMED")), "{headers:?}");
    }
}

#[tokio::test]
async fn an_envelope_of_another_version_is_rejected() {
    let body = r#"{"protocolVersion": "tpf.envelope.v2", "payload": {"kind": "json", "data": 1}}"#;
    let (status, _, body) = answer(&router().await, post("/activities/echo", ENVELOPE, body)).await;
    let failure = json::read_failure(&body).unwrap();
    assert_eq!((status, failure.reason.as_deref()), (400, Some("PROTOCOL_UNSUPPORTED")));
    for (content_type, body) in [(ENVELOPE, "[]"), (ENVELOPE, ""), (PROTOBUF, "{}")] {
        let (status, _, _) = answer(&router().await, post("/activities/echo", content_type, body)).await;
        assert_eq!(status, 400);
    }
}

/// A probe with an invalid header must not run anything.
#[tokio::test]
async fn a_probe_has_one_header_with_the_value_1() {
    let router = router().await;
    for values in [&["0"][..], &[""], &["true"], &["1", "1"], &["11"]] {
        let mut request = post("/activities/echo", JSON, "{}");
        for value in values {
            request.headers_mut().append(PROBE_HEADER, value.parse().unwrap());
        }
        let (status, _, body) = answer(&router, request).await;
        assert_eq!(
            (status, json::read_failure(&body).unwrap().reason.as_deref()),
            (400, Some("METADATA_MALFORMED"))
        );
    }
    let mut request = post("/activities/echo", JSON, "{}");
    request.headers_mut().insert(PROBE_HEADER, "1".parse().unwrap());
    assert_eq!(answer(&router, request).await.0, 404);
}

/// The path is a convention; over protobuf the message names the activity.
#[tokio::test]
async fn the_activity_is_named_by_the_message_or_else_by_the_path() {
    let router = router().await;
    let mut message = protobuf::invoke_request("echo", &json!(1));
    let (status, _, body) =
        answer(&router, post("/activities/another", PROTOBUF, protobuf::write(&message))).await;
    assert_eq!((status, protobuf::read_response(body)), (200, Ok(json!(["echo", 1]))));
    message.activity.clear();
    let (_, _, body) =
        answer(&router, post("/activities/echo%20two", PROTOBUF, protobuf::write(&message))).await;
    assert_eq!(protobuf::read_response(body), Ok(json!(["echo two", 1])));
    let (_, _, body) = answer(&router, post("/activities/echo%20two", JSON, "2")).await;
    assert_eq!(body, r#"["echo two",2]"#);
}

#[tokio::test]
async fn retry_after_is_in_whole_seconds_and_exact_in_the_details() {
    let (status, headers, body) = answer(&router().await, post("/activities/full", JSON, "{}")).await;
    assert_eq!((status, &headers["retry-after"]), (429, &"2".parse().unwrap()));
    assert_eq!(json::read_failure(&body).unwrap().retry_after_ms, Some(1_001));
}

#[tokio::test]
async fn other_methods_and_paths_are_not_served() {
    let router = router().await;
    let get = Request::get("/activities/echo").body(Body::empty()).unwrap();
    assert_eq!(answer(&router, get).await.0, 405);
    for path in
        ["/", "/activities", "/activities/", "/activities/echo/", "/activities/echo/x", "//activities/echo"]
    {
        assert_eq!(answer(&router, post(path, JSON, "{}")).await.0, 404, "{path}");
    }
}

/// A body that never ends times out, and a truncated one is malformed.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_rejected() {
    let endless = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let (status, _, body) = answer(&router().await, post("/activities/echo", JSON, endless)).await;
    assert_eq!((status, json::read_failure(&body).unwrap().reason.as_deref()), (408, Some("BODY_TOO_SLOW")));
    let broken =
        futures_util::stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("truncated"))]);
    let (status, _, _) =
        answer(&router().await, post("/activities/echo", JSON, Body::from_stream(broken))).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn handler_names_are_unique_and_valid() {
    let opened = async |names: &[&str]| {
        let mut builder =
            Receiver::builder(Arc::new(MemoryStore::default()), ReceiverClock::new(|| Timestamp(0)));
        for name in names {
            builder = builder.handler(name, async |_: HandlerInvocation| Ok::<_, RpcStatus>(Value::Null));
        }
        builder.open().await.map(drop)
    };
    assert_eq!(opened(&["a", "b"]).await, Ok(()));
    let duplicate = HandlerRegisterError::Duplicate { activity: "a".to_owned() };
    assert_eq!(opened(&["a", "a"]).await, Err(ReceiverOpenError::Register(duplicate)));
    for name in ["", &"x".repeat(129)] {
        assert!(matches!(
            opened(&[name]).await,
            Err(ReceiverOpenError::Register(HandlerRegisterError::InvalidName { .. }))
        ));
    }
    let without_partition = ReceiverOptions { partition: String::new(), ..ReceiverOptions::default() };
    let builder = Receiver::builder(Arc::new(MemoryStore::default()), ReceiverClock::new(|| Timestamp(0)))
        .options(without_partition);
    assert!(matches!(builder.open().await, Err(ReceiverOpenError::Partition(_))));
}
