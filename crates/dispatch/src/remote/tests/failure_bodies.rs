//! What a failure says: the words of the service, where they came from, how long an attempt took, and no secrets.

use abide_ids::Timestamp;
use serde_json::{Value, json};

use super::fixtures::*;
use super::server::{Server, reply};
use crate::remote::{RemoteActivity, WireFormat};
use crate::status::excerpt::EXCERPT_BYTES_MAX;
use crate::transport::CallAttempt;

async fn message(wire: WireFormat, server: &Server) -> String {
    run_attempt(&remote(wire, server.address), json!(1)).await.unwrap_err().message
}

#[tokio::test]
async fn a_failure_shows_what_the_service_said_and_where() {
    for wire in WireFormat::ALL {
        for (status, content_type, body, said) in [
            (500, "text/plain", "out of paper", " (text/plain): out of paper"),
            (400, "application/json", r#"{"error": "no such card"}"#, ": no such card"),
            (400, "application/json", r#"{"error": {"message": "no such card"}}"#, ": no such card"),
            (
                404,
                "application/problem+json",
                r#"{"title": "Gone", "detail": "since May"}"#,
                ": Gone: since May",
            ),
            (502, "text/html", "<h1>\u{1b}[31mBad</h1>", r" (text/html): <h1>\u001b[31mBad</h1>"),
            (503, "text/plain", "", ""),
        ] {
            let server =
                Server::answering(move |_| reply(status, &[("content-type", content_type)], body)).await;
            let failed = run_attempt(&remote(wire, server.address), json!(1)).await.unwrap_err();
            let path = if wire == WireFormat::Grpc { "" } else { "/activities/charge" };
            let expected = format!("http://{}{path} answered {status}{said}", server.address);
            assert_eq!((failed.code, failed.message), (format!("Http{status}"), expected), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn the_query_of_an_address_is_not_shown() {
    let server = Server::always(500, "no").await;
    let mut declared = declared(WireFormat::Rest, &http(server.address), json!({}));
    declared.endpoint.push_str("?token=s3cret");
    let remote = RemoteActivity::new(declared, &outbound()).unwrap();
    let failed = run_attempt(&remote, json!(1)).await.unwrap_err();
    assert!(failed.message.contains("/activities/charge answered"), "{}", failed.message);
    assert!(!format!("{failed:?}").contains("s3cret"));
}

#[tokio::test]
async fn an_output_that_is_no_json_is_shown_with_its_content_type() {
    for wire in WireFormat::ALL {
        let headers = [("content-type", "text/html; charset=utf-8"), ("grpc-status", "0")];
        let server = Server::answering(move |_| reply(200, &headers, "<h1>Sign in</h1>")).await;
        let message = message(wire, &server).await;
        assert!(message.ends_with(" (text/html): <h1>Sign in</h1>"), "{wire:?}: {message}");
    }
    let server = Server::answering(|_| reply(200, &[], "<h1>Sign in</h1>")).await;
    let message = message(WireFormat::Grpc, &server).await;
    assert!(message.ends_with("without a gRPC status (no content type): <h1>Sign in</h1>"), "{message}");
}

/// The secret is repeated wherever the excerpt may be cut off.
#[tokio::test]
async fn an_excerpt_shows_no_secret_even_where_it_is_cut_off() {
    let token = "tok-0123456789-abcdefghijklmnop";
    let secrets = FixedSecrets([("env:TOKEN".to_owned(), token.as_bytes().to_vec())].into());
    let outbound = outbound_with(secrets);
    for filling in EXCERPT_BYTES_MAX - token.len() - 4..EXCERPT_BYTES_MAX + 4 {
        let body = format!("{}{token}", "x".repeat(filling));
        let server = Server::always(500, body).await;
        let auth = json!({"auth": {"bearer": {"secretRef": "env:TOKEN"}}});
        let remote =
            RemoteActivity::new(declared(WireFormat::Rest, &http(server.address), auth), &outbound).unwrap();
        let message = run_attempt(&remote, json!(1)).await.unwrap_err().message;
        assert!(!message.contains("tok-"), "{filling}: {message}");
    }
}

#[tokio::test]
async fn a_timeout_says_how_long_it_was() {
    for wire in WireFormat::ALL {
        for (deadline, after) in [(None, 8_000..=8_000), (Some(5_000), 4_900..=5_000)] {
            let server = Server::silent().await;
            let remote = remote(wire, server.address);
            let mut call: CallAttempt = call(json!(1));
            let dispatched_at = call.metadata.dispatched_at;
            call.metadata.deadline = deadline.map(|left| Timestamp(dispatched_at.0 + left));
            let pause_clock_once_sent = async {
                server.received(1).await;
                tokio::time::pause();
            };
            let (delivered, ()) = tokio::join!(remote.run_attempt(call), pause_clock_once_sent);
            let message = result(delivered).unwrap_err().message;
            let (address, waited) = message.split_once(": the attempt timed out after ").unwrap();
            assert!(address.starts_with(&http(server.address)), "{wire:?}: {message}");
            let waited: u64 = waited.strip_suffix(" ms").unwrap().parse().unwrap();
            assert!(after.contains(&waited), "{wire:?}: {message}");
            tokio::time::resume();
        }
    }
}

#[tokio::test]
async fn a_failure_in_json_never_hides_behind_its_size() {
    let details: Vec<Value> = (0..500).map(|at| json!({"field": at})).collect();
    let body = json!({"details": details, "error": {"message": "no such card"}}).to_string();
    let server = Server::always(400, body).await;
    let message = message(WireFormat::Rest, &server).await;
    assert!(message.ends_with("answered 400: no such card"), "{message}");
}
