//! Rules for invalid requests: they fail permanently, and nothing runs or is recorded.

use abide_dispatch::metadata::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, PARENT_ITEM_ID, RETRY_ATTEMPT,
};
use abide_dispatch::wire::INPUT_BYTES_MAX;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::fixture::{ContractFixture, metadata, work};
use crate::wires::{TestCall, Wire};

pub(crate) async fn malformed_metadata_is_rejected_before_anything_else(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let long = "x".repeat(513);
    let required = [(EXECUTION_ID, "e"), (IDEMPOTENCY_KEY, "k")];
    let with = |key, value| [&required[..], &[(key, value)]].concat();
    let mut cases = vec![
        vec![(EXECUTION_ID, "e")],
        vec![(IDEMPOTENCY_KEY, "k")],
        vec![(CORRELATION_ID, "c")],
        vec![(RETRY_ATTEMPT, "0")],
        vec![(EXECUTION_ID, " "), (IDEMPOTENCY_KEY, "k")],
        with(EXECUTION_ID, "e"),
        with(IDEMPOTENCY_KEY, "l"),
        vec![(EXECUTION_ID, "ä"), (IDEMPOTENCY_KEY, "k")],
        vec![(EXECUTION_ID, "e"), (IDEMPOTENCY_KEY, "a\tb")],
        vec![(EXECUTION_ID, &long), (IDEMPOTENCY_KEY, "k")],
        vec![(EXECUTION_ID, "e"), (IDEMPOTENCY_KEY, &long)],
        with(CORRELATION_ID, "ö"),
        with(PARENT_ITEM_ID, &long),
        with(RETRY_ATTEMPT, "4294967296"),
        with(DEADLINE, "9223372036854775808"),
    ];
    for key in [RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT] {
        cases.extend(["-1", "+1", "1 2", "0x10", "1e3", "1.5", "soon"].map(|value| with(key, value)));
    }
    for case in cases {
        let metadata = case.iter().map(|(key, value)| (*key, value.as_bytes().to_vec())).collect();
        // Malformed metadata is reported whatever the input is.
        for input in [Bytes::from_static(b"{}"), Bytes::from_static(br#"{"a": 1}"#)] {
            let call = TestCall { metadata: Vec::clone(&metadata), input, ..work("", json!({})) };
            let response = fixture.send(wire, &call).await;
            assert_eq!(
                (response.http, response.refusal()),
                (400, ("INVALID_ARGUMENT", "METADATA_MALFORMED")),
                "{case:?}"
            );
            assert_eq!(fixture.send(wire, &call.probe()).await, response, "{case:?}");
        }
    }
    assert_eq!(fixture.runs(), 0);
}

pub(crate) async fn an_input_that_is_not_json_is_rejected(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for input in ["{", "", "nul", "{\"a\": 1}}", "\u{feff}{}", "{'a': 1}"] {
        let call = TestCall { input: Bytes::copy_from_slice(input.as_bytes()), ..work("k", json!({})) };
        let response = fixture.send(wire, &call).await;
        assert_eq!(
            (response.http, response.refusal()),
            (400, ("INVALID_ARGUMENT", "BODY_MALFORMED")),
            "{input}"
        );
    }
    assert_eq!(fixture.runs(), 0);
    assert_eq!(fixture.send(wire, &work("k", json!({}))).await.output()["ran"], 1, "nothing was recorded");
}

pub(crate) async fn a_body_that_is_too_large_fails_permanently(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let huge = work("k", json!("x".repeat(5 * 1024 * 1024)));
    let response = fixture.send(wire, &huge).await;
    // The gRPC library rejects the message itself, without a reason.
    let (http, reason) = if wire == Wire::Grpc { (400, "") } else { (413, "BODY_TOO_LARGE") };
    assert_eq!((response.http, response.refusal()), (http, ("OUT_OF_RANGE", reason)));
    assert!(!response.failure().code.is_retryable());
    // Within the limit of bodies, but above that of inputs.
    let large = work("k", json!("x".repeat(INPUT_BYTES_MAX + 1_000)));
    let response = fixture.send(wire, &large).await;
    assert_eq!((response.http, response.refusal()), (http, ("OUT_OF_RANGE", "BODY_TOO_LARGE")));
    let largest = work("k", json!("x".repeat(INPUT_BYTES_MAX - 2)));
    assert!(fixture.send(wire, &largest).await.result.is_ok());
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn an_input_nested_too_deep_is_rejected(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for depth in [65, 127, 128, 10_000] {
        let input = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let call = TestCall { input: input.into(), ..work("k", json!({})) };
        assert_eq!(fixture.send(wire, &call).await.refusal(), ("INVALID_ARGUMENT", "BODY_MALFORMED"));
    }
    assert_eq!(fixture.runs(), 0);
}

pub(crate) async fn an_operation_that_the_conformance_activity_does_not_know_is_rejected(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let conformance = |input: Value| TestCall::new("conformance", &metadata(&input.to_string()), &input);
    let longest = conformance(json!({"op": "wait", "tag": "t", "ms": 30_000}));
    assert_eq!(fixture.send(wire, &longest).await.output(), json!({"runs": 1}));
    for wrong in [
        json!({"op": "run", "tag": ""}),
        json!({"op": "wait", "tag": "t", "ms": 30_001}),
        json!({"op": "fail", "tag": "t", "status": "OK", "times": 1}),
        json!({"op": "echo"}),
    ] {
        let response = fixture.send(wire, &conformance(wrong.clone())).await;
        assert_eq!(response.failure().code.name(), "INVALID_ARGUMENT", "{wrong}");
    }
}
