//! The interface of Durable Functions as its clients and scripts meet it.

mod entities;
mod lists;
mod orders;
mod script;
mod starts;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// Where a script was told to find the server.
const ORIGIN: &str = "http://localhost:7071";
const ROOT: &str = "/runtime/webhooks/durabletask";

/// One request to an address as the server gave it, or to a path below the root.
async fn ask(world: &World, method: Method, address: &str, body: impl Into<Body>) -> Answer {
    let path = match address.strip_prefix(ORIGIN) {
        Some(path) => path.to_owned(),
        None => format!("{ROOT}{address}"),
    };
    let request = Request::builder().method(method).uri(path).header("host", "localhost:7071");
    world.send(request.body(body.into()).unwrap()).await
}

async fn get(world: &World, address: &str) -> Answer {
    ask(world, Method::GET, address, Body::empty()).await
}

async fn post(world: &World, address: &str, body: &Value) -> Answer {
    ask(world, Method::POST, address, body.to_string()).await
}

/// An order or anything else that is posted without a body.
async fn order(world: &World, address: &str) -> u16 {
    ask(world, Method::POST, address, Body::empty()).await.status.as_u16()
}

async fn delete(world: &World, address: &str) -> Answer {
    ask(world, Method::DELETE, address, Body::empty()).await
}

/// A body without an envelope.
fn json_of(answer: &Answer) -> Value {
    assert_eq!(answer.headers["content-type"], "application/json; charset=utf-8", "{}", answer.text);
    serde_json::from_str(&answer.text).unwrap()
}

/// Status and message of a failure.
fn message(answer: &Answer) -> (u16, String) {
    let json = json_of(answer);
    assert_eq!(json["Message"], json["ExceptionMessage"]);
    (answer.status.as_u16(), json["Message"].as_str().unwrap().to_owned())
}

/// A status alone.
fn bare(answer: &Answer) -> u16 {
    assert_eq!((answer.text.as_str(), answer.headers.get("content-type")), ("", None));
    answer.status.as_u16()
}

/// A world with a definition that waits for `Go`, one that ends at once, and one that fails.
async fn world() -> World {
    let world = World::new().await;
    world.publish_waiting("Wait").await;
    world.publish("Echo", &crate::world::echo()).await;
    let fail = json!({"Begin": {"type": "fail", "error": "Broken", "message": "as asked"}});
    assert_eq!(world.publish("Fail", &fail).await.status, 201);
    world
}

/// How an instance stands.
async fn status(world: &World, id: &str) -> (u16, String) {
    let answer = get(world, &format!("/instances/{id}")).await;
    (answer.status.as_u16(), json_of(&answer)["runtimeStatus"].as_str().unwrap().to_owned())
}
