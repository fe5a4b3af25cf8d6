//! What each wire over HTTP sends, and what it makes of answers.

use hyper::Version;
use serde_json::{Value, json};

use super::parts::*;
use super::server::{Server, reply};
use crate::metadata::tests::metadata;
use crate::remote::Wire;
use crate::status::{Code, Status};
use crate::transport::Call;
use crate::wire::{About, ENVELOPE, JSON, PAYLOAD_BYTES_MAX, PROTOBUF, envelope, json, protobuf};

const OVER_HTTP: [Wire; 3] = [Wire::Rest, Wire::Protobuf, Wire::Envelope];
const ABOUT: About<'static> = About { execution_id: "device-7/1", activity: "charge" };

fn success(wire: Wire, output: &str) -> Vec<u8> {
    match wire {
        Wire::Rest => output.as_bytes().to_vec(),
        Wire::Envelope => envelope::write_response(&envelope::Control::default(), output.as_bytes()).unwrap(),
        Wire::Protobuf | Wire::Grpc => protobuf::write(&protobuf::answer(output.to_owned().into())),
    }
}

fn failure(wire: Wire, status: &Status) -> Vec<u8> {
    match wire {
        Wire::Rest | Wire::Envelope => json::write_failure(status, status.code.http(), ABOUT),
        Wire::Protobuf | Wire::Grpc => protobuf::write_failure(status, ABOUT),
    }
}

