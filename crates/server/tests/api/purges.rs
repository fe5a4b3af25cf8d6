//! `POST /api/instances/purge`: purges the matching runs and nothing else.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::test_api::{TestApi, echo, failed};

/// A server with ended runs of `ends` and live runs of `waits`.
async fn world_with_runs(ended: usize, waiting: usize) -> TestApi {
    let api = TestApi::new().await;
    api.publish("ends", &echo()).await;
    api.publish_waiting("waits").await;
    for (workflow, count) in [("ends", ended), ("waits", waiting)] {
        for number in 0..count {
            let start = json!({"workflow": workflow, "instanceId": format!("{workflow}-{number}")});
            assert_eq!(api.post("/api/instances", &start).await.status, 202);
        }
    }
    api.list_ids("?status=Completed&limit=100", ended).await;
    api.list_ids("?status=Running&limit=100", waiting).await;
    api
}

async fn purge(api: &TestApi, body: Value) -> Value {
    api.post("/api/instances/purge", &body).await.data()
}

#[tokio::test]
async fn ended_runs_are_purged_and_live_ones_are_not() {
    let api = world_with_runs(5, 2).await;
    let all = json!({"createdFrom": "2020-01-01T00:00:00Z", "dryRun": true});
    assert_eq!(purge(&api, all).await, json!({"matched": 5, "purged": 0, "continuationToken": null}));
    let other = json!({"workflow": "ends", "status": ["Failed", "Terminated"]});
    assert_eq!(purge(&api, other).await["matched"], 0);
    let filter = json!({"workflow": "ends", "status": ["Completed"]});
    assert_eq!(purge(&api, filter).await, json!({"matched": 5, "purged": 5, "continuationToken": null}));
    assert_eq!(api.get("/api/instances/ends-0").await.status, 404);
    api.list_ids("?workflow=ends", 0).await;
    assert_eq!(api.list_ids("", 2).await.len(), 2);
    assert_eq!(api.get("/api/instances/waits-0").await.data()["status"], "Running");
}

#[tokio::test]
async fn a_later_run_of_the_same_instance_is_not_purged() {
    let api = world_with_runs(1, 0).await;
    let first = api.get("/api/instances").await.data()["items"][0].clone();
    let restarted = api.request(Method::POST, "/api/instances/ends-0/restart", Body::empty()).await.data();
    let second = restarted["createdAtUtc"].as_str().unwrap();
    assert!(second > first["createdAtUtc"].as_str().unwrap(), "the two began in the same millisecond");
    api.list_ids("?status=Completed", 2).await;
    let filter = json!({"createdTo": second});
    assert_eq!(purge(&api, filter).await, json!({"matched": 1, "purged": 1, "continuationToken": null}));
    api.list_ids("", 1).await;
    assert_eq!(api.get("/api/instances/ends-0").await.data()["executionId"], "ends-0/2");
}

#[tokio::test]
async fn a_purge_without_a_filter_or_with_an_invalid_one_is_rejected() {
    let api = TestApi::new().await;
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
        let rejected = api.post("/api/instances/purge", &body).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", target), "{body}");
    }
    let reserved = api.post("/api/instances", &json!({"workflow": "w", "instanceId": "purge"})).await;
    assert_eq!(reserved.error(), failed(400, "VALIDATION_ERROR", "/instanceId"));
}

#[tokio::test]
async fn a_large_purge_takes_several_requests() {
    let api = world_with_runs(0, 0).await;
    for number in 0..1_100 {
        let start = json!({"workflow": "ends", "instanceId": format!("n{number}")});
        assert_eq!(api.post("/api/instances", &start).await.status, 202);
    }
    let mut purged = 0;
    let mut calls = 0;
    let mut token = Value::Null;
    while purged < 1_100 {
        let body = json!({"workflow": "ends", "continuationToken": token});
        let done = purge(&api, body).await;
        assert!(done["matched"].as_u64().unwrap() <= 1_000);
        purged += done["purged"].as_u64().unwrap();
        calls += 1;
        token = done["continuationToken"].clone();
    }
    assert_eq!(purged, 1_100);
    assert!(calls >= 2);
    api.list_ids("", 0).await;
}
