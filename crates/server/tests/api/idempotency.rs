//! Requests that are repeated with their `Idempotency-Key`.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::test_api::{TestApi, TestResponse, definition, echo, failed};

async fn request_with_key(
    api: &TestApi,
    method: Method,
    path: &str,
    key: &str,
    body: &Value,
) -> TestResponse {
    let request = Request::builder().method(method).uri(path).header("idempotency-key", key);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    api.send(request.body(body).unwrap()).await
}

async fn post(api: &TestApi, path: &str, key: &str, body: &Value) -> TestResponse {
    request_with_key(api, Method::POST, path, key, body).await
}

/// The code of the first detail of a failure.
fn detail(response: &TestResponse) -> String {
    response.json()["error"]["details"][0]["code"].as_str().unwrap_or_default().to_owned()
}

/// A workflow that waits for the event `Go` twice and ends with the payload of the second one.
async fn publish_two_waits(api: &TestApi) {
    let wait = |next: &str| {
        json!({
            "type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D",
            "output": "$.state.brought", "next": next,
        })
    };
    let states = json!({
        "Begin": wait("Again"), "Again": wait("Done"), "Done": {"type": "succeed", "output": "$.state.brought"},
    });
    assert_eq!(api.publish("w", &states).await.status, 201);
    let begun = api.post("/api/instances", &json!({"workflow": "w", "instanceId": "i"})).await;
    assert_eq!(begun.status, 202);
}

#[tokio::test]
async fn a_repeated_event_takes_effect_once_and_the_response_has_the_expiry() {
    let api = TestApi::new().await;
    publish_two_waits(&api).await;
    let path = "/api/instances/i/events/Go";
    let first = post(&api, path, "k", &json!({"n": 1})).await;
    assert_eq!(first.status, 202, "{}", first.text);
    assert!(first.data()["idempotencyKeyExpiresAtUtc"].as_str().unwrap().ends_with('Z'));
    let again = post(&api, path, "k", &json!({"n": 1})).await;
    assert_eq!((again.status, again.data()), (first.status, first.data()));
    assert_eq!(api.get("/api/instances/i").await.data()["currentStates"][0]["state"], "Again");

    let other = post(&api, path, "k", &json!({"n": 2})).await;
    assert_eq!(other.error(), failed(409, "CONFLICT", "Idempotency-Key"));
    assert_eq!(detail(&other), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(post(&api, path, "other", &json!({"n": 2})).await.status, 202);
    assert_eq!(api.get("/api/instances/i").await.data()["output"], json!({"n": 2}));
    let plain = api.post("/api/instances/i/events/Go", &json!({})).await;
    assert_eq!(
        plain.error(),
        failed(409, "CONFLICT", ""),
        "without the key it is a new event, which comes too late"
    );
    assert_eq!(post(&api, path, "k", &json!({"n": 1})).await.data(), first.data());
}

#[tokio::test]
async fn control_operations_take_effect_once_per_key() {
    let api = TestApi::new().await;
    publish_two_waits(&api).await;
    for operation in ["suspend", "resume", "terminate"] {
        for _ in 0..2 {
            let done = post(&api, &format!("/api/instances/i/{operation}"), "k", &Value::Null).await;
            assert_eq!(done.status, 202, "{operation}: {}", done.text);
            assert!(done.data()["idempotencyKeyExpiresAtUtc"].is_string());
        }
    }
    for _ in 0..2 {
        let restarted = post(&api, "/api/instances/i/restart", "k", &Value::Null).await;
        assert_eq!((restarted.status.as_u16(), &restarted.data()["executionId"]), (202, &json!("i/2")));
        assert!(restarted.data()["idempotencyKeyExpiresAtUtc"].is_string());
        post(&api, "/api/instances/i/terminate", "k2", &Value::Null).await;
    }
    for _ in 0..2 {
        let purged = request_with_key(&api, Method::DELETE, "/api/instances/i", "k", &Value::Null).await;
        assert_eq!((purged.status.as_u16(), &purged.data()["instanceId"]), (200, &json!("i")));
    }
    let plain = api.request(Method::DELETE, "/api/instances/i", Body::empty()).await;
    assert_eq!(plain.error(), failed(404, "RESOURCE_NOT_FOUND", ""));
    let wrong = post(&api, "/api/instances/i/suspend", "a b", &Value::Null).await;
    assert_eq!(wrong.error(), failed(400, "VALIDATION_ERROR", "Idempotency-Key"));
}

#[tokio::test]
async fn the_response_to_a_start_has_the_expiry_of_its_key_if_it_has_one() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    for path in ["/api/instances", "/api/instances?wait=PT30S"] {
        let keyed = post(&api, path, path, &json!({"workflow": "w"})).await;
        assert!(keyed.data()["idempotencyKeyExpiresAtUtc"].is_string(), "{}", keyed.text);
        let plain = api.post(path, &json!({"workflow": "w"})).await;
        assert!(plain.data().get("idempotencyKeyExpiresAtUtc").is_none(), "{}", plain.text);
    }
}

