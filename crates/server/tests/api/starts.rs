//! Starting runs: ids, repeated requests, waiting, and invalid requests.

use std::collections::HashSet;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::test_api::{TestApi, TestResponse, definition, echo, failed};

#[tokio::test]
async fn a_run_starts_ends_and_can_be_read_with_its_history() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let body = json!({
        "workflow": "w", "version": "^1", "instanceId": "i-1", "input": {"a": 1},
        "correlationId": "order-7", "entityId": "device 7",
    });
    let ended = api.post("/api/instances?wait=PT30S", &body).await;
    assert_eq!(ended.status, 200);
    let data = ended.data();
    for (name, value) in [
        ("instanceId", json!("i-1")),
        ("executionId", json!("i-1/1")),
        ("workflow", json!("w")),
        ("version", json!("1.0.0")),
        ("status", json!("Completed")),
        ("input", json!({"a": 1})),
        ("output", json!({"a": 1})),
        ("error", Value::Null),
        ("correlationId", json!("order-7")),
        ("entityId", json!("device 7")),
        ("currentStates", json!([])),
    ] {
        assert_eq!(data[name], value, "{name}");
    }
    assert!(data["createdAtUtc"].as_str().unwrap() <= data["lastUpdatedAtUtc"].as_str().unwrap());
    assert_eq!(api.get("/api/instances/i-1").await.data(), data);

    let history = api.get("/api/instances/i-1/history").await.data();
    let events: Vec<Value> = history["items"].as_array().unwrap().clone();
    assert_eq!(history["continuationToken"], Value::Null);
    assert!(events.iter().any(|event| event["eventType"] == "ExecutionStarted"), "{events:?}");
    let mut paged: Vec<Value> = Vec::new();
    let mut path = "/api/instances/i-1/history?limit=2".to_owned();
    loop {
        let page = api.get(&path).await.data();
        assert!(page["items"].as_array().unwrap().len() <= 2);
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(token) = page["continuationToken"].as_str() else { break };
        path = format!("/api/instances/i-1/history?limit=2&continuationToken={token}");
    }
    assert_eq!(paged, events);
}

#[tokio::test]
async fn a_start_of_a_run_that_continues_is_a_202_with_or_without_a_wait() {
    let api = TestApi::new().await;
    api.publish_waiting("w").await;
    for (path, id) in [("/api/instances", "a"), ("/api/instances?wait=PT0.001S", "b")] {
        let accepted = api.post(path, &json!({"workflow": "w", "instanceId": id})).await;
        assert_eq!(accepted.status, 202, "{path}");
        assert_eq!(accepted.headers["location"], format!("/api/instances/{id}"));
        assert_eq!(accepted.data()["executionId"], format!("{id}/1"));
        let shown = api.get(&format!("/api/instances/{id}")).await.data();
        assert_eq!((&shown["status"], &shown["input"]), (&json!("Running"), &json!({})));
        let state = &shown["currentStates"][0];
        assert_eq!((&state["state"], &state["waitingFor"]["kind"]), (&json!("Begin"), &json!("event")));
        assert_eq!(state["waitingFor"]["name"], "Go");
    }
}

#[tokio::test]
async fn a_run_without_an_id_gets_one_and_its_own_correlation_id() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let plain = api.post("/api/instances?wait=PT30S", &json!({"workflow": "w"})).await.data();
    let id = plain["instanceId"].as_str().unwrap();
    assert_eq!(id.as_bytes()[14], b'7', "{id} is a UUID of version 7");
    assert_eq!(plain["correlationId"], id);

    let request = Request::post("/api/instances?wait=PT30S").header("x-correlation-id", "trace-1");
    let traced = api.send(request.body(Body::from(json!({"workflow": "w"}).to_string())).unwrap()).await;
    assert_eq!(traced.headers["x-correlation-id"], "trace-1");
    assert_eq!(traced.data()["correlationId"], "trace-1");
    assert_ne!(traced.data()["instanceId"], "trace-1");
}

