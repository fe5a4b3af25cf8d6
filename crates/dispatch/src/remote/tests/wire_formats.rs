//! The requests that each wire format sends over HTTP, and how it reads responses.

use abide_ids::Timestamp;
use hyper::Version;
use serde_json::{Value, json};

use super::fixtures::*;
use super::server::{Server, reply};
use crate::metadata::tests::metadata;
use crate::remote::WireFormat;
use crate::status::{RpcCode, RpcStatus};
use crate::transport::CallAttempt;
use crate::wire::{
    ENVELOPE, FailureContext, INPUT_BYTES_MAX, JSON, OUTPUT_BYTES_MAX, PROTOBUF, envelope, grpc, json,
    protobuf,
};

const OVER_HTTP: [WireFormat; 3] = [WireFormat::Rest, WireFormat::Protobuf, WireFormat::Envelope];
const ABOUT: FailureContext<'static> = FailureContext { execution_id: "device-7/1", activity: "charge" };

fn success(wire: WireFormat, output: &str) -> Vec<u8> {
    match wire {
        WireFormat::Rest => output.as_bytes().to_vec(),
        WireFormat::Envelope => {
            envelope::write_response(&envelope::EnvelopeControl::default(), output.as_bytes()).unwrap()
        }
        WireFormat::Protobuf | WireFormat::Grpc => {
            protobuf::write(&protobuf::invoke_response(output.to_owned().into()))
        }
    }
}

fn failure(wire: WireFormat, status: &RpcStatus) -> Vec<u8> {
    match wire {
        WireFormat::Rest | WireFormat::Envelope => {
            json::write_failure(status, status.code.http_status(), ABOUT)
        }
        WireFormat::Protobuf | WireFormat::Grpc => protobuf::write_failure(status, ABOUT),
    }
}