#[tokio::test]
async fn a_repeated_start_gets_the_original_response_even_if_it_would_be_rejected_now() {
    let api = TestApi::new().await;
    api.publish("w", &echo()).await;
    let body = json!({"workflow": "w", "version": "*", "input": {"a": 1}});
    let first = post(&api, "/api/instances", "k", &body).await;
    let waited = post(&api, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((first.status.as_u16(), waited.status.as_u16()), (202, 200));

    let mut stricter = definition("w", "2.0.0", &echo());
    stricter["input"] = json!({"type": "object", "required": ["b"]});
    assert_eq!(api.post("/api/workflows", &stricter).await.status, 201);
    assert_eq!(api.post("/api/instances", &body).await.error(), failed(400, "VALIDATION_ERROR", "/input"));
    assert_eq!(post(&api, "/api/instances", "k", &body).await.data(), first.data());
    let again = post(&api, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, waited.data()));
    let new = post(&api, "/api/instances", "new", &body).await;
    assert_eq!(
        new.error(),
        failed(400, "VALIDATION_ERROR", "/input"),
        "a start that was never accepted is rejected"
    );
    let other = post(&api, "/api/instances", "k", &json!({"workflow": "w", "version": "*"})).await;
    assert_eq!(other.error(), failed(409, "CONFLICT", "Idempotency-Key"));
}

#[tokio::test]
async fn waiting_with_an_old_key_never_returns_a_later_run() {
    let api = TestApi::new().await;
    publish_two_waits(&api).await;
    api.publish("e", &echo()).await;
    let body = json!({"workflow": "e", "instanceId": "j"});
    let first = post(&api, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((first.status.as_u16(), &first.data()["executionId"]), (200, &json!("j/1")));
    let second = api.post("/api/instances?wait=PT30S", &body).await;
    assert_eq!(second.data()["executionId"], "j/2");
    let again = post(&api, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((again.status.as_u16(), &again.data()["executionId"]), (202, &json!("j/1")));
}

#[tokio::test]
async fn an_expired_key_does_not_start_its_instance_again() {
    let api =
        TestApi::with_config(|config| config.runtime.idempotency_window = abide_workflow::Duration(1)).await;
    api.publish("w", &echo()).await;
    let body = json!({"workflow": "w"});
    let first = post(&api, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let late = loop {
        let late = post(&api, "/api/instances", "k", &body).await;
        // Within the millisecond before the key expires, the stored reply is repeated.
        if late.status != 202 {
            break late;
        }
    };
    assert_eq!(late.error(), failed(409, "CONFLICT", "Idempotency-Key"));
    assert_eq!(detail(&late), "IDEMPOTENCY_KEY_EXPIRED");
    let id = first.data()["instanceId"].as_str().unwrap().to_owned();
    assert!(late.text.contains(&id), "the error names the instance: {}", late.text);
    let shown = api.get(&format!("/api/instances/{id}")).await.data();
    assert_eq!(shown["executionId"], format!("{id}/1"));
}
