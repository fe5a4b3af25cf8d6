//! Rules for deadlines: a deadline is absolute, and is checked once, before the handler runs.

use abide_dispatch::Metadata;
use abide_ids::Timestamp;
use serde_json::json;

use crate::fixture::{ContractFixture, NOW, metadata, work};
use crate::wires::{TestCall, Wire};

fn until(deadline: i64, action: &str) -> TestCall {
    let metadata = Metadata { deadline: Some(Timestamp(deadline)), ..metadata("k") };
    TestCall::new("work", &metadata, &json!({"do": action}))
}

pub(crate) async fn an_expired_deadline_is_rejected_and_not_recorded(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for deadline in [NOW, NOW - 1, 0] {
        let response = fixture.send(wire, &until(deadline, "")).await;
        assert_eq!((response.http, response.refusal()), (504, ("DEADLINE_EXCEEDED", "DEADLINE_EXPIRED")));
    }
    assert_eq!(fixture.runs(), 0);
    assert_eq!(fixture.send(wire, &until(NOW, "").probe()).await.refusal().1, "WORK_UNKNOWN");
    assert_eq!(fixture.send(wire, &until(NOW + 1, "")).await.output()["ran"], 1);
}

pub(crate) async fn without_a_deadline_no_call_is_late(wire: Wire) {
    let fixture = ContractFixture::new().await;
    fixture.advance_clock(i64::MAX - NOW - 1);
    assert_eq!(fixture.send(wire, &work("k", json!({}))).await.output()["ran"], 1);
}

pub(crate) async fn a_call_in_progress_is_reported_before_its_deadline_is_checked(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let first = fixture.spawn_send(wire, &work("k", json!({"do": "wait"})));
    fixture.wait_for_waiting_handler().await;
    assert_eq!(fixture.send(wire, &until(NOW, "wait")).await.refusal(), ("ABORTED", "IN_PROGRESS"));
    fixture.handler.go.add_permits(1);
    assert!(first.await.unwrap().result.is_ok());
}
