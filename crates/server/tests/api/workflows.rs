//! Publishing definitions.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;

use crate::world::{World, definition, echo, error, failed, waits};

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
    assert_eq!((&shown["version"], &shown["default"]), (&json!("1.0.0"), &json!(true)));
    assert_eq!(
        (&shown["definition"], &shown["hash"]),
        (&definition("w", "1.0.0", &echo()), &first.data()["hash"])
    );
    let shown = world.get("/api/workflows/w?version=1.10.0").await.data();
    assert_eq!((&shown["version"], &shown["default"]), (&json!("1.10.0"), &json!(false)));
    assert_eq!(shown["definition"]["states"], other);
    assert_eq!(world.get("/api/workflows/w?version=7.0.0").await.status, 404);
    assert_eq!(error(&world.get("/api/workflows/w?version=seven").await, 400)["target"], "version");
    let first_page = world.get("/api/workflows/w/versions?limit=1").await.data();
    assert_eq!(first_page["items"][0]["version"], "1.10.0");
    let token = first_page["continuationToken"].as_str().unwrap();
    let rest = world.get(&format!("/api/workflows/w/versions?continuationToken={token}")).await.data();
    assert_eq!((&rest["items"][0]["version"], &rest["continuationToken"]), (&json!("1.0.0"), &json!(null)));
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

    let garbage = world.ask(Method::POST, "/api/workflows", "{\"id\":").await;
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

#[tokio::test]
async fn versions_are_listed_made_default_and_retired_when_nobody_needs_them() {
    let world = World::new().await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(world.post("/api/workflows", &definition("w", version, &waits())).await.status, 201);
    }
    let retire = "/api/workflows/w/versions/1.0.0/retire";
    assert_eq!(error(&world.post(retire, &json!({})).await, 409)["code"], "CONFLICT", "it is the default");
    let start = json!({"workflow": "w", "instanceId": "a"});
    assert_eq!(world.post("/api/instances", &start).await.status, 202);
    let set =
        world.ask(Method::PUT, "/api/workflows/w/default", json!({"version": "2.0.0"}).to_string()).await;
    assert_eq!(set.status, 200, "{}", set.text);
    let versions = world.get("/api/workflows/w/versions").await.data()["items"].clone();
    let of = |place: usize| {
        let version = &versions[place];
        (
            version["version"].clone(),
            version["default"].clone(),
            version["retired"].clone(),
            version["live"].clone(),
        )
    };
    assert_eq!(of(0), (json!("2.0.0"), json!(true), json!(false), json!(0)));
    assert_eq!(of(1), (json!("1.0.0"), json!(false), json!(false), json!(1)));
    assert_eq!(world.post(retire, &json!({})).await.status, 409, "a run of it lives");
    assert_eq!(world.post("/api/instances/a/events/Go", &json!(null)).await.status, 202);
    assert_eq!(world.post(retire, &json!({})).await.status, 200, "the run has ended");
    let start = json!({"workflow": "w", "version": "=1.0.0"});
    assert_eq!(world.post("/api/instances", &start).await.status, 404, "no new run can have it");
    let listed = world.get("/api/workflows").await.data();
    assert_eq!(listed["items"], json!([{"id": "w", "defaultVersion": "2.0.0"}]));
}

#[tokio::test]
async fn a_definition_is_judged_without_being_published_and_has_no_engines_name() {
    let world = World::new().await;
    let fine = world.post("/api/workflows/validate", &definition("w", "1.0.0", &echo())).await.data();
    assert_eq!(fine["valid"], true);
    let broken = json!({"Begin": {"type": "task", "activity": "no.such", "next": "Nowhere"}});
    let found = world.post("/api/workflows/validate", &definition("w", "1.0.0", &broken)).await.data();
    assert_eq!(found["valid"], false);
    assert!(found["findings"].as_array().unwrap().len() >= 2, "{found}");
    assert_eq!(world.get("/api/workflows/w").await.status, 404);
    for path in ["/api/workflows", "/api/workflows/validate"] {
        let refused = world.post(path, &definition("ingress", "1.0.0", &echo())).await;
        assert_eq!(error(&refused, 400)["target"], "/id");
    }
}

#[tokio::test]
async fn a_version_is_not_retired_when_a_run_of_it_has_just_begun() {
    let world = World::new().await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(world.post("/api/workflows", &definition("w", version, &waits())).await.status, 201);
    }
    let retire = "/api/workflows/w/versions/2.0.0/retire";
    for number in 0..5 {
        let start = json!({"workflow": "w", "version": "=2.0.0", "instanceId": format!("i-{number}")});
        assert_eq!(world.post("/api/instances", &start).await.status, 202, "what was refused is taken back");
        let refused = error(&world.post(retire, &json!({})).await, 409);
        let told = format!("{} runs of w 2.0.0 live", number + 1);
        assert!(refused["message"].as_str().unwrap().starts_with(&told), "{refused}");
    }
    for number in 0..5 {
        world.post(&format!("/api/instances/i-{number}/events/Go"), &json!(null)).await;
    }
    assert_eq!(world.post(retire, &json!({})).await.status, 200, "the ends of all are seen");
    assert_eq!(world.post(retire, &json!({})).await.status, 200, "again");
    assert_eq!(
        world.post("/api/instances/i-0/restart", &json!({})).await.error(),
        failed(409, "CONFLICT", "")
    );
    let durable = "/runtime/webhooks/durabletask/instances/i-0/restart";
    assert_eq!(world.ask(Method::POST, durable, "").await.status, 409);
}

#[tokio::test]
async fn a_restart_that_was_done_is_told_again_after_its_version_was_retired() {
    let world = World::new().await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(world.post("/api/workflows", &definition("w", version, &echo())).await.status, 201);
    }
    let start = json!({"workflow": "w", "version": "=2.0.0", "instanceId": "i"});
    assert_eq!(world.post("/api/instances?wait=PT30S", &start).await.status, 200);
    let restart = || {
        let request = Request::post("/api/instances/i/restart").header("idempotency-key", "k");
        world.send(request.body(Body::empty()).unwrap())
    };
    let first = restart().await;
    assert_eq!(first.status, 202, "{}", first.text);
    let retired = world.post("/api/workflows/w/versions/2.0.0/retire", &json!({})).await;
    assert_eq!(retired.status, 200, "{}", retired.text);
    assert_eq!(restart().await.data(), first.data());
}
