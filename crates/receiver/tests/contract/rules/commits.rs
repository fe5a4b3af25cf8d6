//! Rules for commits: what becomes durable together, and what happens when the store fails.

use abide_receiver::ReceiverOptions;
use abide_store::memory::{BackendProfile, FaultRates};
use abide_store::rows::{Key, Partition};
use serde_json::json;

use crate::fixture::{ContractFixture, work};
use crate::slow_store::SlowStore;
use crate::wires::Wire;

/// The commit of the result is lost: neither the result nor the write is stored, and the next attempt stores both.
pub(crate) async fn writes_and_result_are_one_commit(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "add", "unknown": false}));
    let response = fixture.send(wire, &call).await;
    assert_eq!((response.http, response.refusal()), (503, ("UNAVAILABLE", "OUTCOME_UNKNOWN")));
    assert_eq!((fixture.runs(), fixture.effects().await), (1, 0));
    assert_eq!(fixture.send(wire, &call).await.output(), json!({"ran": 2}));
    assert_eq!(fixture.effects().await, 1);
    // A write that the store can never accept becomes a permanent failure.
    let refused = work("l", json!({"do": "add", "bytes": 5 * 1024 * 1024}));
    let response = fixture.send(wire, &refused).await;
    assert_eq!((response.http, response.refusal()), (412, ("FAILED_PRECONDITION", "EFFECT_REFUSED")));
    assert_eq!(fixture.send(wire, &refused).await, response);
    assert_eq!((fixture.runs(), fixture.effects().await), (3, 1));
}

pub(crate) async fn a_result_whose_commit_is_unknown_is_found_by_the_next_attempt(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "add", "unknown": true}));
    assert_eq!(fixture.send(wire, &call).await.refusal(), ("UNAVAILABLE", "OUTCOME_UNKNOWN"));
    assert_eq!(fixture.send(wire, &call).await.output(), json!({"ran": 1}), "the result was recorded");
    assert_eq!((fixture.runs(), fixture.effects().await), (1, 1));
    // If the commit of the claim is unknown, nothing has run, and the next attempt need not wait for that claim.
    for applied in [true, false] {
        let key = format!("claim-{applied}");
        fixture.store.make_next_commit_unknown(applied);
        let call = work(&key, json!({}));
        assert_eq!(fixture.send(wire, &call).await.refusal().1, "STORE_UNAVAILABLE");
        assert!(fixture.send(wire, &call).await.result.is_ok());
    }
    assert_eq!(fixture.runs(), 3);
}

pub(crate) async fn a_conflicting_write_is_not_applied_and_may_be_retried(wire: Wire) {
    let fixture = ContractFixture::new().await;
    assert!(fixture.send(wire, &work("k", json!({"do": "clash"}))).await.result.is_ok());
    for _ in 0..2 {
        let response = fixture.send(wire, &work("l", json!({"do": "clash"}))).await;
        assert_eq!((response.http, response.refusal()), (409, ("ABORTED", "EFFECT_CONFLICT")));
        assert_eq!(fixture.rows(), 2, "the result of the first call, and no claim");
    }
    assert_eq!((fixture.runs(), fixture.effects().await), (3, 1));
}

pub(crate) async fn with_any_store_faults_every_effect_happens_once(wire: Wire) {
    for seed in 0..20 {
        let faults =
            FaultRates { seed, conflict_per_mille: 100, unavailable_per_mille: 150, unknown_per_mille: 150 };
        let store = SlowStore::new(BackendProfile { faults: Some(faults), ..BackendProfile::AZURE });
        let fixture = ContractFixture::with(store, ReceiverOptions::default()).await;
        for key in ["a", "b", "c", "d"] {
            let call = work(key, json!({"do": "add"}));
            let mut response = fixture.send(wire, &call).await;
            for _ in 0..200 {
                if response.result.is_ok() {
                    break;
                }
                assert!(response.failure().code.is_retryable(), "seed {seed}: {response:?}");
                response = fixture.send(wire, &call).await;
            }
            assert!(response.result.is_ok(), "seed {seed}");
        }
        let mut entries = None;
        for _ in 0..100 {
            entries = entries.or(fixture.entries().await);
        }
        assert_eq!(
            entries,
            Some(4),
            "seed {seed}: one entry per key, however often the handler ran: {}",
            fixture.runs()
        );
    }
}

pub(crate) async fn a_damaged_record_is_reported_and_the_handler_does_not_run(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({}));
    assert!(fixture.send(wire, &call).await.result.is_ok());
    let partition = Partition::new("receiver").unwrap();
    fixture.store.inject_damage(&partition, Key::new([2]), Key::new([2, 0xff, 0xff]));
    let response = fixture.send(wire, &call).await;
    assert_eq!((response.http, response.refusal()), (500, ("DATA_LOSS", "RECORD_DAMAGED")));
    assert_eq!(fixture.runs(), 1);
}
