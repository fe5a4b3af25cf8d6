//! `PUT /api/routes/{eventType}`: what is no route is refused with its place.

use axum::http::Method;
use serde_json::{Value, json};

use crate::world::{World, error};

#[tokio::test]
async fn a_route_that_could_not_be_followed_is_refused() {
    let world = World::new().await;
    world.publish_waiting("w").await;
    let put = async |kind: &str, fields: &Value| {
        let mut route = json!({"entityType": "device"});
        route.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        world.ask(Method::PUT, &format!("/api/routes/{kind}"), route.to_string()).await
    };
    let long = "x".repeat(129);
    for (kind, fields, target) in [
        ("a", json!({"action": "record", "version": "^1"}), "/version"),
        ("a", json!({"action": "record", "version": "one"}), "/version"),
        ("a", json!({"action": "raise", "workflow": "w", "version": "one"}), "/version"),
        (long.as_str(), json!({"action": "raise", "workflow": "w"}), "/eventName"),
        (long.as_str(), json!({"action": "startOrRaise", "workflow": "w"}), "/eventName"),
    ] {
        assert_eq!(error(&put(kind, &fields).await, 400)["target"], target, "{kind} {fields}");
    }
    for (kind, fields) in [
        (long.as_str(), json!({"action": "raise", "workflow": "w", "eventName": "Go"})),
        (long.as_str(), json!({"action": "start", "workflow": "w"})),
        (long.as_str(), json!({"action": "record"})),
        ("a", json!({"action": "startOrRaise", "workflow": "w", "version": "^1"})),
    ] {
        let answer = put(kind, &fields).await;
        assert_eq!(answer.status, 200, "{fields}: {}", answer.text);
    }
}
