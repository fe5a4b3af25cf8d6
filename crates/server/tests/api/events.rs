//! Events and orders, and forgetting.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::world::{World, failed};

async fn begun(world: &World, id: &str) {
    let accepted = world.post("/api/instances", &json!({"workflow": "w", "instanceId": id})).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
}

/// A waiting world with one run.
async fn waiting(id: &str) -> World {
    let world = World::new().await;
    world.publish_waiting("w").await;
    begun(&world, id).await;
    world
}

async fn status(world: &World, id: &str) -> Value {
    world.get(&format!("/api/instances/{id}")).await.data()["status"].clone()
}

async fn order(world: &World, id: &str, what: &str) -> (u16, String, String) {
    let answer = world.ask(Method::POST, &format!("/api/instances/{id}/{what}"), Body::empty()).await;
    if answer.status.is_success() {
        assert_eq!(answer.data()["instanceId"], id);
        return (answer.status.as_u16(), String::new(), String::new());
    }
    answer.error()
}

fn accepted() -> (u16, String, String) {
    failed(202, "", "")
}

#[tokio::test]
async fn an_event_is_taken_by_the_run_that_waits_and_refused_by_one_that_has_ended() {
    let world = waiting("i").await;
    let raised = world.post("/api/instances/i/events/Go", &json!({"by": "me"})).await;
    assert_eq!((raised.status.as_u16(), raised.data()), (202, json!({"instanceId": "i"})));
    let shown = world.get("/api/instances/i").await.data();
    assert_eq!((&shown["status"], &shown["output"]), (&json!("Completed"), &json!({"by": "me"})));
    assert_eq!(order(&world, "i", "events/Go").await, failed(409, "CONFLICT", ""));
    assert_eq!(order(&world, "none", "events/Go").await, failed(404, "RESOURCE_NOT_FOUND", ""));
}

#[tokio::test]
async fn an_event_without_a_body_brings_null() {
    let world = waiting("i").await;
    assert_eq!(order(&world, "i", "events/go").await, accepted());
    let shown = world.get("/api/instances/i").await.data();
    assert_eq!((&shown["status"], &shown["output"]), (&json!("Completed"), &Value::Null));
}

#[tokio::test]
async fn a_suspended_run_holds_its_events_until_it_is_resumed() {
    let world = waiting("i").await;
    assert_eq!(order(&world, "i", "resume").await, failed(409, "CONFLICT", ""));
    let suspended = world.post("/api/instances/i/suspend", &json!({"reason": "an audit"})).await;
    assert_eq!(suspended.status, 202);
    assert_eq!(status(&world, "i").await, "Suspended");
    assert_eq!(order(&world, "i", "events/Go").await, accepted());
    assert_eq!(status(&world, "i").await, "Suspended");
    assert_eq!(order(&world, "i", "resume").await, accepted());
    assert_eq!(status(&world, "i").await, "Completed");
    let history = world.get("/api/instances/i/history").await;
    assert!(history.text.contains("an audit"), "{}", history.text);
}

#[tokio::test]
async fn a_run_is_terminated_restarted_and_forgotten() {
    let world = waiting("i").await;
    assert_eq!(order(&world, "i", "restart").await, failed(409, "CONFLICT", ""));
    assert_eq!(
        world.ask(Method::DELETE, "/api/instances/i", Body::empty()).await.error(),
        failed(409, "CONFLICT", "")
    );
    assert_eq!(order(&world, "i", "terminate").await, accepted());
    assert_eq!(status(&world, "i").await, "Terminated");
    assert_eq!(order(&world, "i", "terminate").await, failed(409, "CONFLICT", ""));
    assert_eq!(order(&world, "i", "rewind").await, failed(409, "CONFLICT", ""));

    let restarted = world.ask(Method::POST, "/api/instances/i/restart", Body::empty()).await;
    assert_eq!((restarted.status.as_u16(), &restarted.data()["executionId"]), (202, &json!("i/2")));
    assert_eq!(restarted.headers["location"], "/api/instances/i");
    assert_eq!(status(&world, "i").await, "Running");

    assert_eq!(order(&world, "i", "terminate").await, accepted());
    let purged = world.ask(Method::DELETE, "/api/instances/i", Body::empty()).await;
    assert_eq!((purged.status.as_u16(), purged.data()), (200, json!({"instanceId": "i"})));
    for path in ["/api/instances/i", "/api/instances/i/history"] {
        assert_eq!(world.get(path).await.error(), failed(404, "RESOURCE_NOT_FOUND", ""), "{path}");
    }
}

#[tokio::test]
async fn a_failed_run_is_rewound_to_the_state_that_failed() {
    let world = World::new().await;
    let fail = json!({
        "Begin": {
            "type": "task", "activity": "core.fail", "input": {"times": 1, "retryable": false},
            "output": "$.state.out", "next": "Done",
        },
        "Done": {"type": "succeed", "output": "$.state.out"},
    });
    assert_eq!(world.publish("w", &fail).await.status, 201);
    let ended = world.post("/api/instances?wait=PT30S", &json!({"workflow": "w", "instanceId": "i"})).await;
    assert_eq!((ended.status.as_u16(), &ended.data()["status"]), (200, &json!("Failed")));
    assert_eq!(ended.data()["error"]["state"], "Begin");
    assert_eq!(order(&world, "i", "rewind").await, accepted());
}

#[tokio::test]
async fn names_and_orders_that_are_none_are_refused() {
    let world = waiting("i").await;
    let long = format!("events/{}", "a".repeat(129));
    for (path, expected) in [
        ("events/a%0Ab", failed(400, "VALIDATION_ERROR", "name")),
        (long.as_str(), failed(400, "VALIDATION_ERROR", "name")),
        ("events/%ff", failed(400, "VALIDATION_ERROR", "")),
        ("explode", failed(404, "RESOURCE_NOT_FOUND", "")),
    ] {
        assert_eq!(order(&world, "i", path).await, expected, "{path}");
    }
    assert_eq!(
        world.get("/api/instances/a%2Fb").await.error(),
        failed(400, "VALIDATION_ERROR", "instanceId")
    );
    let unknown = world.post("/api/instances/i/suspend", &json!({"because": "so"})).await;
    assert_eq!(unknown.error(), failed(400, "VALIDATION_ERROR", "/because"));
    for query in ["limit=0", "limit=101", "limit=x", "continuationToken=x", "offset=1"] {
        let refused = world.get(&format!("/api/instances/i/history?{query}")).await;
        let (status, code, target) = refused.error();
        assert_eq!((status, code.as_str()), (400, "VALIDATION_ERROR"), "{query}");
        assert!(query.starts_with(&target), "{query}");
    }
}
