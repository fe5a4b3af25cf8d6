//! Starting runs, waiting for their end, and restarting them.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::{ROOT, api, bare, control, get, json_of, message, post, request, status};
use crate::test_api::{TestApi, TestResponse, definition};

/// Starts a run with a body of this content type.
async fn start_as(api: &TestApi, id: &str, content_type: &str, body: &'static str) -> TestResponse {
    let path = format!("{ROOT}/orchestrators/Echo/{id}?timeout=30");
    let request = Request::builder().method(Method::POST).uri(path).header("content-type", content_type);
    api.send(request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn an_unknown_function_and_an_invalid_id_are_bad_requests() {
    let api = api().await;
    for (path, wrong) in [
        ("/orchestrators/Nothing", "functionName"),
        ("/orchestrators/Echo?version=7", "functionName"),
        ("/orchestrators/Echo?version=seven", "version"),
        ("/orchestrators/Echo/a%20b", "instanceId"),
        ("/orchestrators/Echo/@echo@key", "instanceId"),
        ("/orchestrators/Echo?timeout=soon", "timeout"),
    ] {
        let (status, message) = message(&post(&api, path, &json!({})).await);
        assert!(status == 400 && message.starts_with(wrong), "{path}: {status} {message}");
    }
    let broken = request(&api, Method::POST, "/orchestrators/Echo", "{\"a\":").await;
    assert_eq!(message(&broken).0, 400);
}

#[tokio::test]
async fn an_input_that_does_not_match_the_schema_is_rejected_with_a_pointer() {
    let api = api().await;
    let mut strict = definition("Strict", "1.0.0", &crate::test_api::echo());
    strict["input"] = json!({"type": "object", "required": ["order"]});
    assert_eq!(api.post("/api/workflows", &strict).await.status, 201);
    let (status, message) = message(&post(&api, "/orchestrators/Strict", &json!({})).await);
    assert!(status == 400 && message.contains("/input") && message.contains("order"), "{message}");
}

#[tokio::test]
async fn an_id_in_use_is_rejected_until_its_run_has_ended() {
    let api = api().await;
    assert_eq!(post(&api, "/orchestrators/Wait/i", &json!({})).await.status, 202);
    assert_eq!(message(&post(&api, "/orchestrators/Wait/i", &json!({})).await).0, 409);
    assert_eq!(control(&api, "/instances/i/terminate").await, 202);
    assert_eq!(post(&api, "/orchestrators/Wait/i", &json!({})).await.status, 202);
    assert_eq!(status(&api, "i").await, (202, "Running".to_owned()));
}

#[tokio::test]
async fn the_content_type_matters_only_if_there_is_a_body() {
    let api = api().await;
    for (number, kind) in ["application/octet-stream", "application/x-www-form-urlencoded"].iter().enumerate()
    {
        let response = start_as(&api, &format!("empty-{number}"), kind, "").await;
        assert_eq!((response.status.as_u16(), json_of(&response)), (200, json!({})), "{kind}");
        assert_eq!(message(&start_as(&api, "i", kind, "{}").await).0, 400);
    }
    let response = start_as(&api, "json", "application/json; charset=utf-8", "[1, \"a\"]").await;
    assert_eq!((response.status.as_u16(), json_of(&response)), (200, json!([1, "a"])));
    let unnamed = request(&api, Method::POST, "/orchestrators/Echo/unnamed?timeout=30", "\"as it is\"").await;
    assert_eq!((unnamed.status.as_u16(), json_of(&unnamed)), (200, json!("as it is")));
}

#[tokio::test]
async fn a_start_that_waits_returns_the_output_or_the_status() {
    let api = api().await;
    let ended = post(&api, "/orchestrators/Echo?timeout=30&pollingInterval=1", &json!(7)).await;
    assert_eq!((ended.status.as_u16(), json_of(&ended)), (200, json!(7)));
    let failed = post(&api, "/orchestrators/Fail?timeout=30&pollingInterval=1", &json!({})).await;
    assert_eq!((failed.status.as_u16(), &json_of(&failed)["runtimeStatus"]), (200, &json!("Failed")));
    let waiting = post(&api, "/orchestrators/Wait/i?timeout=0&pollingInterval=0", &json!({})).await;
    assert_eq!((waiting.status.as_u16(), &json_of(&waiting)["id"]), (202, &json!("i")));
}

#[tokio::test]
async fn a_restart_starts_a_new_instance_unless_the_same_is_requested() {
    let api = api().await;
    post(&api, "/orchestrators/Wait/i", &json!({"a": 1})).await;
    let other = json_of(&request(&api, Method::POST, "/instances/i/restart", Body::empty()).await);
    let other = other["id"].as_str().unwrap();
    assert_eq!((other.len(), other == "i"), (32, false));
    let shown = json_of(&get(&api, &format!("/instances/{other}")).await);
    assert_eq!((&shown["name"], &shown["input"]), (&json!("Wait"), &json!({"a": 1})));

    let same = "/instances/i/restart?restartWithNewInstanceId=false";
    assert_eq!(message(&request(&api, Method::POST, same, Body::empty()).await).0, 409);
    assert_eq!(control(&api, "/instances/i/terminate").await, 202);
    let restarted = request(&api, Method::POST, same, Body::empty()).await;
    assert_eq!((restarted.status.as_u16(), &json_of(&restarted)["id"]), (202, &json!("i")));
    assert_eq!(status(&api, "i").await, (202, "Running".to_owned()));
    for path in ["/instances/none/restart", "/instances/none/restart?restartWithNewInstanceId=false"] {
        assert_eq!(bare(&request(&api, Method::POST, path, Body::empty()).await), 404, "{path}");
    }
}

#[tokio::test]
async fn urls_have_the_host_of_the_request_and_other_hosts_are_rejected() {
    let api = api().await;
    let start = |host: &'static str| {
        let path = format!("{ROOT}/orchestrators/Echo?taskHub=Hub");
        let request = Request::builder().method(Method::POST).uri(path).header("host", host);
        api.send(request.body(Body::empty()).unwrap())
    };
    for host in ["abide.local", "a b", "me:secret@abide.local"] {
        assert_eq!(start(host).await.status, 421, "{host}");
    }
    for (host, origin) in [("localhost:7070", "http://localhost:7070"), ("127.0.0.1", "http://127.0.0.1")] {
        let started = start(host).await;
        let address = json_of(&started)["statusQueryGetUri"].as_str().unwrap().to_owned();
        assert!(address.starts_with(&format!("{origin}{ROOT}/instances/")), "{address}");
        assert!(address.ends_with("?taskHub=Hub&connection=Storage"), "{address}");
    }
}

#[tokio::test]
async fn paths_are_matched_leniently_and_wrong_methods_are_not_found() {
    let api = api().await;
    post(&api, "/orchestrators/Wait/i", &json!({})).await;
    for path in ["/instances/i/", "//instances/i", "/Instances/i", "/INSTANCES//i//"] {
        assert_eq!(get(&api, path).await.status, 202, "{path}");
    }
    assert_eq!(api.get("/runtime/webhooks/durableTask/instances/i").await.status, 202);
    assert_eq!(api.get("/runtime/webhooks/other/instances/i").await.status, 404);
    assert_eq!(control(&api, "/instances/i/Suspend").await, 202);
    for (method, path) in [
        (Method::PUT, "/instances/i"),
        (Method::GET, "/orchestrators/Wait"),
        (Method::GET, "/instances/i/terminate"),
        (Method::POST, "/instances"),
        (Method::POST, "/instances/i/explode"),
        (Method::POST, "/instances/i/raiseEvent"),
        (Method::GET, "/nothing"),
    ] {
        assert_eq!(bare(&request(&api, method, path, Body::empty()).await), 404, "{path}");
    }
    assert_eq!(bare(&get(&api, "/instances/a%20b").await), 404);
    assert_eq!(json_of(&get(&api, "/instances/i?unknown=1&connectionName=x").await)["input"], json!({}));
    let (status, message) = message(&get(&api, "/instances/i?showInput=maybe").await);
    assert!(status == 400 && message.starts_with("showInput"), "{message}");
    assert_eq!(Value::Null, json_of(&get(&api, "/instances/i").await)["output"]);
}

#[tokio::test]
async fn a_reserved_instance_id_is_rejected() {
    let api = api().await;
    let (status, message) = message(&post(&api, "/orchestrators/Wait/purge", &json!({})).await);
    assert!(status == 400 && message.starts_with("instanceId"), "{status} {message}");
    let own = json!({"workflow": "Wait", "instanceId": "purge"});
    assert_eq!(api.post("/api/instances", &own).await.status, 400);
}
