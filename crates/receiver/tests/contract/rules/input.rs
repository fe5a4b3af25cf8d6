//! What comes in wrong is refused for good, and nothing is done.

use abide_dispatch::metadata::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, PARENT_ITEM_ID, RETRY_ATTEMPT,
};
use bytes::Bytes;
use serde_json::json;

use crate::wires::{Sent, Wire};
use crate::world::{World, work};

pub(crate) async fn malformed_metadata_is_refused_before_anything_else_happens(wire: Wire) {
    let world = World::new().await;
    let long = "x".repeat(513);
    let least = [(EXECUTION_ID, "e"), (IDEMPOTENCY_KEY, "k")];
    let with = |key, value| [&least[..], &[(key, value)]].concat();
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
        // The input is wrong as well: the metadata is told first.
        for input in [Bytes::from_static(b"{}"), Bytes::from_static(br#"{"a": 1}"#)] {
            let sent = Sent { metadata: Vec::clone(&metadata), input, ..work("", json!({})) };
            let told = world.send(wire, &sent).await;
            assert_eq!(
                (told.http, told.refusal()),
                (400, ("INVALID_ARGUMENT", "METADATA_MALFORMED")),
                "{case:?}"
            );
            assert_eq!(world.send(wire, &sent.probe()).await, told, "{case:?}");
        }
    }
    assert_eq!(world.ran(), 0);
}

pub(crate) async fn an_input_that_is_no_json_is_refused(wire: Wire) {
    let world = World::new().await;
    for input in ["{", "", "nul", "{\"a\": 1}}", "\u{feff}{}", "{'a': 1}"] {
        let sent = Sent { input: Bytes::copy_from_slice(input.as_bytes()), ..work("k", json!({})) };
        let told = world.send(wire, &sent).await;
        assert_eq!((told.http, told.refusal()), (400, ("INVALID_ARGUMENT", "BODY_MALFORMED")), "{input}");
    }
    assert_eq!(world.ran(), 0);
    assert_eq!(world.send(wire, &work("k", json!({}))).await.output()["ran"], 1, "nothing was recorded");
}

pub(crate) async fn a_huge_body_is_refused_for_good(wire: Wire) {
    let world = World::new().await;
    let huge = work("k", json!("x".repeat(2 * 1024 * 1024)));
    let told = world.send(wire, &huge).await;
    // The library refuses a message by itself, without a reason.
    let (http, reason) = if wire == Wire::Grpc { (400, "") } else { (413, "BODY_TOO_LARGE") };
    assert_eq!((told.http, told.refusal()), (http, ("OUT_OF_RANGE", reason)));
    assert!(!told.failure().code.is_retryable());
    // Within the body's limit, and over the input's.
    let large = work("k", json!("x".repeat(1024 * 1024 + 1_000)));
    let told = world.send(wire, &large).await;
    assert_eq!((told.http, told.refusal()), (http, ("OUT_OF_RANGE", "BODY_TOO_LARGE")));
    let largest = work("k", json!("x".repeat(1024 * 1024 - 2)));
    assert!(world.send(wire, &largest).await.answer.is_ok());
    assert_eq!(world.ran(), 1);
}

pub(crate) async fn an_input_nested_too_deep_is_refused(wire: Wire) {
    let world = World::new().await;
    for depth in [65, 127, 128, 10_000] {
        let input = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let sent = Sent { input: input.into(), ..work("k", json!({})) };
        assert_eq!(world.send(wire, &sent).await.refusal(), ("INVALID_ARGUMENT", "BODY_MALFORMED"));
    }
    assert_eq!(world.ran(), 0);
}