/// Sends all requests concurrently.
async fn all_at_once(api: &std::sync::Arc<TestApi>, requests: Vec<Request<Body>>) -> Vec<TestResponse> {
    let mut clients = JoinSet::new();
    for request in requests {
        let api = std::sync::Arc::clone(api);
        clients.spawn(async move { api.send(request).await });
    }
    clients.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_one_of_64_concurrent_starts_of_one_id_succeeds() {
    let api = std::sync::Arc::new(TestApi::new().await);
    api.publish_waiting("w").await;
    let body = json!({"workflow": "w", "instanceId": "only"}).to_string();
    let request = || Request::post("/api/instances").body(Body::from(body.clone())).unwrap();
    let responses = all_at_once(&api, (0..64).map(|_| request()).collect()).await;
    let started = responses.iter().filter(|response| response.status == 202).count();
    assert_eq!(started, 1);
    for response in responses.iter().filter(|response| response.status != 202) {
        assert_eq!(response.error(), failed(409, "CONFLICT", ""));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_copies_of_one_request_get_the_same_response() {
    let api = std::sync::Arc::new(TestApi::new().await);
    api.publish_waiting("w").await;
    for body in [json!({"workflow": "w"}), json!({"workflow": "w", "instanceId": "mine"})] {
        let request = || {
            let request = Request::post("/api/instances").header("idempotency-key", "key-1");
            request.body(Body::from(body.to_string())).unwrap()
        };
        let responses = all_at_once(&api, (0..64).map(|_| request()).collect()).await;
        assert!(responses.iter().all(|response| response.status == 202), "{responses:?}");
        let bodies: HashSet<String> = responses.iter().map(|response| response.data().to_string()).collect();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
    }
}

#[tokio::test]
async fn a_key_reused_for_another_request_is_a_conflict_even_after_the_run_has_ended() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let start = async |body: Value| {
        let request = Request::post("/api/instances?wait=PT30S").header("idempotency-key", "k");
        api.send(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let first = start(json!({"workflow": "w", "input": {"a": 1}})).await;
    assert_eq!(first.status, 200);
    assert!(first.data()["instanceId"].as_str().unwrap().starts_with("k-"));
    let again = start(json!({"input": {"a": 1}, "workflow": "w"})).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, first.data()));
    let other = start(json!({"workflow": "w", "input": {"a": 2}})).await;
    assert_eq!(other.error(), failed(409, "CONFLICT", "Idempotency-Key"));
}

#[tokio::test]
async fn an_input_that_does_not_match_the_schema_is_rejected_with_every_pointer() {
    let api = TestApi::new().await;
    let mut published = definition("w", "1.0.0", &echo());
    published["input"] = json!({
        "type": "object", "required": ["id"],
        "properties": {"serial": {"type": "string"}, "n": {"type": "integer", "minimum": 1}},
    });
    assert_eq!(api.post("/api/workflows", &published).await.status, 201);
    let start =
        async |input: Value| api.post("/api/instances", &json!({"workflow": "w", "input": input})).await;
    let one = start(json!({"id": 1, "serial": 7})).await;
    assert_eq!(one.error(), failed(400, "VALIDATION_ERROR", "/input/serial"));
    let all = start(json!({"id": 1, "serial": 7, "n": 0})).await.json()["error"]["details"].clone();
    let pointers: HashSet<&str> =
        all.as_array().unwrap().iter().map(|d| d["target"].as_str().unwrap()).collect();
    assert_eq!(pointers, HashSet::from(["/input/serial", "/input/n"]));
    let missing = api.post("/api/instances", &json!({"workflow": "w"})).await;
    assert_eq!(missing.error(), failed(400, "VALIDATION_ERROR", "/input"));
    assert_eq!(start(json!({"id": 1})).await.status, 202);
}

#[tokio::test]
async fn an_invalid_start_is_rejected_with_the_invalid_part() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let long_range = vec![">=1.0.0"; 30].join(", ");
    for (path, body, status, target) in [
        ("/api/instances", json!({"workflow": "w", "inptu": {}}), 400, "/inptu"),
        ("/api/instances", json!({}), 400, "/workflow"),
        ("/api/instances", json!({"workflow": 7}), 400, "/workflow"),
        ("/api/instances", json!({"workflow": "none"}), 404, "/workflow"),
        ("/api/instances", json!({"workflow": "w", "version": "^2"}), 404, "/workflow"),
        ("/api/instances", json!({"workflow": "w", "version": "two"}), 400, "/version"),
        ("/api/instances", json!({"workflow": "w", "version": long_range}), 400, "/version"),
        ("/api/instances", json!({"workflow": "w", "version": ""}), 400, "/version"),
        ("/api/instances", json!({"workflow": "w", "instanceId": "a/b"}), 400, "/instanceId"),
        ("/api/instances", json!({"workflow": "w", "correlationId": "a\r\nb"}), 400, "/correlationId"),
        ("/api/instances", json!({"workflow": "w", "entityId": ""}), 400, "/entityId"),
        ("/api/instances/i/suspend", json!({"reason": ""}), 400, "/reason"),
        ("/api/instances", json!([]), 400, ""),
        ("/api/instances?wait=10", json!({"workflow": "w"}), 400, "wait"),
        ("/api/instances?wait=PT5M1S", json!({"workflow": "w"}), 400, "wait"),
        ("/api/instances?wiat=PT1S", json!({"workflow": "w"}), 400, "wiat"),
        ("/api/instances?wait=PT1S&wait=PT1S", json!({"workflow": "w"}), 400, "wait"),
    ] {
        let (found, _, found_target) = api.post(path, &body).await.error();
        assert_eq!((found, found_target.as_str()), (status, target), "{path} {body}");
    }
    let request =
        Request::builder().method(Method::POST).uri("/api/instances").header("idempotency-key", "a b");
    let rejected = api.send(request.body(Body::from("{\"workflow\":\"w\"}")).unwrap()).await;
    assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", "Idempotency-Key"));
}
