//! Rules for claims: which attempt may run a call, and until when.

use std::time::Duration;

use abide_dispatch::Metadata;
use abide_ids::Timestamp;
use abide_receiver::ReceiverOptions;
use abide_store::memory::BackendProfile;
use serde_json::json;

use crate::fixture::{ContractFixture, NOW, metadata, work};
use crate::slow_store::SlowStore;
use crate::wires::{TestCall, Wire};

pub(crate) async fn a_concurrent_duplicate_gets_in_progress(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "wait"}));
    let first = fixture.spawn_send(wire, &call);
    fixture.wait_for_waiting_handler().await;
    for other in Wire::ALL {
        let response = fixture.send(other, &call).await;
        assert_eq!((response.http, response.refusal()), (409, ("ABORTED", "IN_PROGRESS")));
    }
    fixture.handler.go.add_permits(1);
    let first = first.await.unwrap();
    assert_eq!(first.output(), json!({"ran": 1}));
    assert_eq!(fixture.send(wire, &call).await, first);
}

pub(crate) async fn of_many_concurrent_duplicates_one_runs(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "wait"}));
    fixture.handler.go.add_permits(1_000);
    let all: Vec<_> = (0..64).map(|_| fixture.spawn_send(wire, &call)).collect();
    for one in all {
        match one.await.unwrap().result {
            Ok(output) => assert_eq!(output, br#"{"ran":1}"#.as_slice()),
            Err(status) => assert_eq!(status.reason.as_deref(), Some("IN_PROGRESS")),
        }
    }
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn a_restart_voids_the_claims_of_the_dead_process(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "wait"}));
    let dead = fixture.spawn_send(wire, &call);
    fixture.wait_for_waiting_handler().await;
    let restarted = fixture.restarted().await;
    // The first claim of each incarnation has the same serial number.
    let other = restarted.spawn_send(wire, &work("other", json!({"do": "wait"})));
    restarted.wait_for_waiting_handler().await;
    let response = restarted.spawn_send(wire, &call);
    restarted.wait_for_waiting_handler().await;
    assert_eq!(restarted.send(wire, &call).await.refusal().1, "IN_PROGRESS", "its own claim is held");
    restarted.handler.go.add_permits(3);
    let dead = dead.await.unwrap();
    let response = response.await.unwrap();
    assert!(other.await.unwrap().result.is_ok());
    assert_eq!(response.output(), json!({"ran": 3}));
    // In this test the old incarnation keeps running, unlike a dead process. It must not record anything.
    assert_eq!((dead.http, dead.refusal()), (409, ("ABORTED", "CLAIM_LOST")));
    assert_eq!(restarted.send(wire, &call).await, response);
}

pub(crate) async fn an_expired_claim_may_be_taken_over_and_its_first_holder_records_nothing(wire: Wire) {
    for deadline in [None, Some(NOW + 1_000)] {
        let fixture = ContractFixture::new().await;
        let with_deadline =
            |deadline: Option<i64>| Metadata { deadline: deadline.map(Timestamp), ..metadata("k") };
        let first = TestCall::new("work", &with_deadline(deadline), &json!({"do": "wait"}));
        let first = fixture.spawn_send(wire, &first);
        fixture.wait_for_waiting_handler().await;
        let again = TestCall::new("work", &with_deadline(None), &json!({"do": "wait"}));
        fixture.advance_clock(if deadline.is_some() { 999 } else { 10 * 60 * 1_000 - 1 });
        assert_eq!(
            fixture.send(wire, &again).await.refusal().1,
            "IN_PROGRESS",
            "the claim has not expired yet"
        );
        fixture.advance_clock(1);
        let second = fixture.spawn_send(wire, &again);
        fixture.wait_for_waiting_handler().await;
        fixture.handler.go.add_permits(1);
        assert_eq!(first.await.unwrap().refusal(), ("ABORTED", "CLAIM_LOST"));
        fixture.handler.go.add_permits(1);
        let second = second.await.unwrap();
        assert_eq!(second.output(), json!({"ran": 2}));
        assert_eq!(fixture.send(wire, &again).await, second);
    }
}

pub(crate) async fn a_client_that_disconnects_does_not_stop_the_handler(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "wait"}));
    let gone = fixture.spawn_send(wire, &call);
    fixture.wait_for_waiting_handler().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(fixture.send(wire, &call).await.refusal().1, "IN_PROGRESS");
    fixture.handler.go.add_permits(1);
    fixture.receiver.drain().await;
    assert_eq!(fixture.send(wire, &call).await.output(), json!({"ran": 1}));
    assert_eq!(fixture.runs(), 1);
}

pub(crate) async fn calls_above_the_concurrency_limit_are_rejected_and_not_recorded(wire: Wire) {
    let options = ReceiverOptions { concurrent_handlers_max: 2, ..ReceiverOptions::default() };
    let fixture = ContractFixture::with(SlowStore::new(BackendProfile::PLAIN), options).await;
    let running = ["a", "b"].map(|key| fixture.spawn_send(wire, &work(key, json!({"do": "wait"}))));
    fixture.wait_for_waiting_handler().await;
    fixture.wait_for_waiting_handler().await;
    let response = fixture.send(wire, &work("c", json!({}))).await;
    assert_eq!((response.http, response.refusal()), (429, ("RESOURCE_EXHAUSTED", "TOO_MANY_RUNNING")));
    assert_eq!(response.failure().retry_after_ms, Some(1_000));
    fixture.handler.go.add_permits(2);
    for one in running {
        assert!(one.await.unwrap().result.is_ok());
    }
    assert_eq!(fixture.send(wire, &work("c", json!({}))).await.output()["ran"], 3);
}

pub(crate) async fn a_draining_receiver_finishes_running_calls_and_rejects_new_ones(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let done = fixture.send(wire, &work("done", json!({}))).await;
    let running = fixture.spawn_send(wire, &work("k", json!({"do": "wait"})));
    fixture.wait_for_waiting_handler().await;
    let receiver = fixture.receiver.clone();
    let drained = tokio::spawn(async move { receiver.drain().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!drained.is_finished(), "one handler is still running");
    let response = fixture.send(wire, &work("new", json!({}))).await;
    assert_eq!((response.http, response.refusal()), (503, ("UNAVAILABLE", "STOPPING")));
    assert_eq!(
        fixture.send(wire, &work("done", json!({}))).await,
        done,
        "recorded results are still returned"
    );
    fixture.handler.go.add_permits(1);
    assert!(running.await.unwrap().result.is_ok());
    drained.await.unwrap();
}
