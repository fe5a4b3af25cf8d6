//! `GET /api/stuck`: runs older than their `stuckAfter`, and what they wait for; also after a restart.

use abide_server::Server;
use serde_json::{Value, json};

use crate::server::{config, http_request};
use crate::test_api::{TestApi, definition, failed, waits_for_event};

/// A definition that waits for an event, with this `stuckAfter`.
fn waiting(id: &str, version: &str, stuck_after: Option<&str>) -> Value {
    let mut definition = definition(id, version, &waits_for_event());
    if let Some(stuck_after) = stuck_after {
        definition["configuration"] = json!({"stuckAfter": stuck_after});
    }
    definition
}

impl TestApi {
    async fn begin(&self, workflow: &str, version: &str, id: &str) {
        let start = json!({"workflow": workflow, "version": format!("={version}"), "instanceId": id});
        assert_eq!(self.post("/api/instances", &start).await.status, 202);
    }

    /// The ids of stuck runs of all pages of this size, once there are `count` of them.
    async fn stuck(&self, limit: usize, count: usize) -> Vec<String> {
        loop {
            let mut found = Vec::new();
            let mut token = String::new();
            loop {
                let page = self.get(&format!("/api/stuck?limit={limit}{token}")).await.data();
                let items = page["items"].as_array().unwrap();
                assert!(items.len() <= limit);
                found.extend(items.iter().map(|item| item["instanceId"].as_str().unwrap().to_owned()));
                let Some(next) = page["continuationToken"].as_str() else { break };
                token = format!("&continuationToken={next}");
            }
            if found.len() == count {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn stuck_runs_are_listed_with_what_they_wait_for_until_they_end() {
    let api = TestApi::new().await;
    api.post("/api/workflows", &waiting("late", "1.0.0", Some("PT0.02S"))).await.data();
    api.post("/api/workflows", &waiting("patient", "1.0.0", None)).await.data();
    api.begin("late", "1.0.0", "a").await;
    api.begin("patient", "1.0.0", "b").await;
    assert_eq!(api.stuck(50, 1).await, ["a"]);
    let item = api.get("/api/stuck").await.data()["items"][0].clone();
    assert_eq!(
        (&item["executionId"], &item["workflow"], &item["version"], &item["status"]),
        (&json!("a/1"), &json!("late"), &json!("1.0.0"), &json!("Running"))
    );
    let waits = &item["waitingFor"][0];
    assert_eq!(
        (&waits["state"], &waits["kind"], &waits["event"]),
        (&json!("Begin"), &json!("event"), &json!("Go"))
    );
    assert!(item["stuckForSeconds"].as_u64().unwrap() < 60 && waits["since"].is_string());
    // A suspended run is stuck just as well.
    assert_eq!(api.post("/api/instances/a/suspend", &json!({})).await.status, 202);
    assert_eq!(api.stuck(50, 1).await, ["a"]);
    assert_eq!(api.post("/api/instances/a/resume", &json!({})).await.status, 202);
    assert_eq!(api.post("/api/instances/a/events/Go", &json!(1)).await.status, 202);
    // Each run is checked in its shard: an ended run is no longer listed, even before its public row is updated.
    assert_eq!(api.get("/api/stuck").await.data()["items"], json!([]));
}

#[tokio::test]
async fn every_version_has_its_own_stuck_after_and_pages_cover_all_definitions() {
    let api = TestApi::new().await;
    for (id, version, after) in [
        ("p", "1.0.0", Some("PT0.02S")),
        ("p", "2.0.0", Some("P1D")),
        ("q", "1.0.0", None),
        ("r", "1.0.0", Some("PT0.02S")),
    ] {
        assert_eq!(api.post("/api/workflows", &waiting(id, version, after)).await.status, 201);
    }
    for number in 0..5 {
        api.begin("p", "1.0.0", &format!("p{number}")).await;
        api.begin("p", "2.0.0", &format!("x{number}")).await;
        api.begin("q", "1.0.0", &format!("y{number}")).await;
        api.begin("r", "1.0.0", &format!("r{number}")).await;
    }
    let whole = api.stuck(100, 10).await;
    assert_eq!(whole[..5], ["p0", "p1", "p2", "p3", "p4"]);
    assert_eq!(whole[5..], ["r0", "r1", "r2", "r3", "r4"]);
    for limit in [1, 3] {
        assert_eq!(api.stuck(limit, 10).await, whole, "{limit}");
    }
}

#[tokio::test]
async fn a_forged_token_is_rejected() {
    let api = TestApi::new().await;
    for token in ["x", "0.0.cA.x"] {
        api.post("/api/workflows", &waiting("p", "1.0.0", Some("PT0.02S"))).await;
        let rejected = api.get(&format!("/api/stuck?continuationToken={token}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", "continuationToken"), "{token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_runs_are_listed_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let late = waiting("late", "1.0.0", Some("PT0.02S")).to_string();
    assert_eq!(http_request(server.address(), "POST", "/api/workflows", &late).await.0, 201);
    let start = json!({"workflow": "late", "instanceId": "a"}).to_string();
    assert_eq!(http_request(server.address(), "POST", "/api/instances", &start).await.0, 202);
    server.stop().await;
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    loop {
        let (_, page) = http_request(server.address(), "GET", "/api/stuck", "").await;
        if page["data"]["items"][0]["instanceId"] == "a" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    server.stop().await;
}