#[tokio::test]
async fn a_call_is_sent_as_the_contract_requires_with_all_metadata() {
    for (wire, content_type) in
        [(WireFormat::Rest, JSON), (WireFormat::Protobuf, PROTOBUF), (WireFormat::Envelope, ENVELOPE)]
    {
        let server = Server::always(200, success(wire, r#"{"ok":true}"#)).await;
        let output = run_attempt(&remote(wire, server.address), json!({"n": 1})).await;
        assert_eq!(output, Ok(json!({"ok": true})), "{wire:?}");
        let sent = server.requests().remove(0);
        assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/activities/charge"));
        assert_eq!((sent.header("content-type"), sent.header("accept")), (content_type, content_type));
        assert_eq!(sent.header("host"), server.address.to_string());
        assert_eq!(sent.version, Version::HTTP_11);
        for (key, value) in metadata().encode() {
            assert_eq!(sent.header(key), value, "{wire:?}");
        }
        let input: Value = match wire {
            WireFormat::Rest => serde_json::from_slice(&sent.body).unwrap(),
            WireFormat::Envelope => {
                let read = envelope::read_request(&sent.body).unwrap();
                assert_eq!((read.step.as_str(), read.metadata), ("charge", Ok(Some(metadata()))));
                serde_json::from_slice(&read.input).unwrap()
            }
            _ => {
                let read = protobuf::read_request(sent.body).unwrap();
                assert_eq!(read.activity, "charge");
                serde_json::from_slice(&protobuf::payload_json(read.input).unwrap()).unwrap()
            }
        };
        assert_eq!(input, json!({"n": 1}), "{wire:?}");
    }
}

#[tokio::test]
async fn an_empty_success_means_null() {
    for wire in OVER_HTTP {
        for status in [200, 204] {
            let server = Server::always(status, "").await;
            assert_eq!(
                run_attempt(&remote(wire, server.address), json!(1)).await,
                Ok(Value::Null),
                "{wire:?}"
            );
        }
    }
}

#[tokio::test]
async fn every_status_becomes_a_failure_with_its_reason_and_retryability() {
    for wire in OVER_HTTP {
        for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
            let status = RpcStatus::new(code, "no").with_reason("WHY");
            let server = Server::always(code.http_status(), failure(wire, &status)).await;
            let failed = run_attempt(&remote(wire, server.address), json!(1)).await;
            let outcome_unknown = code == RpcCode::Unavailable;
            assert_eq!(
                failure_summary(&failed),
                ("WHY", code.is_retryable(), outcome_unknown),
                "{wire:?} {code}"
            );
            let failure = failed.unwrap_err();
            assert_eq!(failure.status, Some(format!("{} {code}", code.http_status())));
            assert_eq!(failure.target, Some(format!("http://{}", server.address)));
        }
    }
}

#[tokio::test]
async fn without_a_status_in_the_body_the_http_status_decides() {
    for wire in OVER_HTTP {
        for (status, body, expected) in [
            (404, "not found", permanent("Http404")),
            (400, "{}", permanent("Http400")),
            (429, "", unsent("Http429")),
            (408, "", unknown("Http408")),
            (500, "<html>", unknown("Http500")),
            (502, "", unknown("Http502")),
            (504, "", unknown("Http504")),
            (503, "", unknown("Http503")),
        ] {
            let server = Server::always(status, body).await;
            assert_eq!(
                failure_summary(&run_attempt(&remote(wire, server.address), json!(1)).await),
                expected,
                "{wire:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_retry_delay_of_the_server_is_passed_on() {
    let server = Server::answering(|_| reply(503, &[("retry-after", "7")], "")).await;
    for wire in OVER_HTTP {
        let failed = run_attempt(&remote(wire, server.address), json!(1)).await.unwrap_err();
        assert_eq!(failed.retry_after_ms, Some(7_000), "{wire:?}");
        assert!(
            !failed.outcome_unknown && failed.is_rejected_before_handler(),
            "{wire:?}: a server that gives a retry delay has not started"
        );
    }
}

#[tokio::test]
async fn a_redirect_is_refused_and_not_followed() {
    let elsewhere = Server::always(200, "1").await;
    let location = format!("http://{}/", elsewhere.address);
    for status in [301, 302, 303, 307, 308] {
        let location = location.clone();
        let server = Server::answering(move |_| reply(status, &[("location", &location)], "")).await;
        for wire in OVER_HTTP {
            let failed = run_attempt(&remote(wire, server.address), json!(1)).await;
            assert_eq!(failure_summary(&failed), permanent("RedirectRefused"), "{wire:?} {status}");
        }
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_output_that_cannot_be_decoded_or_does_not_match_fails_permanently() {
    for wire in OVER_HTTP {
        for body in [b"<html>".as_slice(), b"{", b"\xff\xff", br#"{"protocolVersion": "2"}"#] {
            // With plain JSON, any JSON is a valid output.
            if wire == WireFormat::Rest && serde_json::from_slice::<Value>(body).is_ok() {
                continue;
            }
            let server = Server::always(200, body.to_vec()).await;
            let failed = run_attempt(&remote(wire, server.address), json!(1)).await;
            assert_eq!(failure_summary(&failed), permanent("OutputInvalid"), "{wire:?} {body:?}");
        }
        let server = Server::always(200, success(wire, r#"{"n":"s3cret"}"#)).await;
        let declared = json!({"output": {"properties": {"n": {"type": "integer"}}}});
        let failed = run_attempt(&remote_with(wire, server.address, declared), json!(1)).await;
        assert_eq!(failure_summary(&failed), permanent("OutputInvalid"), "{wire:?}");
        let message = failed.unwrap_err().message;
        assert!(message.contains("/n") && !message.contains("s3cret"), "{message}");
    }
}

#[tokio::test]
async fn an_output_that_reading_would_change_fails_permanently() {
    for wire in WireFormat::ALL {
        for (output, rule) in [
            (r#"{"id": 123456789012345678901234567890}"#, "would be rounded"),
            (r#"{"paid": true, "paid": false}"#, "duplicate key"),
        ] {
            let server = Server::answering(move |_| match wire {
                WireFormat::Grpc => {
                    let message = protobuf::invoke_response(output.into());
                    reply(200, &[("grpc-status", "0")], grpc::encode_frame(&message))
                }
                wire => reply(200, &[], success(wire, output)),
            })
            .await;
            let failed = run_attempt(&remote(wire, server.address), json!(1)).await;
            assert_eq!(failure_summary(&failed), permanent("OutputInvalid"), "{wire:?}");
            let message = failed.unwrap_err().message;
            assert!(message.contains(rule), "{wire:?}: {message}");
        }
    }
}

#[tokio::test]
async fn an_output_over_the_size_limit_fails_permanently_and_one_at_the_limit_does_not() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    for wire in OVER_HTTP {
        let fits = Server::always(200, success(wire, &text(OUTPUT_BYTES_MAX))).await;
        assert!(run_attempt(&remote(wire, fits.address), json!(1)).await.is_ok(), "{wire:?}");
        let large = Server::always(200, success(wire, &text(OUTPUT_BYTES_MAX + 1))).await;
        let failed = run_attempt(&remote(wire, large.address), json!(1)).await;
        assert_eq!(failure_summary(&failed), permanent("OutputInvalid"), "{wire:?}");
        let huge = Server::always(200, vec![b' '; 3 * OUTPUT_BYTES_MAX]).await;
        let failed = run_attempt(&remote(wire, huge.address), json!(1)).await;
        assert_eq!(failure_summary(&failed), permanent("ResponseTooLarge"), "{wire:?}");
        let unavailable = Server::always(503, vec![b' '; 3 * OUTPUT_BYTES_MAX]).await;
        let failed = run_attempt(&remote(wire, unavailable.address), json!(1)).await;
        assert_eq!(
            failure_summary(&failed),
            unknown("Http503"),
            "{wire:?}: the HTTP status of a failure still counts"
        );
    }
}

#[tokio::test]
async fn an_invalid_call_fails_permanently_and_is_not_sent() {
    for wire in WireFormat::ALL {
        let server = Server::always(200, "").await;
        let remote =
            remote_with(wire, server.address, json!({"input": {"maxLength": 9_999_999, "type": "string"}}));
        let failed = run_attempt(&remote, json!(7)).await;
        assert_eq!(failure_summary(&failed), permanent("InputInvalid"), "{wire:?}: the schema");
        let failed = run_attempt(&remote, json!("x".repeat(INPUT_BYTES_MAX - 1))).await;
        assert_eq!(failure_summary(&failed), permanent("InputInvalid"), "{wire:?}: the size");
        let late = |left| {
            let mut call = call(json!("a"));
            call.metadata.deadline = Some(Timestamp(call.metadata.dispatched_at.0 + left));
            call
        };
        for left in [0, -1, -1_000_000] {
            let failed = result(remote.run_attempt(late(left)).await);
            assert_eq!(failure_summary(&failed), permanent("DeadlineExceeded"), "{wire:?} {left}");
        }
        let mut malformed = call(json!("a"));
        malformed.metadata.execution_id = "a\r\nb".to_owned();
        assert_eq!(
            failure_summary(&result(remote.run_attempt(malformed).await)),
            permanent("MetadataInvalid"),
            "{wire:?}"
        );
        assert_eq!(server.connections(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn an_input_at_the_size_limit_is_sent() {
    for wire in OVER_HTTP {
        let server = Server::always(200, "").await;
        let output = run_attempt(&remote(wire, server.address), json!("x".repeat(INPUT_BYTES_MAX - 2))).await;
        assert_eq!(output, Ok(Value::Null), "{wire:?}");
    }
}

#[tokio::test]
async fn an_attempt_ends_at_the_deadline_if_that_is_before_its_timeout() {
    for wire in WireFormat::ALL {
        let server = Server::silent().await;
        let remote = remote(wire, server.address);
        let mut call: CallAttempt = call(json!(1));
        call.metadata.deadline = Some(Timestamp(call.metadata.dispatched_at.0 + 5_000));
        let begun = tokio::time::Instant::now();
        let pause_clock_once_sent = async {
            server.received(1).await;
            tokio::time::pause();
        };
        let (delivered, ()) = tokio::join!(remote.run_attempt(call), pause_clock_once_sent);
        assert_eq!(failure_summary(&result(delivered)), unknown("AttemptTimeout"), "{wire:?}");
        assert_eq!(begun.elapsed().as_secs(), 5, "{wire:?}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn calls_are_signed_and_carry_their_token() {
    let secrets = [("env:TOKEN", "t0ken"), ("file:/run/key", "k3y")];
    let secrets = secrets.map(|(reference, value)| (reference.to_owned(), value.as_bytes().to_vec()));
    let outbound = outbound_with(FixedSecrets(secrets.into()));
    let auth = json!({"auth": {
        "bearer": {"secretRef": "env:TOKEN"}, "hmac": {"keyId": "k1", "secret": {"secretRef": "file:/run/key"}},
    }});
    for wire in WireFormat::ALL {
        let server = Server::always(200, "").await;
        let auth = json!({"probe": true, "auth": auth["auth"]});
        let remote =
            crate::remote::RemoteActivity::new(declared(wire, &http(server.address), auth), &outbound)
                .unwrap();
        // An attempt and a probe; their results do not matter.
        let _ = run_attempt(&remote, json!({"n": 1})).await;
        let _ = remote.run_attempt(CallAttempt { probe_first: true, ..call(json!({"n": 1})) }).await;
        let requests = server.requests();
        assert!(requests.len() >= 2, "{wire:?}");
        for sent in requests {
            assert_eq!(sent.header("authorization"), "Bearer t0ken");
            let signed = crate::remote::SigningInput {
                method: &sent.method,
                path: &sent.path,
                signed_at: Timestamp(sent.header("x-abide-signature-timestamp").parse().unwrap()),
                nonce: sent.header("x-abide-signature-nonce"),
                body: &sent.body,
            };
            assert_eq!(sent.header("x-abide-signature"), signed.signature(b"k3y"), "{wire:?}");
            assert!(
                (10_000..15_000).contains(&signed.signed_at.0),
                "the time of the dispatch, plus the wait for admission"
            );
        }
    }
}

#[tokio::test]
async fn without_its_secrets_a_call_is_not_sent() {
    let server = Server::always(200, "").await;
    let auth = json!({"auth": {"bearer": {"secretRef": "env:TOKEN"}}});
    for wire in WireFormat::ALL {
        let failed = run_attempt(&remote_with(wire, server.address, auth.clone()), json!(1)).await;
        assert_eq!(failure_summary(&failed), permanent("SecretUnavailable"), "{wire:?}");
    }
    assert_eq!(server.connections(), 0);
}
