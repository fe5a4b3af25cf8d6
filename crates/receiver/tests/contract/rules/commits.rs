//! What becomes durable together, and what happens when the store does not play along.

use abide_receiver::Options;
use abide_store::memory::{Faults, Personality};
use abide_store::rows::{Key, Partition};
use serde_json::json;

use crate::store::SlowStore;
use crate::wires::{Sent, Wire};
use crate::world::{World, metadata, work};

/// The commit of the answer is lost: neither the answer nor the effect is there, and the next attempt has both.
pub(crate) async fn an_effect_and_its_answer_are_one_commit(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "add", "unknown": false}));
    let told = world.send(wire, &sent).await;
    assert_eq!((told.http, told.refusal()), (503, ("UNAVAILABLE", "OUTCOME_UNKNOWN")));
    assert_eq!((world.ran(), world.effects().await), (1, 0));
    assert_eq!(world.send(wire, &sent).await.output(), json!({"ran": 2}));
    assert_eq!(world.effects().await, 1);
    // What cannot be written is refused with its answer.
    let refused = work("l", json!({"do": "add", "bytes": 5 * 1024 * 1024}));
    let told = world.send(wire, &refused).await;
    assert_eq!((told.http, told.refusal()), (412, ("FAILED_PRECONDITION", "EFFECT_REFUSED")));
    assert_eq!(world.send(wire, &refused).await, told);
    assert_eq!((world.ran(), world.effects().await), (3, 1));
}

pub(crate) async fn an_answer_whose_commit_is_unknown_is_found_or_made_again(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "add", "unknown": true}));
    assert_eq!(world.send(wire, &sent).await.refusal(), ("UNAVAILABLE", "OUTCOME_UNKNOWN"));
    assert_eq!(world.send(wire, &sent).await.output(), json!({"ran": 1}), "it was recorded");
    assert_eq!((world.ran(), world.effects().await), (1, 1));
    // The claim's own commit: nothing has run, and nobody has to wait for a claim that nobody holds.
    for applied in [true, false] {
        let key = format!("claim-{applied}");
        world.store.make_next_commit_unknown(applied);
        let sent = work(&key, json!({}));
        assert_eq!(world.send(wire, &sent).await.refusal().1, "STORE_UNAVAILABLE");
        assert!(world.send(wire, &sent).await.answer.is_ok());
    }
    assert_eq!(world.ran(), 3);
}

pub(crate) async fn an_effect_that_conflicts_is_not_written_and_may_be_tried_again(wire: Wire) {
    let world = World::new().await;
    assert!(world.send(wire, &work("k", json!({"do": "clash"}))).await.answer.is_ok());
    for _ in 0..2 {
        let told = world.send(wire, &work("l", json!({"do": "clash"}))).await;
        assert_eq!((told.http, told.refusal()), (409, ("ABORTED", "EFFECT_CONFLICT")));
        assert_eq!(world.rows(), 2, "the first one's answer, and no claim");
    }
    assert_eq!((world.ran(), world.effects().await), (3, 1));
}

/// The conformance activity counts its failures, too.
pub(crate) async fn effects_of_a_retryable_failure_are_kept(wire: Wire) {
    let world = World::new().await;
    let ask = |key: &str, input| Sent::new("conformance", &metadata(key), &input);
    let failing = json!({"op": "fail", "tag": "t", "status": "UNAVAILABLE", "times": 2});
    for _ in 0..2 {
        let told = world.send(wire, &ask("k", failing.clone())).await;
        assert_eq!((told.http, told.refusal()), (503, ("UNAVAILABLE", "CONFORMANCE")));
    }
    for _ in 0..2 {
        assert_eq!(world.send(wire, &ask("k", failing.clone())).await.output(), json!({"runs": 3}));
    }
    let count = |key| ask(key, json!({"op": "count", "tag": "t"}));
    assert_eq!(world.send(wire, &count("c")).await.output(), json!({"runs": 3}));
    let final_failure = json!({"op": "fail", "tag": "t", "status": "NOT_FOUND", "times": 9});
    for _ in 0..2 {
        assert_eq!(
            world.send(wire, &ask("l", final_failure.clone())).await.refusal(),
            ("NOT_FOUND", "CONFORMANCE")
        );
    }
    assert_eq!(world.send(wire, &count("d")).await.output(), json!({"runs": 4}));
    let told = world.send(wire, &ask("w", json!({"op": "wait", "tag": "t", "ms": 30_000}))).await;
    assert_eq!(told.output(), json!({"runs": 5}));
    let told = world.send(wire, &ask("e", json!({"op": "echo", "value": [1, null]}))).await;
    assert_eq!(told.output(), json!({"value": [1, null]}));
    for wrong in [
        json!({}),
        json!({"op": "else"}),
        json!({"op": "run"}),
        json!({"op": "run", "tag": ""}),
        json!({"op": "wait", "tag": "t", "ms": 30_001}),
        json!({"op": "fail", "tag": "t", "status": "OK", "times": 1}),
        json!({"op": "echo"}),
    ] {
        let told = world.send(wire, &ask(&wrong.to_string(), wrong.clone())).await;
        assert_eq!(told.failure().code.name(), "INVALID_ARGUMENT", "{wrong}");
    }
}

pub(crate) async fn whatever_the_store_does_every_effect_is_there_once(wire: Wire) {
    for seed in 0..20 {
        let faults = Faults { seed, conflict: 100, unavailable: 150, unknown: 150 };
        let store = SlowStore::new(Personality { faults: Some(faults), ..Personality::AZURE });
        let world = World::with(store, Options::default()).await;
        for key in ["a", "b", "c", "d"] {
            let sent = work(key, json!({"do": "add"}));
            let mut told = world.send(wire, &sent).await;
            for _ in 0..200 {
                if told.answer.is_ok() {
                    break;
                }
                assert!(told.failure().code.is_retryable(), "seed {seed}: {told:?}");
                told = world.send(wire, &sent).await;
            }
            assert!(told.answer.is_ok(), "seed {seed}");
        }
        let mut entries = None;
        for _ in 0..100 {
            entries = entries.or(world.entries().await);
        }
        assert_eq!(entries, Some(4), "seed {seed}: one entry per key, however often it ran: {}", world.ran());
    }
}

pub(crate) async fn a_damaged_record_is_never_guessed_around(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({}));
    assert!(world.send(wire, &sent).await.answer.is_ok());
    let partition = Partition::new("receiver").unwrap();
    world.store.damage(&partition, Key::new([2]), Key::new([2, 0xff, 0xff]));
    let told = world.send(wire, &sent).await;
    assert_eq!((told.http, told.refusal()), (500, ("DATA_LOSS", "RECORD_DAMAGED")));
    assert_eq!(world.ran(), 1);
}
