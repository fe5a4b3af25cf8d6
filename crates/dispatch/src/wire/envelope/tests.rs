//! Envelopes in both directions, and bodies that are rejected.

use super::*;
use crate::metadata::tests::metadata;
use serde_json::json;

fn envelope(context: &Value) -> Vec<u8> {
    let control = json!({"pipeline": "p", "step": "charge", "operatorId": "o", "context": context});
    let payload = json!({"kind": "json", "data": [1]});
    json::write(&json!({"protocolVersion": VERSION, "control": control, "payload": payload}))
}

#[test]
fn a_call_is_encoded_as_the_contract_requires() {
    let input = json!({"a": 1});
    let request =
        EnvelopeRequest { pipeline: "onboarding", activity: "charge", metadata: &metadata(), input: &input };
    let written: Value = serde_json::from_slice(&write_request(&request)).unwrap();
    let expected = json!({
        "protocolVersion": "tpf.envelope.v1",
        "control": {
            "pipeline": "onboarding", "step": "charge", "operatorId": "abide",
            "context": {
                "correlationId": "order-7", "executionId": "device-7/1", "idempotencyKey": "97a03e98", "retryAttempt": 0,
                "deadlineEpochMs": 20_000, "dispatchTsEpochMs": 10_000, "parentItemId": "item-3",
            },
        },
        "payload": {"kind": "json", "contentType": "application/json", "data": {"a": 1}},
    });
    assert_eq!(written, expected);
}

#[test]
fn a_call_round_trips_and_its_response_repeats_the_context() {
    let input = json!({"a": [1, "ö"]});
    let request = EnvelopeRequest { pipeline: "", activity: "charge", metadata: &metadata(), input: &input };
    let received = read_request(&write_request(&request)).unwrap();
    assert_eq!((received.step.as_str(), &received.metadata), ("charge", &Ok(Some(metadata()))));
    assert_eq!(received.input, json::write(&input));
    let response = write_response(&received.control, br#"{"runs": 1}"#).unwrap();
    assert_eq!(read_response(&response), Ok(json!({"runs": 1})));
    let response: Value = serde_json::from_slice(&response).unwrap();
    assert_eq!(response["control"]["context"]["executionId"], "device-7/1");
    assert_eq!(response["control"]["context"]["retryAttempt"], 0);
    assert_eq!(read_response(b""), Ok(Value::Null));
}

#[test]
fn the_context_is_read_as_strictly_as_headers() {
    let of = |context: Value| read_request(&envelope(&context)).unwrap().metadata;
    assert_eq!(of(Value::Null), Ok(None));
    assert_eq!(of(json!({})), Ok(None));
    assert_eq!(of(json!({"executionId": null, "more": 1})), Ok(None));
    let least = of(json!({"executionId": "e", "idempotencyKey": "k", "retryAttempt": 3})).unwrap().unwrap();
    assert_eq!((least.correlation_id.as_str(), least.retry_attempt), ("e", 3));
    for wrong in [
        json!({"executionId": "e"}),
        json!({"executionId": "e", "idempotencyKey": 5}),
        json!({"executionId": "e", "idempotencyKey": "k", "retryAttempt": -1}),
        json!({"executionId": "e", "idempotencyKey": "k", "retryAttempt": 1.5}),
        json!({"executionId": "e", "idempotencyKey": "k", "retryAttempt": "1"}),
        json!({"executionId": "e", "idempotencyKey": "k", "deadlineEpochMs": 9_223_372_036_854_775_808_u64}),
        json!({"executionId": "e", "idempotencyKey": "k", "parentItemId": "\u{e9}"}),
        json!({"executionId": "e", "idempotencyKey": "k\n"}),
        json!([]),
        json!("e"),
    ] {
        assert!(of(wrong.clone()).is_err(), "{wrong}");
    }
    let twice = r#"{"protocolVersion": "tpf.envelope.v1", "control": {"context": {"executionId": "a", "executionId": "a"}},
        "payload": {"kind": "json", "data": 1}}"#;
    assert!(read_request(twice.as_bytes()).unwrap().metadata.is_err());
}

#[test]
fn another_version_is_rejected_whatever_else_it_contains() {
    for (body, found) in [
        (json!({"protocolVersion": "tpf.envelope.v2", "control": 1, "payload": []}), "tpf.envelope.v2"),
        (json!({"protocolVersion": 1}), ""),
        (json!({"payload": {"kind": "json", "data": 1}}), ""),
    ] {
        let rejected = WireDecodeError::UnsupportedVersion { found: found.to_owned() };
        assert_eq!(read_request(&json::write(&body)).unwrap_err(), rejected);
        assert_eq!(read_response(&json::write(&body)).unwrap_err(), rejected);
    }
}

#[test]
fn a_payload_is_json_or_bytes_and_never_a_reference() {
    let of = |payload: Value| {
        let body = json::write(&json!({"protocolVersion": VERSION, "payload": payload}));
        read_response(&body)
    };
    assert_eq!(of(json!({"kind": "json", "contentType": "application/json", "data": null})), Ok(Value::Null));
    assert_eq!(of(json!({"kind": "json"})), Ok(Value::Null));
    let bytes = json!({"bytesBase64": "AAE="});
    assert_eq!(of(json!({"kind": "bytes", "contentType": "image/png", "data": bytes})), Ok(bytes));
    for wrong in [
        json!({"kind": "ref", "data": "s3://bucket/key"}),
        json!({"data": 1}),
        json!({"kind": "json", "contentType": "text/plain", "data": "a"}),
        json!(null),
        json!(5),
    ] {
        assert!(of(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn envelopes_are_bounded_in_size_and_nesting() {
    let nested = |depth: usize| {
        let data = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"protocolVersion": "{VERSION}", "payload": {{"kind": "json", "data": {data}}}}}"#)
    };
    assert!(read_response(nested(super::super::JSON_DEPTH_MAX).as_bytes()).is_ok());
    assert_eq!(
        read_response(nested(super::super::JSON_DEPTH_MAX + 1).as_bytes()),
        Err(WireDecodeError::TooDeep)
    );
    assert!(read_response(nested(400_000).as_bytes()).is_err());
    let long = nested(REQUEST_BYTES_MAX);
    assert!(matches!(read_response(long.as_bytes()), Err(WireDecodeError::TooLarge { .. })));
    for broken in ["", "{", "[]", "null", "5"] {
        assert!(read_request(broken.as_bytes()).is_err(), "{broken}");
    }
}
