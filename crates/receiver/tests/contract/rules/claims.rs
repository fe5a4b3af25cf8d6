//! Who may be at a piece of work, and until when.

use std::time::Duration;

use abide_dispatch::Metadata;
use abide_receiver::Options;
use abide_store::memory::Personality;
use serde_json::json;

use crate::store::SlowStore;
use crate::wires::{Sent, Wire};
use crate::world::{NOW, World, metadata, work};

pub(crate) async fn a_concurrent_duplicate_is_told_that_it_is_in_progress(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "wait"}));
    let first = world.sending(wire, &sent);
    world.one_waits().await;
    for other in Wire::ALL {
        let told = world.send(other, &sent).await;
        assert_eq!((told.http, told.refusal()), (409, ("ABORTED", "IN_PROGRESS")));
    }
    world.does.go.add_permits(1);
    let first = first.await.unwrap();
    assert_eq!(first.output(), json!({"ran": 1}));
    assert_eq!(world.send(wire, &sent).await, first);
}

pub(crate) async fn of_many_concurrent_duplicates_one_runs(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "wait"}));
    world.does.go.add_permits(1_000);
    let all: Vec<_> = (0..64).map(|_| world.sending(wire, &sent)).collect();
    for one in all {
        match one.await.unwrap().answer {
            Ok(output) => assert_eq!(output, br#"{"ran":1}"#.as_slice()),
            Err(status) => assert_eq!(status.reason.as_deref(), Some("IN_PROGRESS")),
        }
    }
    assert_eq!(world.ran(), 1);
}

pub(crate) async fn a_restart_makes_the_claims_of_the_dead_void(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "wait"}));
    let dead = world.sending(wire, &sent);
    world.one_waits().await;
    let restarted = world.restarted().await;
    // The first claim of each start has the same number.
    let other = restarted.sending(wire, &work("other", json!({"do": "wait"})));
    restarted.one_waits().await;
    let told = restarted.sending(wire, &sent);
    restarted.one_waits().await;
    assert_eq!(restarted.send(wire, &sent).await.refusal().1, "IN_PROGRESS", "a claim of its own holds");
    restarted.does.go.add_permits(3);
    let (dead, told) = (dead.await.unwrap(), told.await.unwrap());
    assert!(other.await.unwrap().answer.is_ok());
    assert_eq!(told.output(), json!({"ran": 3}));
    // Here the dead one lives on, which a real one does not: it must not record anything.
    assert_eq!((dead.http, dead.refusal()), (409, ("ABORTED", "CLAIM_LOST")));
    assert_eq!(restarted.send(wire, &sent).await, told);
}

pub(crate) async fn a_claim_that_has_ended_may_be_taken_over_and_its_first_holder_records_nothing(
    wire: Wire,
) {
    for deadline in [None, Some(NOW + 1_000)] {
        let world = World::new().await;
        let of = |deadline_epoch_ms| Metadata { deadline_epoch_ms, ..metadata("k") };
        let first = Sent::new("work", &of(deadline), &json!({"do": "wait"}));
        let first = world.sending(wire, &first);
        world.one_waits().await;
        let again = Sent::new("work", &of(None), &json!({"do": "wait"}));
        world.pass(if deadline.is_some() { 999 } else { 10 * 60 * 1_000 - 1 });
        assert_eq!(world.send(wire, &again).await.refusal().1, "IN_PROGRESS", "it has not ended yet");
        world.pass(1);
        let second = world.sending(wire, &again);
        world.one_waits().await;
        world.does.go.add_permits(1);
        assert_eq!(first.await.unwrap().refusal(), ("ABORTED", "CLAIM_LOST"));
        world.does.go.add_permits(1);
        let second = second.await.unwrap();
        assert_eq!(second.output(), json!({"ran": 2}));
        assert_eq!(world.send(wire, &again).await, second);
    }
}

pub(crate) async fn a_caller_who_goes_away_does_not_stop_the_work(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "wait"}));
    let gone = world.sending(wire, &sent);
    world.one_waits().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(world.send(wire, &sent).await.refusal().1, "IN_PROGRESS");
    world.does.go.add_permits(1);
    world.receiver.drain().await;
    assert_eq!(world.send(wire, &sent).await.output(), json!({"ran": 1}));
    assert_eq!(world.ran(), 1);
}

pub(crate) async fn too_much_at_once_is_refused_and_nothing_is_recorded(wire: Wire) {
    let options = Options { running_max: 2, ..Options::default() };
    let world = World::with(SlowStore::new(Personality::PLAIN), options).await;
    let running = ["a", "b"].map(|key| world.sending(wire, &work(key, json!({"do": "wait"}))));
    world.one_waits().await;
    world.one_waits().await;
    let told = world.send(wire, &work("c", json!({}))).await;
    assert_eq!((told.http, told.refusal()), (429, ("RESOURCE_EXHAUSTED", "TOO_MANY_RUNNING")));
    assert_eq!(told.failure().retry_after_ms, Some(1_000));
    world.does.go.add_permits(2);
    for one in running {
        assert!(one.await.unwrap().answer.is_ok());
    }
    assert_eq!(world.send(wire, &work("c", json!({}))).await.output()["ran"], 3);
}

pub(crate) async fn a_receiver_that_stops_ends_what_it_began_and_takes_nothing_new(wire: Wire) {
    let world = World::new().await;
    let done = world.send(wire, &work("done", json!({}))).await;
    let running = world.sending(wire, &work("k", json!({"do": "wait"})));
    world.one_waits().await;
    let receiver = world.receiver.clone();
    let drained = tokio::spawn(async move { receiver.drain().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!drained.is_finished(), "one is still running");
    let told = world.send(wire, &work("new", json!({}))).await;
    assert_eq!((told.http, told.refusal()), (503, ("UNAVAILABLE", "STOPPING")));
    assert_eq!(world.send(wire, &work("done", json!({}))).await, done, "what is known is told");
    world.does.go.add_permits(1);
    assert!(running.await.unwrap().answer.is_ok());
    drained.await.unwrap();
}
