//! Requests that come again with their `Idempotency-Key`.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::world::{Answer, World, definition, echo, failed};

async fn keyed(world: &World, method: Method, path: &str, key: &str, body: &Value) -> Answer {
    let request = Request::builder().method(method).uri(path).header("idempotency-key", key);
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    world.send(request.body(body).unwrap()).await
}

async fn post(world: &World, path: &str, key: &str, body: &Value) -> Answer {
    keyed(world, Method::POST, path, key, body).await
}

/// The code of the first detail of a failure.
fn detail(answer: &Answer) -> String {
    answer.json()["error"]["details"][0]["code"].as_str().unwrap_or_default().to_owned()
}

/// Takes the event `Go` twice and ends with what the second one brought.
async fn publish_two_waits(world: &World) {
    let wait = |next: &str| {
        json!({
            "type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D",
            "output": "$.state.brought", "next": next,
        })
    };
    let states = json!({
        "Begin": wait("Again"), "Again": wait("Done"), "Done": {"type": "succeed", "output": "$.state.brought"},
    });
    assert_eq!(world.publish("w", &states).await.status, 201);
    let begun = world.post("/api/instances", &json!({"workflow": "w", "instanceId": "i"})).await;
    assert_eq!(begun.status, 202);
}

#[tokio::test]
async fn an_event_that_is_sent_twice_is_taken_once_and_the_answer_says_until_when() {
    let world = World::new().await;
    publish_two_waits(&world).await;
    let path = "/api/instances/i/events/Go";
    let first = post(&world, path, "k", &json!({"n": 1})).await;
    assert_eq!(first.status, 202, "{}", first.text);
    assert!(first.data()["idempotencyKeyExpiresAtUtc"].as_str().unwrap().ends_with('Z'));
    let again = post(&world, path, "k", &json!({"n": 1})).await;
    assert_eq!((again.status, again.data()), (first.status, first.data()));
    assert_eq!(world.get("/api/instances/i").await.data()["currentStates"][0]["state"], "Again");

    let other = post(&world, path, "k", &json!({"n": 2})).await;
    assert_eq!(other.error(), failed(409, "CONFLICT", "Idempotency-Key"));
    assert_eq!(detail(&other), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(post(&world, path, "other", &json!({"n": 2})).await.status, 202);
    assert_eq!(world.get("/api/instances/i").await.data()["output"], json!({"n": 2}));
    let plain = world.post("/api/instances/i/events/Go", &json!({})).await;
    assert_eq!(plain.error(), failed(409, "CONFLICT", ""), "without the key it is new, and too late");
    assert_eq!(post(&world, path, "k", &json!({"n": 1})).await.data(), first.data());
}

#[tokio::test]
async fn orders_are_done_once_under_their_key() {
    let world = World::new().await;
    publish_two_waits(&world).await;
    for order in ["suspend", "resume", "terminate"] {
        for _ in 0..2 {
            let done = post(&world, &format!("/api/instances/i/{order}"), "k", &Value::Null).await;
            assert_eq!(done.status, 202, "{order}: {}", done.text);
            assert!(done.data()["idempotencyKeyExpiresAtUtc"].is_string());
        }
    }
    for _ in 0..2 {
        let restarted = post(&world, "/api/instances/i/restart", "k", &Value::Null).await;
        assert_eq!((restarted.status.as_u16(), &restarted.data()["executionId"]), (202, &json!("i/2")));
        assert!(restarted.data()["idempotencyKeyExpiresAtUtc"].is_string());
        post(&world, "/api/instances/i/terminate", "k2", &Value::Null).await;
    }
    for _ in 0..2 {
        let purged = keyed(&world, Method::DELETE, "/api/instances/i", "k", &Value::Null).await;
        assert_eq!((purged.status.as_u16(), &purged.data()["instanceId"]), (200, &json!("i")));
    }
    let plain = world.ask(Method::DELETE, "/api/instances/i", Body::empty()).await;
    assert_eq!(plain.error(), failed(404, "RESOURCE_NOT_FOUND", ""));
    let wrong = post(&world, "/api/instances/i/suspend", "a b", &Value::Null).await;
    assert_eq!(wrong.error(), failed(400, "VALIDATION_ERROR", "Idempotency-Key"));
}

#[tokio::test]
async fn a_start_says_until_when_it_is_recognised_and_an_unkeyed_one_does_not() {
    let world = World::new().await;
    world.publish("w", &echo()).await;
    for path in ["/api/instances", "/api/instances?wait=PT30S"] {
        let keyed = post(&world, path, path, &json!({"workflow": "w"})).await;
        assert!(keyed.data()["idempotencyKeyExpiresAtUtc"].is_string(), "{}", keyed.text);
        let plain = world.post(path, &json!({"workflow": "w"})).await;
        assert!(plain.data().get("idempotencyKeyExpiresAtUtc").is_none(), "{}", plain.text);
    }
}

#[tokio::test]
async fn what_was_begun_is_told_again_though_today_it_would_be_refused() {
    let world = World::new().await;
    world.publish("w", &echo()).await;
    let body = json!({"workflow": "w", "version": "*", "input": {"a": 1}});
    let first = post(&world, "/api/instances", "k", &body).await;
    let waited = post(&world, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((first.status.as_u16(), waited.status.as_u16()), (202, 200));

    let mut stricter = definition("w", "2.0.0", &echo());
    stricter["input"] = json!({"type": "object", "required": ["b"]});
    assert_eq!(world.post("/api/workflows", &stricter).await.status, 201);
    assert_eq!(world.post("/api/instances", &body).await.error(), failed(400, "VALIDATION_ERROR", "/input"));
    assert_eq!(post(&world, "/api/instances", "k", &body).await.data(), first.data());
    let again = post(&world, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, waited.data()));
    let new = post(&world, "/api/instances", "new", &body).await;
    assert_eq!(new.error(), failed(400, "VALIDATION_ERROR", "/input"), "what was never begun is refused");
    let other = post(&world, "/api/instances", "k", &json!({"workflow": "w", "version": "*"})).await;
    assert_eq!(other.error(), failed(409, "CONFLICT", "Idempotency-Key"));
}

#[tokio::test]
async fn who_waits_with_an_old_key_is_not_given_another_run() {
    let world = World::new().await;
    publish_two_waits(&world).await;
    world.publish("e", &echo()).await;
    let body = json!({"workflow": "e", "instanceId": "j"});
    let first = post(&world, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((first.status.as_u16(), &first.data()["executionId"]), (200, &json!("j/1")));
    let second = world.post("/api/instances?wait=PT30S", &body).await;
    assert_eq!(second.data()["executionId"], "j/2");
    let again = post(&world, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!((again.status.as_u16(), &again.data()["executionId"]), (202, &json!("j/1")));
}

#[tokio::test]
async fn a_key_whose_answer_is_no_longer_kept_does_not_begin_its_instance_again() {
    let world = World::with(|config| config.runtime.idempotency_window = abide_workflow::Duration(1)).await;
    world.publish("w", &echo()).await;
    let body = json!({"workflow": "w"});
    let first = post(&world, "/api/instances?wait=PT30S", "k", &body).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let late = loop {
        let late = post(&world, "/api/instances", "k", &body).await;
        // Within the millisecond that the answer is kept it is repeated.
        if late.status != 202 {
            break late;
        }
    };
    assert_eq!(late.error(), failed(409, "CONFLICT", "Idempotency-Key"));
    assert_eq!(detail(&late), "IDEMPOTENCY_KEY_EXPIRED");
    let id = first.data()["instanceId"].as_str().unwrap().to_owned();
    assert!(late.text.contains(&id), "it says which instance: {}", late.text);
    let shown = world.get(&format!("/api/instances/{id}")).await.data();
    assert_eq!(shown["executionId"], format!("{id}/1"));
}