#[tokio::test]
async fn a_call_is_sent_as_the_contract_has_it_with_all_metadata() {
    for (wire, content_type) in [(Wire::Rest, JSON), (Wire::Protobuf, PROTOBUF), (Wire::Envelope, ENVELOPE)] {
        let server = Server::always(200, success(wire, r#"{"ok":true}"#)).await;
        let output = deliver(&remote(wire, server.address), json!({"n": 1})).await;
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
            Wire::Rest => serde_json::from_slice(&sent.body).unwrap(),
            Wire::Envelope => {
                let read = envelope::read_request(&sent.body).unwrap();
                assert_eq!((read.step.as_str(), read.metadata), ("charge", Ok(Some(metadata()))));
                serde_json::from_slice(&read.input).unwrap()
            }
            _ => {
                let read = protobuf::read_request(sent.body).unwrap();
                assert_eq!(read.activity, "charge");
                serde_json::from_slice(&protobuf::json_of(read.input).unwrap()).unwrap()
            }
        };
        assert_eq!(input, json!({"n": 1}), "{wire:?}");
    }
}

#[tokio::test]
async fn an_empty_success_is_null() {
    for wire in OVER_HTTP {
        for status in [200, 204] {
            let server = Server::always(status, "").await;
            assert_eq!(deliver(&remote(wire, server.address), json!(1)).await, Ok(Value::Null), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn every_status_is_told_with_its_reason_and_whether_another_delivery_may_help() {
    for wire in OVER_HTTP {
        for code in Code::all().filter(|code| *code != Code::Ok) {
            let status = Status::new(code, "no").with_reason("WHY");
            let server = Server::always(code.http(), failure(wire, &status)).await;
            let answer = deliver(&remote(wire, server.address), json!(1)).await;
            let open = code == Code::Unavailable;
            assert_eq!(told(&answer), ("WHY", code.is_retryable(), open), "{wire:?} {code}");
            let failed = answer.unwrap_err();
            assert_eq!(failed.status, Some(format!("{} {code}", code.http())));
            assert_eq!(failed.target, Some(format!("http://{}", server.address)));
        }
    }
}

#[tokio::test]
async fn without_a_status_in_the_body_the_number_decides() {
    for wire in OVER_HTTP {
        for (status, body, expected) in [
            (404, "not found", last("Http404")),
            (400, "{}", last("Http400")),
            (429, "", unsent("Http429")),
            (408, "", unknown("Http408")),
            (500, "<html>", unknown("Http500")),
            (502, "", unknown("Http502")),
            (504, "", unknown("Http504")),
            (503, "", unknown("Http503")),
        ] {
            let server = Server::always(status, body).await;
            assert_eq!(told(&deliver(&remote(wire, server.address), json!(1)).await), expected, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn patience_that_is_asked_for_is_carried() {
    let server = Server::answering(|_| reply(503, &[("retry-after", "7")], "")).await;
    for wire in OVER_HTTP {
        let failed = deliver(&remote(wire, server.address), json!(1)).await.unwrap_err();
        assert_eq!(failed.retry_after_ms, Some(7_000), "{wire:?}");
        assert!(
            !failed.outcome_unknown && failed.is_turned_away(),
            "{wire:?}: who asks for it has not begun"
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
            let answer = deliver(&remote(wire, server.address), json!(1)).await;
            assert_eq!(told(&answer), last("RedirectRefused"), "{wire:?} {status}");
        }
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn an_output_that_cannot_be_read_or_does_not_fit_is_final() {
    for wire in OVER_HTTP {
        for body in [b"<html>".as_slice(), b"{", b"\xff\xff", br#"{"protocolVersion": "2"}"#] {
            // Any JSON is an output over plain JSON.
            if wire == Wire::Rest && serde_json::from_slice::<Value>(body).is_ok() {
                continue;
            }
            let server = Server::always(200, body.to_vec()).await;
            let answer = deliver(&remote(wire, server.address), json!(1)).await;
            assert_eq!(told(&answer), last("OutputInvalid"), "{wire:?} {body:?}");
        }
        let server = Server::always(200, success(wire, r#"{"n":"s3cret"}"#)).await;
        let declared = json!({"output": {"properties": {"n": {"type": "integer"}}}});
        let answer = deliver(&remote_with(wire, server.address, declared), json!(1)).await;
        assert_eq!(told(&answer), last("OutputInvalid"), "{wire:?}");
        let message = answer.unwrap_err().message;
        assert!(message.contains("/n") && !message.contains("s3cret"), "{message}");
    }
}

#[tokio::test]
async fn an_output_that_is_too_large_is_final_and_one_that_just_fits_is_not() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    for wire in OVER_HTTP {
        let fits = Server::always(200, success(wire, &text(PAYLOAD_BYTES_MAX))).await;
        assert!(deliver(&remote(wire, fits.address), json!(1)).await.is_ok(), "{wire:?}");
        let large = Server::always(200, success(wire, &text(PAYLOAD_BYTES_MAX + 1))).await;
        let answer = deliver(&remote(wire, large.address), json!(1)).await;
        assert_eq!(told(&answer), last("OutputInvalid"), "{wire:?}");
        let huge = Server::always(200, vec![b' '; 3 * PAYLOAD_BYTES_MAX]).await;
        let answer = deliver(&remote(wire, huge.address), json!(1)).await;
        assert_eq!(told(&answer), last("ResponseTooLarge"), "{wire:?}");
        let failed = Server::always(503, vec![b' '; 3 * PAYLOAD_BYTES_MAX]).await;
        let answer = deliver(&remote(wire, failed.address), json!(1)).await;
        assert_eq!(told(&answer), unknown("Http503"), "{wire:?}: of a failure the number is left");
    }
}

#[tokio::test]
async fn what_cannot_be_sent_is_final_and_not_sent() {
    for wire in Wire::ALL {
        let server = Server::always(200, "").await;
        let remote =
            remote_with(wire, server.address, json!({"input": {"maxLength": 9_999_999, "type": "string"}}));
        let answer = deliver(&remote, json!(7)).await;
        assert_eq!(told(&answer), last("InputInvalid"), "{wire:?}: the schema");
        let answer = deliver(&remote, json!("x".repeat(PAYLOAD_BYTES_MAX - 1))).await;
        assert_eq!(told(&answer), last("InputInvalid"), "{wire:?}: the size");
        let late = |left| {
            let mut call = call(json!("a"));
            call.metadata.deadline_epoch_ms = Some(call.metadata.dispatched_at_epoch_ms + left);
            call
        };
        for left in [0, -1, -1_000_000] {
            let answer = result(remote.deliver(late(left)).await);
            assert_eq!(told(&answer), last("DeadlineExceeded"), "{wire:?} {left}");
        }
        let mut odd = call(json!("a"));
        odd.metadata.execution_id = "a\r\nb".to_owned();
        assert_eq!(told(&result(remote.deliver(odd).await)), last("MetadataInvalid"), "{wire:?}");
        assert_eq!(server.connections(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn an_input_that_just_fits_is_sent() {
    for wire in OVER_HTTP {
        let server = Server::always(200, "").await;
        let answer = deliver(&remote(wire, server.address), json!("x".repeat(PAYLOAD_BYTES_MAX - 2))).await;
        assert_eq!(answer, Ok(Value::Null), "{wire:?}");
    }
}

#[tokio::test]
async fn an_attempt_ends_at_the_deadline_if_that_is_sooner() {
    for wire in Wire::ALL {
        let server = Server::silent().await;
        let remote = remote(wire, server.address);
        let mut call: Call = call(json!(1));
        call.metadata.deadline_epoch_ms = Some(call.metadata.dispatched_at_epoch_ms + 5_000);
        let begun = tokio::time::Instant::now();
        let time_flies_once_it_is_sent = async {
            server.received(1).await;
            tokio::time::pause();
        };
        let (delivered, ()) = tokio::join!(remote.deliver(call), time_flies_once_it_is_sent);
        assert_eq!(told(&result(delivered)), unknown("AttemptTimeout"), "{wire:?}");
        assert_eq!(begun.elapsed().as_secs(), 5, "{wire:?}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn calls_are_signed_and_carry_their_token() {
    let secrets = [("env:TOKEN", "t0ken"), ("file:/run/key", "k3y")];
    let secrets = secrets.map(|(reference, value)| (reference.to_owned(), value.as_bytes().to_vec()));
    let outbound = outbound_with(Known(secrets.into()));
    let auth = json!({"auth": {
        "bearer": {"secretRef": "env:TOKEN"}, "hmac": {"keyId": "k1", "secret": {"secretRef": "file:/run/key"}},
    }});
    for wire in Wire::ALL {
        let server = Server::always(200, "").await;
        let auth = json!({"probe": true, "auth": auth["auth"]});
        let remote =
            crate::remote::Remote::new(declared(wire, &http(server.address), auth), &outbound).unwrap();
        // A delivery, and a question: what is answered is no matter.
        let _ = deliver(&remote, json!({"n": 1})).await;
        let _ = remote.deliver(Call { ask_first: true, ..call(json!({"n": 1})) }).await;
        let requests = server.requests();
        assert!(requests.len() >= 2, "{wire:?}");
        for sent in requests {
            assert_eq!(sent.header("authorization"), "Bearer t0ken");
            let signed = crate::remote::Signed {
                method: &sent.method,
                path: &sent.path,
                timestamp_ms: sent.header("x-abide-signature-timestamp").parse().unwrap(),
                nonce: sent.header("x-abide-signature-nonce"),
                body: &sent.body,
            };
            assert_eq!(sent.header("x-abide-signature"), signed.signature(b"k3y"), "{wire:?}");
            assert!(
                (10_000..15_000).contains(&signed.timestamp_ms),
                "when it left, and the time at the gate"
            );
        }
    }
}

#[tokio::test]
async fn without_its_secrets_a_call_is_not_sent() {
    let server = Server::always(200, "").await;
    let auth = json!({"auth": {"bearer": {"secretRef": "env:TOKEN"}}});
    for wire in Wire::ALL {
        let answer = deliver(&remote_with(wire, server.address, auth.clone()), json!(1)).await;
        assert_eq!(told(&answer), last("SecretUnavailable"), "{wire:?}");
    }
    assert_eq!(server.connections(), 0);
}
