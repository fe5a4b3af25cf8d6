//! `http.request` against a real server: the requests it sends, how it reads responses, and where it never connects.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::egress_guard::{EgressGuard, EgressGuardConfig, ResolveFuture, Resolver};
use crate::http::TlsRoots;
use crate::http::test_server::{CannedReply, TestServer};
use crate::metadata::tests::metadata;
use crate::transport::{ActivityTransport, AttemptResult, CallAttempt};

/// Resolves every name to the same addresses, and counts the lookups.
#[derive(Clone)]
struct CountingResolver {
    addresses: Vec<IpAddr>,
    lookups: Arc<AtomicUsize>,
}

impl Default for CountingResolver {
    fn default() -> Self {
        Self { addresses: vec![[127, 0, 0, 1].into()], lookups: Arc::default() }
    }
}

impl Resolver for CountingResolver {
    fn resolve<'r>(&'r self, _host: &'r str) -> ResolveFuture<'r> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(self.addresses.clone()) })
    }
}

fn activities(allow: &[&str], roots: TlsRoots, resolver: CountingResolver) -> LocalActivities {
    let allow = allow.iter().map(|entry| entry.parse().unwrap()).collect();
    let guard =
        EgressGuard::with_resolver(EgressGuardConfig { allow, ..EgressGuardConfig::default() }, resolver);
    let mut activities = LocalActivities::default();
    register(&mut activities, OneShotClient::new(guard, roots).unwrap()).unwrap();
    activities
}

fn trusting() -> LocalActivities {
    activities(&["127.0.0.1"], TlsRoots::for_test_server(), CountingResolver::default())
}

async fn run_attempt(activities: &LocalActivities, input: Value) -> Result<Value, CallFailure> {
    let activity = "http.request".to_owned();
    let input = Arc::new(input);
    let call = CallAttempt {
        activity,
        input,
        metadata: metadata(),
        attempt_timeout_ms: 10_000,
        probe_first: false,
        secret_pointers: Vec::new(),
        elapsed_since_dispatch: Duration::ZERO,
    };
    match activities.run_attempt(call).await {
        AttemptResult::Completed(output) => Ok((*output).clone()),
        AttemptResult::Failed(failure) => Err(failure),
    }
}

/// The code of a failure, whether it is retryable, and whether its outcome is unknown.
fn failure_summary(result: &Result<Value, CallFailure>) -> (&str, bool, bool) {
    let failure = result.as_ref().unwrap_err();
    (failure.code.as_str(), failure.retryable, failure.outcome_unknown)
}

fn reply(head: &str, body: &[u8]) -> CannedReply {
    CannedReply::Bytes([format!("HTTP/1.1 {head}\r\n\r\n").as_bytes(), body].concat())
}

async fn answered(head: &str, body: &[u8]) -> Result<Value, CallFailure> {
    let server = TestServer::start(reply(head, body)).await;
    run_attempt(&trusting(), json!({"url": format!("http://{}/", server.address)})).await
}

#[tokio::test]
async fn a_request_is_sent_as_described_with_all_metadata() {
    let server = TestServer::start(reply(
        "200 OK\r\ncontent-type: application/json; charset=utf-8",
        br#"{"ok":true}"#,
    ))
    .await;
    let input = json!({
        "method": "POST",
        "url": format!("http://{}/orders?dry=1#part", server.address),
        "headers": {"Authorization": "Bearer s3cret", "Host": "forged", "Metadata": "true", "x-tpf-retry-attempt": "9"},
        "body": {"n": 1},
    });
    let output = run_attempt(&trusting(), input).await.unwrap();
    assert_eq!((&output["status"], &output["body"]), (&json!(200), &json!({"ok": true})));
    assert_eq!(output["headers"]["content-type"], "application/json; charset=utf-8");
    let request = server.requests().remove(0);
    assert!(
        request.starts_with("POST /orders?dry=1 HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{\"n\":1}"),
        "{request}"
    );
    for line in [
        format!("host: {}", server.address),
        "authorization: Bearer s3cret".to_owned(),
        "content-type: application/json".to_owned(),
        "content-length: 7".to_owned(),
        "connection: close".to_owned(),
        "x-tpf-correlation-id: order-7".to_owned(),
        "x-tpf-execution-id: device-7/1".to_owned(),
        "x-tpf-idempotency-key: 97a03e98".to_owned(),
        "x-tpf-retry-attempt: 0".to_owned(),
        "x-tpf-deadline-epoch-ms: 20000".to_owned(),
        "x-tpf-dispatch-ts-epoch-ms: 10000".to_owned(),
        "x-tpf-parent-item-id: item-3".to_owned(),
    ] {
        assert_eq!(request.lines().filter(|sent| **sent == line).count(), 1, "{line}: {request}");
    }
    assert!(!request.contains("forged") && !request.contains("\r\nmetadata:"), "{request}");
}

