//! Beginning runs, waiting for their end, and beginning them again.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::{ROOT, ask, bare, get, json_of, message, order, post, status, world};
use crate::world::{Answer, World, definition};

/// Starts with a body of this kind.
async fn start_as(world: &World, id: &str, kind: &str, body: &'static str) -> Answer {
    let path = format!("{ROOT}/orchestrators/Echo/{id}?timeout=30");
    let request = Request::builder().method(Method::POST).uri(path).header("content-type", kind);
    world.send(request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn a_function_that_is_not_there_and_an_id_that_cannot_be_are_mistakes_of_the_request() {
    let world = world().await;
    for (path, wrong) in [
        ("/orchestrators/Nothing", "functionName"),
        ("/orchestrators/Echo?version=7", "functionName"),
        ("/orchestrators/Echo?version=seven", "version"),
        ("/orchestrators/Echo/a%20b", "instanceId"),
        ("/orchestrators/Echo/@echo@key", "instanceId"),
        ("/orchestrators/Echo?timeout=soon", "timeout"),
    ] {
        let (status, message) = message(&post(&world, path, &json!({})).await);
        assert!(status == 400 && message.starts_with(wrong), "{path}: {status} {message}");
    }
    let broken = ask(&world, Method::POST, "/orchestrators/Echo", "{\"a\":").await;
    assert_eq!(message(&broken).0, 400);
}

#[tokio::test]
async fn an_input_that_does_not_fit_is_refused_with_its_place() {
    let world = world().await;
    let mut strict = definition("Strict", "1.0.0", &crate::world::echo());
    strict["input"] = json!({"type": "object", "required": ["order"]});
    assert_eq!(world.post("/api/workflows", &strict).await.status, 201);
    let (status, message) = message(&post(&world, "/orchestrators/Strict", &json!({})).await);
    assert!(status == 400 && message.contains("/input") && message.contains("order"), "{message}");
}

#[tokio::test]
async fn an_id_in_use_is_refused_until_its_run_has_ended() {
    let world = world().await;
    assert_eq!(post(&world, "/orchestrators/Wait/i", &json!({})).await.status, 202);
    assert_eq!(message(&post(&world, "/orchestrators/Wait/i", &json!({})).await).0, 409);
    assert_eq!(order(&world, "/instances/i/terminate").await, 202);
    assert_eq!(post(&world, "/orchestrators/Wait/i", &json!({})).await.status, 202);
    assert_eq!(status(&world, "i").await, (202, "Running".to_owned()));
}

#[tokio::test]
async fn the_kind_of_a_body_matters_only_if_there_is_one() {
    let world = world().await;
    for (number, kind) in ["application/octet-stream", "application/x-www-form-urlencoded"].iter().enumerate()
    {
        let answer = start_as(&world, &format!("empty-{number}"), kind, "").await;
        assert_eq!((answer.status.as_u16(), json_of(&answer)), (200, json!({})), "{kind}");
        assert_eq!(message(&start_as(&world, "i", kind, "{}").await).0, 400);
    }
    let answer = start_as(&world, "json", "application/json; charset=utf-8", "[1, \"a\"]").await;
    assert_eq!((answer.status.as_u16(), json_of(&answer)), (200, json!([1, "a"])));
    let unnamed = ask(&world, Method::POST, "/orchestrators/Echo/unnamed?timeout=30", "\"as it is\"").await;
    assert_eq!((unnamed.status.as_u16(), json_of(&unnamed)), (200, json!("as it is")));
}

#[tokio::test]
async fn a_start_that_waits_is_answered_by_the_output_or_by_how_it_stands() {
    let world = world().await;
    let ended = post(&world, "/orchestrators/Echo?timeout=30&pollingInterval=1", &json!(7)).await;
    assert_eq!((ended.status.as_u16(), json_of(&ended)), (200, json!(7)));
    let failed = post(&world, "/orchestrators/Fail?timeout=30&pollingInterval=1", &json!({})).await;
    assert_eq!((failed.status.as_u16(), &json_of(&failed)["runtimeStatus"]), (200, &json!("Failed")));
    let waiting = post(&world, "/orchestrators/Wait/i?timeout=0&pollingInterval=0", &json!({})).await;
    assert_eq!((waiting.status.as_u16(), &json_of(&waiting)["id"]), (202, &json!("i")));
}

#[tokio::test]
async fn a_restart_begins_another_instance_unless_the_same_is_asked_for() {
    let world = world().await;
    post(&world, "/orchestrators/Wait/i", &json!({"a": 1})).await;
    let other = json_of(&ask(&world, Method::POST, "/instances/i/restart", Body::empty()).await);
    let other = other["id"].as_str().unwrap();
    assert_eq!((other.len(), other == "i"), (32, false));
    let shown = json_of(&get(&world, &format!("/instances/{other}")).await);
    assert_eq!((&shown["name"], &shown["input"]), (&json!("Wait"), &json!({"a": 1})));

    let same = "/instances/i/restart?restartWithNewInstanceId=false";
    assert_eq!(message(&ask(&world, Method::POST, same, Body::empty()).await).0, 409);
    assert_eq!(order(&world, "/instances/i/terminate").await, 202);
    let restarted = ask(&world, Method::POST, same, Body::empty()).await;
    assert_eq!((restarted.status.as_u16(), &json_of(&restarted)["id"]), (202, &json!("i")));
    assert_eq!(status(&world, "i").await, (202, "Running".to_owned()));
    for path in ["/instances/none/restart", "/instances/none/restart?restartWithNewInstanceId=false"] {
        assert_eq!(bare(&ask(&world, Method::POST, path, Body::empty()).await), 404, "{path}");
    }
}

#[tokio::test]
async fn addresses_have_the_host_that_was_asked_and_no_other_host_is_answered() {
    let world = world().await;
    let start = |host: &'static str| {
        let path = format!("{ROOT}/orchestrators/Echo?taskHub=Hub");
        let request = Request::builder().method(Method::POST).uri(path).header("host", host);
        world.send(request.body(Body::empty()).unwrap())
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
async fn a_path_is_found_however_it_is_spelled_and_not_by_another_method() {
    let world = world().await;
    post(&world, "/orchestrators/Wait/i", &json!({})).await;
    for path in ["/instances/i/", "//instances/i", "/Instances/i", "/INSTANCES//i//"] {
        assert_eq!(get(&world, path).await.status, 202, "{path}");
    }
    assert_eq!(world.get("/runtime/webhooks/durableTask/instances/i").await.status, 202);
    assert_eq!(world.get("/runtime/webhooks/other/instances/i").await.status, 404);
    assert_eq!(order(&world, "/instances/i/Suspend").await, 202);
    for (method, path) in [
        (Method::PUT, "/instances/i"),
        (Method::GET, "/orchestrators/Wait"),
        (Method::GET, "/instances/i/terminate"),
        (Method::POST, "/instances"),
        (Method::POST, "/instances/i/explode"),
        (Method::POST, "/instances/i/raiseEvent"),
        (Method::GET, "/nothing"),
    ] {
        assert_eq!(bare(&ask(&world, method, path, Body::empty()).await), 404, "{path}");
    }
    assert_eq!(bare(&get(&world, "/instances/a%20b").await), 404);
    assert_eq!(json_of(&get(&world, "/instances/i?unknown=1&connectionName=x").await)["input"], json!({}));
    let (status, message) = message(&get(&world, "/instances/i?showInput=maybe").await);
    assert!(status == 400 && message.starts_with("showInput"), "{message}");
    assert_eq!(Value::Null, json_of(&get(&world, "/instances/i").await)["output"]);
}

#[tokio::test]
async fn an_id_whose_path_is_taken_is_refused() {
    let world = world().await;
    let (status, message) = message(&post(&world, "/orchestrators/Wait/purge", &json!({})).await);
    assert!(status == 400 && message.starts_with("instanceId"), "{status} {message}");
    let own = json!({"workflow": "Wait", "instanceId": "purge"});
    assert_eq!(world.post("/api/instances", &own).await.status, 400);
}
