//! `/api/workflows`: publishing, validating and retiring definitions.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;

use crate::test_api::{TestApi, definition, echo, error, failed, waits_for_event};

#[tokio::test]
async fn a_definition_is_published_once_and_its_version_never_changes() {
    let api = TestApi::new().await;
    let first = api.publish("w", &echo()).await;
    assert_eq!(
        (first.status.as_u16(), &first.headers["location"]),
        (201, &"/api/workflows/w".parse().unwrap())
    );
    assert_eq!((&first.data()["id"], &first.data()["version"]), (&json!("w"), &json!("1.0.0")));

    let again = api.publish("w", &echo()).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, first.data()));

    let other = json!({"Begin": {"type": "succeed"}});
    assert_eq!(api.publish("w", &other).await.error(), failed(409, "CONFLICT", ""));

    assert_eq!(api.post("/api/workflows", &definition("w", "1.10.0", &other)).await.status, 201);
    let shown = api.get("/api/workflows/w").await.data();
    assert_eq!((&shown["version"], &shown["default"]), (&json!("1.0.0"), &json!(true)));
    assert_eq!(
        (&shown["definition"], &shown["hash"]),
        (&definition("w", "1.0.0", &echo()), &first.data()["hash"])
    );
    let shown = api.get("/api/workflows/w?version=1.10.0").await.data();
    assert_eq!((&shown["version"], &shown["default"]), (&json!("1.10.0"), &json!(false)));
    assert_eq!(shown["definition"]["states"], other);
    assert_eq!(api.get("/api/workflows/w?version=7.0.0").await.status, 404);
    assert_eq!(error(&api.get("/api/workflows/w?version=seven").await, 400)["target"], "version");
    let first_page = api.get("/api/workflows/w/versions?limit=1").await.data();
    assert_eq!(first_page["items"][0]["version"], "1.10.0");
    let token = first_page["continuationToken"].as_str().unwrap();
    let rest = api.get(&format!("/api/workflows/w/versions?continuationToken={token}")).await.data();
    assert_eq!((&rest["items"][0]["version"], &rest["continuationToken"]), (&json!("1.0.0"), &json!(null)));
    assert_eq!(api.get("/api/workflows/none").await.error(), failed(404, "RESOURCE_NOT_FOUND", ""));
}

#[tokio::test]
async fn findings_have_a_pointer_a_code_a_message_and_a_hint() {
    let api = TestApi::new().await;
    let states = json!({"Begin": {"type": "task", "activity": "no.such", "next": "Nowhere"}});
    let rejected = api.publish("w", &states).await;
    assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", ""));
    let details = rejected.json()["error"]["details"].clone();
    let findings: Vec<(&str, &str)> = details
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| (detail["code"].as_str().unwrap(), detail["target"].as_str().unwrap()))
        .collect();
    assert!(findings.contains(&("unknown-activity", "/states/Begin/activity")), "{findings:?}");
    assert!(findings.contains(&("dangling-target", "/states/Begin/next")), "{findings:?}");
    for detail in details.as_array().unwrap() {
        assert!(
            !detail["message"].as_str().unwrap().is_empty() && !detail["hint"].as_str().unwrap().is_empty()
        );
    }

    let garbage = api.request(Method::POST, "/api/workflows", "{\"id\":").await;
    assert_eq!(garbage.status, 400);
    assert_eq!(garbage.json()["error"]["details"][0]["code"], "malformed-json");
}

#[tokio::test]
async fn definitions_can_use_the_built_in_activities() {
    let api = TestApi::new().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "core.echo", "input": {"n": "$.input.n"}, "output": "$.state.out", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.out"},
    });
    assert_eq!(api.publish("w", &states).await.status, 201);
    let ended = api.post("/api/instances?wait=PT30S", &json!({"workflow": "w", "input": {"n": 7}})).await;
    assert_eq!((ended.status.as_u16(), &ended.data()["output"]), (200, &json!({"n": 7})));
}