#[tokio::test]
async fn text_is_sent_as_it_is_and_a_plain_call_is_a_get() {
    let server = TestServer::start(reply("200 OK", b"hello")).await;
    let url = format!("http://{}", server.address);
    let output = run_attempt(&trusting(), json!({"url": url})).await.unwrap();
    assert_eq!(output["body"], "hello");
    let put = json!({"url": url, "method": "PUT", "text": "a,b", "headers": {"content-type": "text/csv"}});
    run_attempt(&trusting(), put).await.unwrap();
    let requests = server.requests();
    assert!(requests[0].starts_with("GET / HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(
        requests[1].contains("content-type: text/csv\r\n") && requests[1].ends_with("\r\n\r\na,b"),
        "{}",
        requests[1]
    );
}

#[tokio::test]
async fn a_body_is_what_its_content_type_says() {
    for (head, body, expected) in [
        ("200 OK\r\ncontent-type: application/problem+json", b"[1]".as_slice(), json!([1])),
        ("204 No Content\r\ncontent-type: application/json", b"", json!(null)),
        ("200 OK\r\ncontent-type: text/plain", b"[1]", json!("[1]")),
        ("200 OK", b"\xff\xfe", json!({"bytesBase64": "//4="})),
        ("200 OK\r\ntransfer-encoding: chunked", b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", json!("abc")),
    ] {
        assert_eq!(answered(head, body).await.unwrap()["body"], expected, "{head}");
    }
    let broken = answered("200 OK\r\ncontent-type: application/json", b"{").await;
    assert_eq!(failure_summary(&broken), ("ResponseInvalid", false, false));
    for changed in [&b"[123456789012345678901234567890]"[..], br#"{"paid": true, "paid": false}"#] {
        let changed = answered("200 OK\r\ncontent-type: application/json", changed).await;
        assert_eq!(failure_summary(&changed), ("ResponseInvalid", false, false));
    }
}

#[tokio::test]
async fn repeated_headers_of_a_response_are_joined() {
    let output = answered("200 OK\r\nx-a: 1\r\nX-A: 2", b"").await.unwrap();
    assert_eq!(output["headers"]["x-a"], "1, 2");
}

#[tokio::test]
async fn the_status_decides_whether_a_failure_is_retryable() {
    assert_eq!(failure_summary(&answered("503 Service Unavailable", b"").await), ("Http503", true, true));
    let with_retry_after = answered("503 Service Unavailable\r\nretry-after: 1", b"").await;
    assert_eq!(failure_summary(&with_retry_after), ("Http503", true, false));
    assert_eq!(failure_summary(&answered("429 Too Many Requests", b"").await), ("Http429", true, false));
    assert_eq!(failure_summary(&answered("504 Gateway Timeout", b"").await), ("Http504", true, true));
    assert_eq!(failure_summary(&answered("404 Not Found", b"").await), ("Http404", false, false));
}

#[tokio::test]
async fn a_failure_shows_what_the_server_said() {
    for (head, body, said) in [
        ("400 Bad Request", br#"{"error": "no such card"}"#.as_slice(), ": no such card"),
        (
            "500 Internal Server Error\r\ncontent-type: text/plain",
            b"out of paper",
            " (text/plain): out of paper",
        ),
        // The connection breaks off in the body: the status is known, and so is its beginning.
        ("500 Internal Server Error\r\ncontent-length: 99", b"out of", " (no content type): out of"),
        ("500 Internal Server Error", b"", ""),
    ] {
        let failed = answered(head, body).await.unwrap_err();
        let status = head.get(..3).unwrap();
        assert_eq!(failed.code, format!("Http{status}"));
        assert!(failed.message.ends_with(&format!(" answered {status}{said}")), "{}", failed.message);
    }
    let garbage = answered("200 OK\r\ncontent-type: application/json", b"<h1>").await.unwrap_err();
    assert!(garbage.message.ends_with(" (application/json): <h1>"), "{}", garbage.message);
    let endless = answered("500 Internal Server Error", &vec![b'x'; 9_000_000]).await.unwrap_err();
    assert!(endless.message.len() < 1_200 && endless.code == "Http500");
}

#[tokio::test]
async fn a_redirect_is_refused_and_not_followed() {
    let elsewhere = TestServer::start(reply("200 OK", b"")).await;
    let head = format!("302 Found\r\nlocation: http://{}/", elsewhere.address);
    assert_eq!(failure_summary(&answered(&head, b"").await), ("RedirectRefused", false, false));
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_response_that_is_too_large_is_refused_with_or_without_a_length() {
    let large = vec![b'a'; 1024 * 1024 + 1];
    let length = format!("200 OK\r\ncontent-length: {}", large.len());
    assert_eq!(failure_summary(&answered(&length, &large).await), ("ResponseTooLarge", false, false));
    assert_eq!(failure_summary(&answered("200 OK", &large).await), ("ResponseTooLarge", false, false));
    let head = format!("200 OK\r\nx-a: {}", "a".repeat(70_000));
    assert_eq!(
        failure_summary(&answered(&head, b"").await),
        ("ConnectionLost", true, true),
        "no head, no response"
    );
    let fits = answered("200 OK", &large[1..]).await.unwrap();
    assert_eq!(fits["body"].as_str().map(str::len), Some(1024 * 1024));
}

#[tokio::test]
async fn a_denied_address_is_never_connected_to() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let guarded = activities(&[], TlsRoots::for_test_server(), CountingResolver::default());
    for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "localhost", "service.test"] {
        for scheme in ["http", "https"] {
            let result = run_attempt(&guarded, json!({"url": format!("{scheme}://{host}:{port}/")})).await;
            assert_eq!(failure_summary(&result), ("AddressDenied", false, false), "{scheme} {host}");
        }
    }
    // The system completes a connection before the client is notified, so one would be waiting here.
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_sent_as_the_host() {
    let server = TestServer::start(reply("200 OK", b"")).await;
    let resolver = CountingResolver::default();
    let listed = activities(&["service.test"], TlsRoots::for_test_server(), resolver.clone());
    let url = format!("http://service.test:{}/", server.address.port());
    run_attempt(&listed, json!({"url": url})).await.unwrap();
    assert_eq!(resolver.lookups.load(Ordering::SeqCst), 1);
    let host = format!("\r\nhost: service.test:{}\r\n", server.address.port());
    assert!(server.requests()[0].contains(&host));
}

#[tokio::test]
async fn a_header_that_breaks_out_of_its_line_is_refused_and_nothing_is_sent() {
    let server = TestServer::start(reply("200 OK", b"")).await;
    let url = format!("http://{}/", server.address);
    for headers in [
        json!({"x-a": "s3cret\r\nx-b: 1"}),
        json!({"x-a": "\n"}),
        json!({"x-a": "\u{0}"}),
        json!({"x/~\r\n": "1"}),
    ] {
        let result = run_attempt(&trusting(), json!({"url": url, "headers": headers})).await;
        assert_eq!(failure_summary(&result), ("InputInvalid", false, false), "{headers}");
        let message = &result.unwrap_err().message;
        assert!(message.contains("/headers/x") && !message.contains("s3cret"), "{message}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_input_that_is_not_a_call_is_refused() {
    let url = "http://127.0.0.1:1/";
    for input in [
        json!({}),
        json!({"url": url, "method": "CONNECT"}),
        json!({"url": url, "method": "GET / HTTP/1.1\r\n"}),
        json!({"url": url, "body": 1, "text": "1"}),
        json!({"url": url, "timeout": "5s"}),
        json!({"url": url, "headers": {"a": 1}}),
        json!({"url": url, "proxy": "http://127.0.0.1/"}),
    ] {
        assert_eq!(
            failure_summary(&run_attempt(&trusting(), input.clone()).await),
            ("InputInvalid", false, false),
            "{input}"
        );
    }
    let with_password = run_attempt(&trusting(), json!({"url": "http://user:s3cret@127.0.0.1:1/"})).await;
    assert_eq!(failure_summary(&with_password), ("AddressDenied", false, false));
    assert!(!with_password.unwrap_err().message.contains("s3cret"));
}

#[tokio::test]
async fn a_failure_before_sending_is_known_not_to_have_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone: SocketAddr = listener.local_addr().unwrap();
    drop(listener);
    let result = run_attempt(&trusting(), json!({"url": format!("http://{gone}/")})).await;
    assert_eq!(failure_summary(&result), ("ConnectFailed", true, false));
    assert!(result.unwrap_err().not_sent, "so its attempt number is used again");
}

#[tokio::test]
async fn an_exchange_interrupted_after_sending_has_an_unknown_outcome() {
    let hanging_up = TestServer::start(CannedReply::HangUp).await;
    let result = run_attempt(&trusting(), json!({"url": format!("http://{}/", hanging_up.address)})).await;
    assert_eq!(failure_summary(&result), ("ConnectionLost", true, true));
    assert_eq!(
        failure_summary(&answered("200 OK\r\ncontent-length: 9", b"short").await),
        ("ConnectionLost", true, true)
    );
}

#[tokio::test]
async fn a_timeout_after_sending_has_an_unknown_outcome() {
    let silent = TestServer::start(CannedReply::Silence).await;
    let activities = trusting();
    let input = json!({"url": format!("http://{}/", silent.address), "timeout": "PT9S"});
    let pause_clock_once_sent = async {
        silent.received().await;
        tokio::time::pause();
    };
    let (result, ()) = tokio::join!(run_attempt(&activities, input), pause_clock_once_sent);
    assert_eq!(failure_summary(&result), ("AttemptTimeout", true, true));
    let message = result.unwrap_err().message;
    assert!(message.ends_with(" timed out after 9000 ms"), "{message}");
}

#[tokio::test]
async fn an_attempt_that_is_dropped_closes_its_connection() {
    let silent = TestServer::start(CannedReply::Silence).await;
    let activities = trusting();
    let url = format!("http://{}/", silent.address);
    tokio::select! {
        result = run_attempt(&activities, json!({"url": url})) => panic!("{result:?}"),
        () = silent.received() => {}
    }
    silent.left().await;
}

#[tokio::test]
async fn the_next_address_of_a_name_is_tried_if_one_does_not_answer() {
    let server = TestServer::start(reply("200 OK", b"")).await;
    let resolver = CountingResolver {
        addresses: vec![[127, 0, 0, 2].into(), [127, 0, 0, 1].into()],
        ..CountingResolver::default()
    };
    let listed = activities(&["127.0.0.0/8"], TlsRoots::for_test_server(), resolver);
    let url = format!("http://service.test:{}/", server.address.port());
    assert!(run_attempt(&listed, json!({"url": url})).await.is_ok());
}

#[tokio::test]
async fn only_servers_with_a_trusted_certificate_are_called_over_tls() {
    let server = TestServer::start_tls(reply("200 OK", b"sealed")).await;
    let port = server.address.port();
    let url = format!("https://service.test:{port}/");
    assert_eq!(run_attempt(&trusting(), json!({"url": url})).await.unwrap()["body"], "sealed");
    let another_name = run_attempt(&trusting(), json!({"url": format!("https://other.test:{port}/")})).await;
    assert_eq!(failure_summary(&another_name), ("ConnectFailed", true, false));
    let with_web_roots = activities(&["127.0.0.1"], TlsRoots::web_pki(), CountingResolver::default());
    let unknown_issuer = run_attempt(&with_web_roots, json!({"url": url})).await;
    assert_eq!(failure_summary(&unknown_issuer), ("ConnectFailed", true, false));
    assert_eq!(server.requests().len(), 1, "nothing was sent to an untrusted server");
}
