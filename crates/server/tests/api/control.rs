//! Events, control operations and purges of one instance.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::test_api::{TestApi, failed};

async fn start_instance(api: &TestApi, id: &str) {
    let accepted = api.post("/api/instances", &json!({"workflow": "w", "instanceId": id})).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
}

/// A server with one run that waits for an event.
async fn waiting(id: &str) -> TestApi {
    let api = TestApi::new().await;
    api.publish_waiting("w").await;
    start_instance(&api, id).await;
    api
}

async fn status(api: &TestApi, id: &str) -> Value {
    api.get(&format!("/api/instances/{id}")).await.data()["status"].clone()
}

/// Whether an instance gets this status. It may be on another shard: its messages take a moment.
async fn becomes(api: &TestApi, id: &str, wanted: &str) -> bool {
    for _ in 0..1_000 {
        let response = api.get(&format!("/api/instances/{id}")).await;
        if response.status == 200 && response.data()["status"] == wanted {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

async fn control(api: &TestApi, id: &str, operation: &str) -> (u16, String, String) {
    let response =
        api.request(Method::POST, &format!("/api/instances/{id}/{operation}"), Body::empty()).await;
    if response.status.is_success() {
        assert_eq!(response.data()["instanceId"], id);
        return (response.status.as_u16(), String::new(), String::new());
    }
    response.error()
}

fn accepted() -> (u16, String, String) {
    failed(202, "", "")
}

#[tokio::test]
async fn an_event_is_accepted_by_a_waiting_run_and_rejected_by_an_ended_one() {
    let api = waiting("i").await;
    let raised = api.post("/api/instances/i/events/Go", &json!({"by": "me"})).await;
    assert_eq!((raised.status.as_u16(), raised.data()), (202, json!({"instanceId": "i"})));
    let shown = api.get("/api/instances/i").await.data();
    assert_eq!((&shown["status"], &shown["output"]), (&json!("Completed"), &json!({"by": "me"})));
    assert_eq!(control(&api, "i", "events/Go").await, failed(409, "CONFLICT", ""));
    assert_eq!(control(&api, "none", "events/Go").await, failed(404, "RESOURCE_NOT_FOUND", ""));
}

#[tokio::test]
async fn an_event_without_a_body_has_a_null_payload() {
    let api = waiting("i").await;
    assert_eq!(control(&api, "i", "events/go").await, accepted());
    let shown = api.get("/api/instances/i").await.data();
    assert_eq!((&shown["status"], &shown["output"]), (&json!("Completed"), &Value::Null));
}

#[tokio::test]
async fn a_suspended_run_buffers_its_events_until_it_is_resumed() {
    let api = waiting("i").await;
    assert_eq!(control(&api, "i", "resume").await, failed(409, "CONFLICT", ""));
    let suspended = api.post("/api/instances/i/suspend", &json!({"reason": "an audit"})).await;
    assert_eq!(suspended.status, 202);
    assert_eq!(status(&api, "i").await, "Suspended");
    assert_eq!(control(&api, "i", "events/Go").await, accepted());
    assert_eq!(status(&api, "i").await, "Suspended");
    assert_eq!(control(&api, "i", "resume").await, accepted());
    assert_eq!(status(&api, "i").await, "Completed");
    let history = api.get("/api/instances/i/history").await;
    assert!(history.text.contains("an audit"), "{}", history.text);
}

#[tokio::test]
async fn a_run_is_terminated_restarted_and_purged() {
    let api = waiting("i").await;
    assert_eq!(control(&api, "i", "restart").await, failed(409, "CONFLICT", ""));
    assert_eq!(
        api.request(Method::DELETE, "/api/instances/i", Body::empty()).await.error(),
        failed(409, "CONFLICT", "")
    );
    assert_eq!(control(&api, "i", "terminate").await, accepted());
    assert_eq!(status(&api, "i").await, "Terminated");
    assert_eq!(control(&api, "i", "terminate").await, failed(409, "CONFLICT", ""));
    assert_eq!(control(&api, "i", "rewind").await, failed(409, "CONFLICT", ""));

    let restarted = api.request(Method::POST, "/api/instances/i/restart", Body::empty()).await;
    assert_eq!((restarted.status.as_u16(), &restarted.data()["executionId"]), (202, &json!("i/2")));
    assert_eq!(restarted.headers["location"], "/api/instances/i");
    assert_eq!(status(&api, "i").await, "Running");

    assert_eq!(control(&api, "i", "terminate").await, accepted());
    let purged = api.request(Method::DELETE, "/api/instances/i", Body::empty()).await;
    assert_eq!((purged.status.as_u16(), purged.data()), (200, json!({"instanceId": "i"})));
    for path in ["/api/instances/i", "/api/instances/i/history"] {
        assert_eq!(api.get(path).await.error(), failed(404, "RESOURCE_NOT_FOUND", ""), "{path}");
    }
}

#[tokio::test]
async fn a_recursive_terminate_ends_abandoned_children_and_is_idempotent() {
    let api = TestApi::new().await;
    api.publish_waiting("child").await;
    let parent = json!({
        "Begin": {"type": "workflow", "workflow": "child", "onParentClose": "abandon", "next": "Done"},
        "Done": {"type": "succeed"},
    });
    assert_eq!(api.publish("parent", &parent).await.status, 201);
    for (id, recursive, left) in [("i", false, "Running"), ("j", true, "Terminated")] {
        let start = json!({"workflow": "parent", "instanceId": id});
        assert_eq!(api.post("/api/instances", &start).await.status, 202);
        let child = format!("{id}~1.1");
        assert!(becomes(&api, &child, "Running").await);
        let order = json!({"reason": "enough", "recursive": recursive});
        let terminated = api.post(&format!("/api/instances/{id}/terminate"), &order).await;
        assert_eq!(terminated.status, 202, "{}", terminated.text);
        assert!(becomes(&api, &child, left).await, "{child}");
        let again = api.post(&format!("/api/instances/{id}/terminate"), &order).await;
        assert_eq!(again.status, 409, "{}", again.text);
    }
    let wrong = api.post("/api/instances/i~1.1/terminate", &json!({"recursive": "yes"})).await;
    assert_eq!(wrong.error(), failed(400, "VALIDATION_ERROR", "/recursive"));
}

#[tokio::test]
async fn a_failed_run_is_rewound_to_the_state_that_failed() {
    let api = TestApi::new().await;
    let fail = json!({
        "Begin": {
            "type": "task", "activity": "core.fail", "input": {"times": 1, "retryable": false},
            "output": "$.state.out", "next": "Done",
        },
        "Done": {"type": "succeed", "output": "$.state.out"},
    });
    assert_eq!(api.publish("w", &fail).await.status, 201);
    let ended = api.post("/api/instances?wait=PT30S", &json!({"workflow": "w", "instanceId": "i"})).await;
    assert_eq!((ended.status.as_u16(), &ended.data()["status"]), (200, &json!("Failed")));
    assert_eq!(ended.data()["error"]["state"], "Begin");
    assert_eq!(control(&api, "i", "rewind").await, accepted());
}

#[tokio::test]
async fn invalid_names_and_unknown_operations_are_rejected() {
    let api = waiting("i").await;
    let long = format!("events/{}", "a".repeat(129));
    for (path, expected) in [
        ("events/a%0Ab", failed(400, "VALIDATION_ERROR", "name")),
        (long.as_str(), failed(400, "VALIDATION_ERROR", "name")),
        ("events/%ff", failed(400, "VALIDATION_ERROR", "")),
        ("explode", failed(404, "RESOURCE_NOT_FOUND", "")),
    ] {
        assert_eq!(control(&api, "i", path).await, expected, "{path}");
    }
    assert_eq!(api.get("/api/instances/a%2Fb").await.error(), failed(400, "VALIDATION_ERROR", "instanceId"));
    let unknown = api.post("/api/instances/i/suspend", &json!({"because": "so"})).await;
    assert_eq!(unknown.error(), failed(400, "VALIDATION_ERROR", "/because"));
    for query in ["limit=0", "limit=101", "limit=x", "continuationToken=x", "offset=1"] {
        let rejected = api.get(&format!("/api/instances/i/history?{query}")).await;
        let (status, code, target) = rejected.error();
        assert_eq!((status, code.as_str()), (400, "VALIDATION_ERROR"), "{query}");
        assert!(query.starts_with(&target), "{query}");
    }
}
