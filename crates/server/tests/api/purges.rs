//! `POST /api/instances/purge`: what is meant, and nothing else.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::world::{World, echo, failed};

/// Runs of `ends` that have ended and of `waits` that live.
async fn peopled(ended: usize, waiting: usize) -> World {
    let world = World::new().await;
    world.publish("ends", &echo()).await;
    world.publish_waiting("waits").await;
    for (workflow, count) in [("ends", ended), ("waits", waiting)] {
        for number in 0..count {
            let start = json!({"workflow": workflow, "instanceId": format!("{workflow}-{number}")});
            assert_eq!(world.post("/api/instances", &start).await.status, 202);
        }
    }
    world.listed("?status=Completed&limit=100", ended).await;
    world.listed("?status=Running&limit=100", waiting).await;
    world
}

async fn purge(world: &World, body: Value) -> Value {
    world.post("/api/instances/purge", &body).await.data()
}

#[tokio::test]
async fn ended_runs_are_forgotten_and_live_ones_are_not() {
    let world = peopled(5, 2).await;
    let all = json!({"createdFrom": "2020-01-01T00:00:00Z", "dryRun": true});
    assert_eq!(purge(&world, all).await, json!({"matched": 5, "purged": 0, "continuationToken": null}));
    let other = json!({"workflow": "ends", "status": ["Failed", "Terminated"]});
    assert_eq!(purge(&world, other).await["matched"], 0);
    let meant = json!({"workflow": "ends", "status": ["Completed"]});
    assert_eq!(purge(&world, meant).await, json!({"matched": 5, "purged": 5, "continuationToken": null}));
    assert_eq!(world.get("/api/instances/ends-0").await.status, 404);
    world.listed("?workflow=ends", 0).await;
    assert_eq!(world.listed("", 2).await.len(), 2);
    assert_eq!(world.get("/api/instances/waits-0").await.data()["status"], "Running");
}

#[tokio::test]
async fn a_later_run_of_the_same_instance_is_not_the_one_that_was_meant() {
    let world = peopled(1, 0).await;
    let first = world.get("/api/instances").await.data()["items"][0].clone();
    let restarted = world.ask(Method::POST, "/api/instances/ends-0/restart", Body::empty()).await.data();
    let second = restarted["createdAtUtc"].as_str().unwrap();
    assert!(second > first["createdAtUtc"].as_str().unwrap(), "the two began in the same millisecond");
    world.listed("?status=Completed", 2).await;
    let meant = json!({"createdTo": second});
    assert_eq!(purge(&world, meant).await, json!({"matched": 1, "purged": 1, "continuationToken": null}));
    world.listed("", 1).await;
    assert_eq!(world.get("/api/instances/ends-0").await.data()["executionId"], "ends-0/2");
}

#[tokio::test]
async fn a_purge_without_a_filter_or_of_what_can_not_be_forgotten_is_refused() {
    let world = World::new().await;
    for (body, target) in [
        (json!({}), ""),
        (json!({"dryRun": false}), ""),
        (json!({"status": []}), "/status"),
        (json!({"status": ["Running"]}), "/status"),
        (json!({"status": "Failed"}), "/status"),
        (json!({"workflow": ""}), "/workflow"),
        (json!({"workflow": "w", "dryRun": 1}), "/dryRun"),
        (json!({"createdTo": "now"}), "/createdTo"),
        (json!({"workflow": "w", "continuationToken": "9."}), "/continuationToken"),
        (json!({"workflow": "w", "continuationToken": "0.x"}), "/continuationToken"),
        (json!({"workflow": "w", "olderThan": "P1D"}), "/olderThan"),
    ] {
        let refused = world.post("/api/instances/purge", &body).await;
        assert_eq!(refused.error(), failed(400, "VALIDATION_ERROR", target), "{body}");
    }
    let reserved = world.post("/api/instances", &json!({"workflow": "w", "instanceId": "purge"})).await;
    assert_eq!(reserved.error(), failed(400, "VALIDATION_ERROR", "/instanceId"));
}

#[tokio::test]
async fn more_than_one_call_can_do_is_done_in_several() {
    let world = peopled(0, 0).await;
    for number in 0..1_100 {
        let start = json!({"workflow": "ends", "instanceId": format!("n{number}")});
        assert_eq!(world.post("/api/instances", &start).await.status, 202);
    }
    let (mut purged, mut calls, mut token) = (0, 0, Value::Null);
    while purged < 1_100 {
        let body = json!({"workflow": "ends", "continuationToken": token});
        let done = purge(&world, body).await;
        assert!(done["matched"].as_u64().unwrap() <= 1_000);
        purged += done["purged"].as_u64().unwrap();
        calls += 1;
        token = done["continuationToken"].clone();
    }
    assert_eq!(purged, 1_100);
    assert!(calls >= 2);
    world.listed("", 0).await;
}
