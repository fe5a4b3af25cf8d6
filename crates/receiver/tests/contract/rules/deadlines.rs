//! The deadline is absolute, and looked at once: before work begins.

use abide_dispatch::Metadata;
use serde_json::json;

use crate::wires::{Sent, Wire};
use crate::world::{NOW, World, metadata, work};

fn until(deadline: i64, what: &str) -> Sent {
    let metadata = Metadata { deadline_epoch_ms: Some(deadline), ..metadata("k") };
    Sent::new("work", &metadata, &json!({"do": what}))
}

pub(crate) async fn an_expired_deadline_is_refused_and_nothing_is_recorded(wire: Wire) {
    let world = World::new().await;
    for deadline in [NOW, NOW - 1, 0] {
        let told = world.send(wire, &until(deadline, "")).await;
        assert_eq!((told.http, told.refusal()), (504, ("DEADLINE_EXCEEDED", "DEADLINE_EXPIRED")));
    }
    assert_eq!(world.ran(), 0);
    assert_eq!(world.send(wire, &until(NOW, "").probe()).await.refusal().1, "WORK_UNKNOWN");
    assert_eq!(world.send(wire, &until(NOW + 1, "")).await.output()["ran"], 1);
}

pub(crate) async fn without_a_deadline_there_is_no_guard(wire: Wire) {
    let world = World::new().await;
    world.pass(i64::MAX - NOW - 1);
    assert_eq!(world.send(wire, &work("k", json!({}))).await.output()["ran"], 1);
}

pub(crate) async fn finished_work_is_answered_after_its_deadline(wire: Wire) {
    let world = World::new().await;
    let first = world.send(wire, &until(NOW + 1, "")).await;
    world.pass(1_000);
    assert_eq!(world.send(wire, &until(NOW + 1, "")).await, first);
}

pub(crate) async fn work_in_progress_is_told_before_its_deadline_is_looked_at(wire: Wire) {
    let world = World::new().await;
    let first = world.sending(wire, &work("k", json!({"do": "wait"})));
    world.one_waits().await;
    assert_eq!(world.send(wire, &until(NOW, "wait")).await.refusal(), ("ABORTED", "IN_PROGRESS"));
    world.does.go.add_permits(1);
    assert!(first.await.unwrap().answer.is_ok());
}
