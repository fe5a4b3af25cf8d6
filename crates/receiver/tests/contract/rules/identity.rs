//! Rules for the identity of calls, and for what duplicates get.

use abide_dispatch::Metadata;
use abide_ids::Timestamp;
use serde_json::{Value, json};

use crate::fixture::{ContractFixture, metadata, work};
use crate::wires::{TestCall, Wire};

pub(crate) async fn a_duplicate_after_a_restart_gets_the_recorded_result_byte_for_byte(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({}));
    let first = fixture.send(wire, &call).await;
    assert_eq!(first.output(), json!({"ran": 1, "z": 1, "a": 2}));
    assert_eq!(fixture.send(wire, &call).await, first);
    assert_eq!(fixture.restarted().await.send(wire, &call).await, first);
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn a_duplicate_over_another_wire_gets_the_same_result(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let succeeding = work("k", json!({}));
    let failing = work("l", json!({"do": "fail", "status": "NOT_FOUND"}));
    let first = (fixture.send(wire, &succeeding).await, fixture.send(wire, &failing).await);
    for other in Wire::ALL {
        assert_eq!(
            (fixture.send(other, &succeeding).await, fixture.send(other, &failing).await),
            first,
            "{other:?}"
        );
    }
    assert_eq!(fixture.runs(), 2);
}

pub(crate) async fn the_same_key_for_another_activity_is_a_new_call(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for (runs, activity) in [(1, "work"), (2, "other"), (2, "other"), (1, "work")] {
        let response = fixture.send(wire, &TestCall::new(activity, &metadata("k"), &json!({}))).await;
        assert_eq!(response.output()["ran"], runs);
    }
}

pub(crate) async fn without_metadata_equal_inputs_are_one_call(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let without_metadata = |input: Value| TestCall { metadata: Vec::new(), ..work("", input) };
    let first = fixture.send(wire, &without_metadata(json!({"n": 1}))).await;
    assert_eq!(fixture.send(wire, &without_metadata(json!({"n": 1}))).await, first);
    assert_eq!(fixture.send(wire, &without_metadata(json!({"n": 2}))).await.output()["ran"], 2);
    let other = TestCall { activity: "other".to_owned(), ..without_metadata(json!({"n": 1})) };
    assert_eq!(fixture.send(wire, &other).await.output()["ran"], 3);
    let seen = fixture.handler.seen_metadata.lock().unwrap().clone();
    assert_eq!(seen[0], Metadata::derive_from_body("work", br#"{"n":1}"#));
}

pub(crate) async fn all_seven_keys_reach_the_handler_as_they_were_sent(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let all_keys = Metadata {
        correlation_id: "order 7 ~!".to_owned(),
        retry_attempt: 4_294_967_295,
        deadline: Some(Timestamp::MAX),
        dispatched_at: Timestamp(0),
        parent_item_id: Some("item-3".to_owned()),
        ..metadata("k")
    };
    fixture.send(wire, &TestCall::new("work", &all_keys, &json!({}))).await;
    let seen = fixture.handler.seen_metadata.lock().unwrap().clone();
    assert_eq!(seen, [all_keys]);
}
