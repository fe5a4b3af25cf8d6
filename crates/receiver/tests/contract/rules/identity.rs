//! What is the same piece of work, and what a duplicate of it gets.

use abide_dispatch::Metadata;
use serde_json::{Value, json};

use crate::wires::{Sent, Wire};
use crate::world::{World, metadata, work};

pub(crate) async fn a_duplicate_of_finished_work_gets_the_recorded_answer_byte_for_byte(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({}));
    let first = world.send(wire, &sent).await;
    assert_eq!(first.output(), json!({"ran": 1, "z": 1, "a": 2}));
    for attempt in 1..4 {
        let metadata = Metadata { retry_attempt: attempt, ..metadata("k") };
        let again = Sent::new("work", &metadata, &json!({}));
        assert_eq!(world.send(wire, &again).await, first);
    }
    assert_eq!(world.restarted().await.send(wire, &sent).await, first, "after a restart too");
    assert_eq!(world.ran(), 1);
}

pub(crate) async fn a_duplicate_over_another_wire_gets_the_same_answer(wire: Wire) {
    let world = World::new().await;
    let (fine, wrong) = (work("k", json!({})), work("l", json!({"do": "fail", "status": "NOT_FOUND"})));
    let first = (world.send(wire, &fine).await, world.send(wire, &wrong).await);
    for other in Wire::ALL {
        assert_eq!((world.send(other, &fine).await, world.send(other, &wrong).await), first, "{other:?}");
    }
    assert_eq!(world.ran(), 2);
}

pub(crate) async fn the_same_key_under_another_execution_is_new_work(wire: Wire) {
    let world = World::new().await;
    for run in 1..=3 {
        let metadata = Metadata { execution_id: format!("device-7/{run}"), ..metadata("k") };
        let told = world.send(wire, &Sent::new("work", &metadata, &json!({}))).await;
        assert_eq!(told.output()["ran"], run);
    }
}

pub(crate) async fn the_same_key_for_another_activity_is_new_work(wire: Wire) {
    let world = World::new().await;
    for (runs, activity) in [(1, "work"), (2, "other"), (2, "other"), (1, "work")] {
        let told = world.send(wire, &Sent::new(activity, &metadata("k"), &json!({}))).await;
        assert_eq!(told.output()["ran"], runs);
    }
}

/// The key says what is the same; a sender that sends something else under it has made a mistake that only it can see.
pub(crate) async fn what_came_with_a_duplicate_is_not_looked_at(wire: Wire) {
    let world = World::new().await;
    let first = world.send(wire, &work("k", json!({}))).await;
    assert_eq!(world.send(wire, &work("k", json!({"do": "fail", "status": "ABORTED"}))).await, first);
    assert_eq!(world.ran(), 1);
}

pub(crate) async fn without_metadata_equal_bodies_are_one_piece_of_work(wire: Wire) {
    let world = World::new().await;
    let bare = |input: Value| Sent { metadata: Vec::new(), ..work("", input) };
    let first = world.send(wire, &bare(json!({"n": 1}))).await;
    assert_eq!(world.send(wire, &bare(json!({"n": 1}))).await, first);
    assert_eq!(world.send(wire, &bare(json!({"n": 2}))).await.output()["ran"], 2);
    let other = Sent { activity: "other".to_owned(), ..bare(json!({"n": 1})) };
    assert_eq!(world.send(wire, &other).await.output()["ran"], 3);
    let seen = world.does.seen.lock().unwrap().clone();
    assert_eq!(seen[0], Metadata::of_body("work", br#"{"n":1}"#));
}

pub(crate) async fn all_seven_keys_reach_the_handler_as_they_were_sent(wire: Wire) {
    let world = World::new().await;
    let full = Metadata {
        correlation_id: "order 7 ~!".to_owned(),
        retry_attempt: 4_294_967_295,
        deadline_epoch_ms: Some(i64::MAX),
        dispatched_at_epoch_ms: 0,
        parent_item_id: Some("item-3".to_owned()),
        ..metadata("k")
    };
    world.send(wire, &Sent::new("work", &full, &json!({}))).await;
    let seen = world.does.seen.lock().unwrap().clone();
    assert_eq!(seen, [full]);
}
