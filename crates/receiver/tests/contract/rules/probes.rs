//! Rules for probes: a probe gets what a duplicate would get, and never runs anything.

use serde_json::json;

use crate::fixture::{ContractFixture, metadata, work};
use crate::wires::{TestCall, Wire};

pub(crate) async fn a_probe_never_runs_anything(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for call in [work("k", json!({})), TestCall::new("unknown", &metadata("k"), &json!({}))] {
        let response = fixture.send(wire, &call.probe()).await;
        assert_eq!((response.http, response.refusal()), (404, ("NOT_FOUND", "WORK_UNKNOWN")));
    }
    assert_eq!(fixture.runs(), 0);
    let failing = work("k", json!({"do": "fail", "status": "UNAVAILABLE"}));
    fixture.send(wire, &failing).await;
    assert_eq!(
        fixture.send(wire, &failing.probe()).await.refusal().1,
        "WORK_UNKNOWN",
        "the call may run again"
    );
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn a_probe_returns_what_a_duplicate_gets(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "wait"}));
    let first = fixture.spawn_send(wire, &call);
    fixture.wait_for_waiting_handler().await;
    let response = fixture.send(wire, &call.clone().probe()).await;
    assert_eq!((response.http, response.refusal()), (409, ("ABORTED", "IN_PROGRESS")));
    let after_restart = fixture.restarted().await.send(wire, &call.clone().probe()).await;
    assert_eq!(after_restart.refusal().1, "WORK_UNKNOWN", "no handler runs in the new incarnation");
    fixture.handler.go.add_permits(1);
    assert_eq!(first.await.unwrap(), fixture.send(wire, &call.probe()).await);
    let failing = work("l", json!({"do": "fail", "status": "NOT_FOUND"}));
    assert_eq!(fixture.send(wire, &failing).await, fixture.send(wire, &failing.clone().probe()).await);
    assert_eq!(fixture.runs(), 2);
}