#[tokio::test]
async fn versions_are_listed_made_default_and_retired_when_they_have_no_live_runs() {
    let api = TestApi::new().await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(
            api.post("/api/workflows", &definition("w", version, &waits_for_event())).await.status,
            201
        );
    }
    let retire = "/api/workflows/w/versions/1.0.0/retire";
    assert_eq!(error(&api.post(retire, &json!({})).await, 409)["code"], "CONFLICT", "it is the default");
    let start = json!({"workflow": "w", "instanceId": "a"});
    assert_eq!(api.post("/api/instances", &start).await.status, 202);
    let set =
        api.request(Method::PUT, "/api/workflows/w/default", json!({"version": "2.0.0"}).to_string()).await;
    assert_eq!(set.status, 200, "{}", set.text);
    let versions = api.get("/api/workflows/w/versions").await.data()["items"].clone();
    let version_item = |index: usize| {
        let version = &versions[index];
        (
            version["version"].clone(),
            version["default"].clone(),
            version["retired"].clone(),
            version["live"].clone(),
        )
    };
    assert_eq!(version_item(0), (json!("2.0.0"), json!(true), json!(false), json!(0)));
    assert_eq!(version_item(1), (json!("1.0.0"), json!(false), json!(false), json!(1)));
    assert_eq!(api.post(retire, &json!({})).await.status, 409, "it has a live run");
    assert_eq!(api.post("/api/instances/a/events/Go", &json!(null)).await.status, 202);
    assert_eq!(api.post(retire, &json!({})).await.status, 200, "the run has ended");
    let start = json!({"workflow": "w", "version": "=1.0.0"});
    assert_eq!(api.post("/api/instances", &start).await.status, 404, "no new run can use it");
    let listed = api.get("/api/workflows").await.data();
    assert_eq!(listed["items"], json!([{"id": "w", "defaultVersion": "2.0.0"}]));
}

#[tokio::test]
async fn a_definition_is_validated_without_being_published_and_reserved_ids_are_rejected() {
    let api = TestApi::new().await;
    let valid = api.post("/api/workflows/validate", &definition("w", "1.0.0", &echo())).await.data();
    assert_eq!(valid["valid"], true);
    let broken = json!({"Begin": {"type": "task", "activity": "no.such", "next": "Nowhere"}});
    let found = api.post("/api/workflows/validate", &definition("w", "1.0.0", &broken)).await.data();
    assert_eq!(found["valid"], false);
    assert!(found["findings"].as_array().unwrap().len() >= 2, "{found}");
    assert_eq!(api.get("/api/workflows/w").await.status, 404);
    for path in ["/api/workflows", "/api/workflows/validate"] {
        let rejected = api.post(path, &definition("ingress", "1.0.0", &echo())).await;
        assert_eq!(error(&rejected, 400)["target"], "/id");
    }
}

#[tokio::test]
async fn a_version_with_a_run_that_has_just_started_is_not_retired() {
    let api = TestApi::new().await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(
            api.post("/api/workflows", &definition("w", version, &waits_for_event())).await.status,
            201
        );
    }
    let retire = "/api/workflows/w/versions/2.0.0/retire";
    for number in 0..5 {
        let start = json!({"workflow": "w", "version": "=2.0.0", "instanceId": format!("i-{number}")});
        assert_eq!(
            api.post("/api/instances", &start).await.status,
            202,
            "a rejected retirement is withdrawn"
        );
        let rejected = error(&api.post(retire, &json!({})).await, 409);
        let expected = format!("cannot retire w 2.0.0 while runs of it are live: {}", number + 1);
        assert_eq!(rejected["message"], expected, "{rejected}");
    }
    for number in 0..5 {
        api.post(&format!("/api/instances/i-{number}/events/Go"), &json!(null)).await;
    }
    assert_eq!(api.post(retire, &json!({})).await.status, 200, "all runs have ended");
    assert_eq!(api.post(retire, &json!({})).await.status, 200, "again");
    assert_eq!(api.post("/api/instances/i-0/restart", &json!({})).await.error(), failed(409, "CONFLICT", ""));
    let durable = "/runtime/webhooks/durabletask/instances/i-0/restart";
    assert_eq!(api.request(Method::POST, durable, "").await.status, 409);
}

#[tokio::test]
async fn a_repeated_restart_gets_the_original_response_after_its_version_was_retired() {
    let api = TestApi::new().await;
    for version in ["1.0.0", "2.0.0"] {
        assert_eq!(api.post("/api/workflows", &definition("w", version, &echo())).await.status, 201);
    }
    let start = json!({"workflow": "w", "version": "=2.0.0", "instanceId": "i"});
    assert_eq!(api.post("/api/instances?wait=PT30S", &start).await.status, 200);
    let restart = || {
        let request = Request::post("/api/instances/i/restart").header("idempotency-key", "k");
        api.send(request.body(Body::empty()).unwrap())
    };
    let first = restart().await;
    assert_eq!(first.status, 202, "{}", first.text);
    let retired = api.post("/api/workflows/w/versions/2.0.0/retire", &json!({})).await;
    assert_eq!(retired.status, 200, "{}", retired.text);
    assert_eq!(restart().await.data(), first.data());
}
