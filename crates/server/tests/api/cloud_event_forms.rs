//! `POST /api/events`: what the forms of CloudEvents take and refuse.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::world::{Answer, World, error};

/// A world in which events of one type are recorded.
async fn world() -> World {
    let world = World::new().await;
    let route = json!({"entityType": "device", "action": "record"}).to_string();
    assert_eq!(world.ask(Method::PUT, "/api/routes/noted", route).await.status, 200);
    world
}

/// Sends an event in headers, with these besides.
async fn binary(world: &World, content_type: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post("/api/events").header("content-type", content_type);
    for (name, value) in [("ce-specversion", "1.0"), ("ce-source", "/fleet"), ("ce-type", "noted")] {
        request = request.header(name, value);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    world.send(request.body(Body::from("{}")).unwrap()).await
}

async fn recorded(world: &World, session: &str) -> Value {
    world.get(&format!("/api/entities/device/{session}/events")).await.data()["items"][0]["event"].clone()
}

#[tokio::test]
async fn a_quoted_header_is_unquoted_before_it_is_decoded() {
    let world = world().await;
    let headers = [("ce-id", "1"), ("ce-subject", "\"dev-1\""), ("ce-said", "\"a \\\"b\\\\ %22c%C3%A4\"")];
    let answer = binary(&world, "application/json", &headers).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(recorded(&world, "dev-1").await["said"], "a \"b\\ \"cä");
    let headers = [("ce-id", "2"), ("ce-subject", "dev-2"), ("ce-said", "a \"b\" c")];
    assert_eq!(binary(&world, "application/json", &headers).await.status, 202);
    assert_eq!(recorded(&world, "dev-2").await["said"], "a \"b\" c", "quotes within are as they are");
    for wrong in ["\"a", "\"", "\"a\\\"", "\"a\"b"] {
        let headers = [("ce-id", "3"), ("ce-subject", "dev-3"), ("ce-said", wrong)];
        let refused = binary(&world, "application/json", &headers).await;
        assert_eq!(error(&refused, 400)["target"], "ce-said", "{wrong}");
    }
}

#[tokio::test]
async fn another_form_of_whole_events_is_not_taken_for_the_data_of_one() {
    let world = world().await;
    let headers = [("ce-id", "1"), ("ce-subject", "dev-1")];
    for kind in [
        "application/cloudevents+xml",
        "application/cloudevents-batch+avro",
        "Application/CloudEvents+protobuf; x=y",
    ] {
        assert_eq!(binary(&world, kind, &headers).await.status, 415, "{kind}");
    }
    assert_eq!(binary(&world, "application/xml", &headers).await.status, 202);
}

#[tokio::test]
async fn data_and_its_type_are_no_headers_of_their_own() {
    let world = world().await;
    for name in ["ce-data", "ce-data_base64", "ce-datacontenttype"] {
        let headers = [("ce-id", "1"), ("ce-subject", "dev-1"), (name, "e30=")];
        let refused = binary(&world, "application/json", &headers).await;
        assert_eq!(error(&refused, 400)["target"], name);
    }
}

#[tokio::test]
async fn numbers_in_attributes_are_whole_and_of_32_bits() {
    let world = world().await;
    let send = async |number: &str| {
        let event = format!(
            r#"{{"specversion": "1.0", "id": "{number}", "source": "/fleet", "type": "noted", "subject": "d", "n": {number}}}"#
        );
        let request = Request::post("/api/events").header("content-type", "application/cloudevents+json");
        world.send(request.body(Body::from(event)).unwrap()).await
    };
    for fine in ["0", "-2147483648", "2147483647", "true"] {
        assert_eq!(send(fine).await.status, 202, "{fine}");
    }
    for wrong in ["1.5", "1e3", "2147483648", "-2147483649"] {
        assert_eq!(error(&send(wrong).await, 400)["target"], "/n", "{wrong}");
    }
}
