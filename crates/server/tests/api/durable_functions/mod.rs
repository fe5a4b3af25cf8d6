//! Tests of the Durable Functions API from the side of its clients and scripts.

mod client_script;
mod control;
mod entities;
mod lists;
mod starts;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::test_api::{TestApi, TestResponse};

/// The origin under which a script reaches the server.
const ORIGIN: &str = "http://localhost:7071";
const ROOT: &str = "/runtime/webhooks/durabletask";

/// One request to a URL from a response, or to a path below the root.
async fn request(api: &TestApi, method: Method, address: &str, body: impl Into<Body>) -> TestResponse {
    let path = match address.strip_prefix(ORIGIN) {
        Some(path) => path.to_owned(),
        None => format!("{ROOT}{address}"),
    };
    let request = Request::builder().method(method).uri(path).header("host", "localhost:7071");
    api.send(request.body(body.into()).unwrap()).await
}

async fn get(api: &TestApi, address: &str) -> TestResponse {
    request(api, Method::GET, address, Body::empty()).await
}

async fn post(api: &TestApi, address: &str, body: &Value) -> TestResponse {
    request(api, Method::POST, address, body.to_string()).await
}

/// Posts a control operation, or anything else without a body.
async fn control(api: &TestApi, address: &str) -> u16 {
    request(api, Method::POST, address, Body::empty()).await.status.as_u16()
}

async fn delete(api: &TestApi, address: &str) -> TestResponse {
    request(api, Method::DELETE, address, Body::empty()).await
}

/// A body without an envelope.
fn json_of(response: &TestResponse) -> Value {
    assert_eq!(response.headers["content-type"], "application/json; charset=utf-8", "{}", response.text);
    serde_json::from_str(&response.text).unwrap()
}

/// Status and message of a failure.
fn message(response: &TestResponse) -> (u16, String) {
    let json = json_of(response);
    assert_eq!(json["Message"], json["ExceptionMessage"]);
    (response.status.as_u16(), json["Message"].as_str().unwrap().to_owned())
}

/// The status of a response without a body.
fn bare(response: &TestResponse) -> u16 {
    assert_eq!((response.text.as_str(), response.headers.get("content-type")), ("", None));
    response.status.as_u16()
}

/// A server with a definition that waits for `Go`, one that ends at once, and one that fails.
async fn api() -> TestApi {
    let api = TestApi::new().await;
    api.publish_waiting("Wait").await;
    api.publish("Echo", &crate::test_api::echo()).await;
    let fail = json!({"Begin": {"type": "fail", "error": "Broken", "message": "on purpose"}});
    assert_eq!(api.publish("Fail", &fail).await.status, 201);
    api
}

/// The HTTP status and the runtime status of an instance.
async fn status(api: &TestApi, id: &str) -> (u16, String) {
    let response = get(api, &format!("/instances/{id}")).await;
    (response.status.as_u16(), json_of(&response)["runtimeStatus"].as_str().unwrap().to_owned())
}
