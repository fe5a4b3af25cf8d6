//! `PUT /api/routes/{eventType}`: an invalid event route is rejected with the invalid field.

use axum::http::Method;
use serde_json::{Value, json};

use crate::test_api::{TestApi, error};

#[tokio::test]
async fn a_route_that_could_not_be_used_is_rejected() {
    let api = TestApi::new().await;
    api.publish_waiting("w").await;
    let put = async |kind: &str, fields: &Value| {
        let mut route = json!({"entityType": "device"});
        route.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        api.request(Method::PUT, &format!("/api/routes/{kind}"), route.to_string()).await
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
        let response = put(kind, &fields).await;
        assert_eq!(response.status, 200, "{fields}: {}", response.text);
    }
}
