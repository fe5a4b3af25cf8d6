//! The limits that all activities at one target share, whatever the limits of each activity are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinSet;

use super::fixtures::*;
use super::server::{Server, reply};
use crate::remote::{Outbound, RemoteActivity, WireFormat};

/// Two activities with different wire formats.
fn two_at(server: &Server, outbound: &Outbound) -> [Arc<RemoteActivity>; 2] {
    [WireFormat::Rest, WireFormat::Envelope].map(|wire| {
        let declared = declared(wire, &http(server.address), json!({}));
        Arc::new(RemoteActivity::new(declared, outbound).unwrap())
    })
}

#[tokio::test]
async fn activities_at_one_target_share_its_permits_and_another_target_has_its_own() {
    let silent = Server::silent().await;
    let able = Server::always(200, "1").await;
    let outbound = outbound_limited(Some(3), None);
    let mut waiting = JoinSet::new();
    for remote in two_at(&silent, &outbound) {
        for _ in 0..5 {
            let remote = Arc::clone(&remote);
            waiting.spawn(async move { run_attempt(&remote, json!(1)).await });
        }
    }
    silent.received(3).await;
    let [free, _] = two_at(&able, &outbound);
    for _ in 0..20 {
        assert_eq!(run_attempt(&free, json!(1)).await, Ok(json!(1)), "another target is not held up");
    }
    assert_eq!(silent.requests().len(), 3, "seven of ten wait");
    assert!(waiting.try_join_next().is_none(), "no waiting call failed");
}

#[tokio::test]
async fn calls_that_wait_for_a_permit_of_their_target_are_worked_off() {
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let counts = (Arc::clone(&now), Arc::clone(&most));
    let server = Server::start(None, move |_| {
        let (now, most) = counts.clone();
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // There is one thread: all requests that can arrive have arrived by then.
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            reply(500, &[], r#"{"error": {"status": "DATA_LOSS"}}"#)
        })
    })
    .await;
    let mut calling = JoinSet::new();
    for remote in two_at(&server, &outbound_limited(Some(3), None)) {
        for _ in 0..10 {
            let remote = Arc::clone(&remote);
            calling.spawn(async move { run_attempt(&remote, json!(1)).await });
        }
    }
    while let Some(result) = calling.join_next().await {
        assert_eq!(failure_summary(&result.unwrap()), permanent("DATA_LOSS"));
    }
    assert_eq!((most.load(Ordering::SeqCst), server.requests().len()), (3, 20));
}

#[tokio::test]
async fn activities_at_one_target_share_its_rate_limit_and_another_target_has_its_own() {
    let paced = Server::always(200, "1").await;
    let other = Server::always(404, "").await;
    let outbound = outbound_limited(None, Some(0.002));
    let [one, two] = two_at(&paced, &outbound);
    assert_eq!(run_attempt(&one, json!(1)).await, Ok(json!(1)));
    for remote in [&one, &two] {
        let late = run_attempt(remote, json!(1)).await;
        assert_eq!(failure_summary(&late), unsent("TargetBusy"), "it could start only after its deadline");
        let wait_ms = late.unwrap_err().retry_after_ms.unwrap();
        assert!((400_000..=500_000).contains(&wait_ms), "one every 500 seconds: {wait_ms}");
    }
    let [elsewhere, _] = two_at(&other, &outbound);
    assert_eq!(failure_summary(&run_attempt(&elsewhere, json!(1)).await), permanent("Http404"));
    assert_eq!((paced.requests().len(), other.requests().len()), (1, 1));
}

#[tokio::test]
async fn an_activity_that_waits_for_its_own_rate_limit_holds_no_permit_of_its_target() {
    let server = Server::always(200, "1").await;
    let outbound = outbound_limited(Some(1), None);
    let slow = declared(WireFormat::Rest, &http(server.address), json!({"ratePerSecond": 0.002}));
    let (slow, [free, _]) =
        (Arc::new(RemoteActivity::new(slow, &outbound).unwrap()), two_at(&server, &outbound));
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let slow = Arc::clone(&slow);
        let mut call = call(json!(1));
        call.metadata.deadline = None;
        waiting.spawn(async move { result(slow.run_attempt(call).await) });
    }
    assert_eq!(waiting.join_next().await.unwrap().unwrap(), Ok(json!(1)), "the first starts at once");
    for _ in 0..5 {
        assert_eq!(run_attempt(&free, json!(1)).await, Ok(json!(1)));
    }
    assert!(waiting.try_join_next().is_none());
}
