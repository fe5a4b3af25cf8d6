//! Publishing definitions.

use serde_json::json;

use crate::world::{World, definition, echo, failed};

#[tokio::test]
async fn a_definition_is_published_once_and_its_version_never_changes() {
    let world = World::new().await;
    let first = world.publish("w", &echo()).await;
    assert_eq!(
        (first.status.as_u16(), &first.headers["location"]),
        (201, &"/api/workflows/w".parse().unwrap())
    );
    assert_eq!((&first.data()["id"], &first.data()["version"]), (&json!("w"), &json!("1.0.0")));

    let again = world.publish("w", &echo()).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, first.data()));

    let other = json!({"Begin": {"type": "succeed"}});
    assert_eq!(world.publish("w", &other).await.error(), failed(409, "CONFLICT", ""));

    assert_eq!(world.post("/api/workflows", &definition("w", "1.10.0", &other)).await.status, 201);
    let shown = world.get("/api/workflows/w").await.data();
    assert_eq!((&shown["id"], &shown["defaultVersion"]), (&json!("w"), &json!("1.0.0")));
    let versions: Vec<&str> =
        shown["versions"].as_array().unwrap().iter().map(|v| v["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["1.10.0", "1.0.0"]);
    assert_eq!(shown["versions"][1]["hash"], first.data()["hash"]);
    assert_eq!(world.get("/api/workflows/none").await.error(), failed(404, "RESOURCE_NOT_FOUND", ""));
}

#[tokio::test]
async fn findings_are_told_with_place_code_message_and_hint() {
    let world = World::new().await;
    let states = json!({"Begin": {"type": "task", "activity": "no.such", "next": "Nowhere"}});
    let refused = world.publish("w", &states).await;
    assert_eq!(refused.error(), failed(400, "VALIDATION_ERROR", ""));
    let details = refused.json()["error"]["details"].clone();
    let told: Vec<(&str, &str)> = details
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| (detail["code"].as_str().unwrap(), detail["target"].as_str().unwrap()))
        .collect();
    assert!(told.contains(&("unknown-activity", "/states/Begin/activity")), "{told:?}");
    assert!(told.contains(&("dangling-target", "/states/Begin/next")), "{told:?}");
    for detail in details.as_array().unwrap() {
        assert!(
            !detail["message"].as_str().unwrap().is_empty() && !detail["hint"].as_str().unwrap().is_empty()
        );
    }

    let garbage = world.ask(axum::http::Method::POST, "/api/workflows", "{\"id\":").await;
    assert_eq!(garbage.status, 400);
    assert_eq!(garbage.json()["error"]["details"][0]["code"], "malformed-json");
}

#[tokio::test]
async fn the_activities_that_every_server_has_can_be_named() {
    let world = World::new().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "core.echo", "input": {"n": "$.input.n"}, "output": "$.state.out", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.out"},
    });
    assert_eq!(world.publish("w", &states).await.status, 201);
    let ended = world.post("/api/instances?wait=PT30S", &json!({"workflow": "w", "input": {"n": 7}})).await;
    assert_eq!((ended.status.as_u16(), &ended.data()["output"]), (200, &json!({"n": 7})));
}
