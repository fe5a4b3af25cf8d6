//! A probe asks what a duplicate would be told, and does nothing.

use serde_json::json;

use crate::wires::{Sent, Wire};
use crate::world::{World, metadata, work};

pub(crate) async fn a_probe_never_runs_anything(wire: Wire) {
    let world = World::new().await;
    for sent in [work("k", json!({})), Sent::new("nobody", &metadata("k"), &json!({}))] {
        let told = world.send(wire, &sent.probe()).await;
        assert_eq!((told.http, told.refusal()), (404, ("NOT_FOUND", "WORK_UNKNOWN")));
    }
    assert_eq!(world.ran(), 0);
    let failing = work("k", json!({"do": "fail", "status": "UNAVAILABLE"}));
    world.send(wire, &failing).await;
    assert_eq!(world.send(wire, &failing.probe()).await.refusal().1, "WORK_UNKNOWN", "it may run again");
    assert_eq!(world.ran(), 1);
}

pub(crate) async fn a_probe_answers_like_a_duplicate(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "wait"}));
    let first = world.sending(wire, &sent);
    world.one_waits().await;
    let told = world.send(wire, &sent.clone().probe()).await;
    assert_eq!((told.http, told.refusal()), (409, ("ABORTED", "IN_PROGRESS")));
    let left_behind = world.restarted().await.send(wire, &sent.clone().probe()).await;
    assert_eq!(left_behind.refusal().1, "WORK_UNKNOWN", "nobody is at it");
    world.does.go.add_permits(1);
    assert_eq!(first.await.unwrap(), world.send(wire, &sent.probe()).await);
    let wrong = work("l", json!({"do": "fail", "status": "NOT_FOUND"}));
    assert_eq!(world.send(wire, &wrong).await, world.send(wire, &wrong.clone().probe()).await);
    assert_eq!(world.ran(), 2);
}
