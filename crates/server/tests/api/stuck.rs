//! `GET /api/stuck`: who has lived for too long, and why; the same after a restart.

use abide_server::Server;
use serde_json::{Value, json};

use crate::server::{ask, config};
use crate::world::{World, definition, failed, waits};

/// A definition that waits for an event, and when its runs are to be called stuck.
fn waiting(id: &str, version: &str, stuck_after: Option<&str>) -> Value {
    let mut definition = definition(id, version, &waits());
    if let Some(stuck_after) = stuck_after {
        definition["configuration"] = json!({"stuckAfter": stuck_after});
    }
    definition
}

impl World {
    async fn begin(&self, workflow: &str, version: &str, id: &str) {
        let start = json!({"workflow": workflow, "version": format!("={version}"), "instanceId": id});
        assert_eq!(self.post("/api/instances", &start).await.status, 202);
    }

    /// The ids of stuck runs, all pages of so many, once there are as many as there should be.
    async fn stuck(&self, limit: usize, count: usize) -> Vec<String> {
        loop {
            let (mut found, mut token) = (Vec::new(), String::new());
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
async fn runs_past_their_time_are_listed_with_what_they_wait_for_until_they_end() {
    let world = World::new().await;
    world.post("/api/workflows", &waiting("late", "1.0.0", Some("PT0.02S"))).await.data();
    world.post("/api/workflows", &waiting("patient", "1.0.0", None)).await.data();
    world.begin("late", "1.0.0", "a").await;
    world.begin("patient", "1.0.0", "b").await;
    assert_eq!(world.stuck(50, 1).await, ["a"]);
    let item = world.get("/api/stuck").await.data()["items"][0].clone();
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
    // A run that stands still by order has lived for as long.
    assert_eq!(world.post("/api/instances/a/suspend", &json!({})).await.status, 202);
    assert_eq!(world.stuck(50, 1).await, ["a"]);
    assert_eq!(world.post("/api/instances/a/resume", &json!({})).await.status, 202);
    assert_eq!(world.post("/api/instances/a/events/Go", &json!(1)).await.status, 202);
    // The truth is asked for each: what has ended is gone at once, before its public row is.
    assert_eq!(world.get("/api/stuck").await.data()["items"], json!([]));
}

#[tokio::test]
async fn every_version_has_its_own_time_and_pages_lead_through_all_definitions() {
    let world = World::new().await;
    for (id, version, after) in [
        ("p", "1.0.0", Some("PT0.02S")),
        ("p", "2.0.0", Some("P1D")),
        ("q", "1.0.0", None),
        ("r", "1.0.0", Some("PT0.02S")),
    ] {
        assert_eq!(world.post("/api/workflows", &waiting(id, version, after)).await.status, 201);
    }
    for number in 0..5 {
        world.begin("p", "1.0.0", &format!("p{number}")).await;
        world.begin("p", "2.0.0", &format!("x{number}")).await;
        world.begin("q", "1.0.0", &format!("y{number}")).await;
        world.begin("r", "1.0.0", &format!("r{number}")).await;
    }
    let whole = world.stuck(100, 10).await;
    assert_eq!(whole[..5], ["p0", "p1", "p2", "p3", "p4"]);
    assert_eq!(whole[5..], ["r0", "r1", "r2", "r3", "r4"]);
    for limit in [1, 3] {
        assert_eq!(world.stuck(limit, 10).await, whole, "{limit}");
    }
}

#[tokio::test]
async fn a_token_of_somebody_else_is_refused() {
    let world = World::new().await;
    for token in ["x", "0.0.cA.x"] {
        world.post("/api/workflows", &waiting("p", "1.0.0", Some("PT0.02S"))).await;
        let refused = world.get(&format!("/api/stuck?continuationToken={token}")).await;
        assert_eq!(refused.error(), failed(400, "VALIDATION_ERROR", "continuationToken"), "{token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_stuck_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let late = waiting("late", "1.0.0", Some("PT0.02S")).to_string();
    assert_eq!(ask(server.address(), "POST", "/api/workflows", &late).await.0, 201);
    let start = json!({"workflow": "late", "instanceId": "a"}).to_string();
    assert_eq!(ask(server.address(), "POST", "/api/instances", &start).await.0, 202);
    server.stop().await;
    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    loop {
        let (_, page) = ask(server.address(), "GET", "/api/stuck", "").await;
        if page["data"]["items"][0]["instanceId"] == "a" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    server.stop().await;
}
