//! The behaviour of a typical script: it knows the URL of the start and then follows the URLs in the responses.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use super::{api, bare, control, delete, get, json_of, post, request};
use crate::test_api::{TestApi, TestResponse};

fn address(links: &Value, name: &str) -> String {
    links[name].as_str().unwrap().to_owned()
}

/// Polls the `Location` of each 202 response until the instance has ended, as clients of the pattern do. Does not wait
/// for `Retry-After`.
async fn poll_to_the_end(api: &TestApi, mut address: String) -> TestResponse {
    loop {
        let response = get(api, &address).await;
        if response.status != 202 {
            return response;
        }
        assert_eq!(response.headers["retry-after"], "5");
        address = response.headers["location"].to_str().unwrap().to_owned();
    }
}

#[tokio::test]
async fn a_script_starts_polls_and_purges_with_the_urls_of_the_responses() {
    let api = api().await;
    let started = post(&api, "/orchestrators/Wait?code=secret%3D", &json!({"order": 7})).await;
    assert_eq!((started.status.as_u16(), &started.headers["retry-after"]), (202, &"10".parse().unwrap()));
    let links = json_of(&started);
    let status = address(&links, "statusQueryGetUri");
    assert_eq!(started.headers["location"], status.as_str());
    assert!(status.starts_with("http://localhost:7071/runtime/webhooks/durabletask/instances/"), "{status}");
    assert!(status.ends_with("?taskHub=abide&connection=Storage&code=secret%3D"), "{status}");

    let running = get(&api, &format!("{status}&showInput=false")).await;
    assert_eq!((running.status.as_u16(), &json_of(&running)["input"]), (202, &Value::Null));
    let again = running.headers["location"].to_str().unwrap();
    assert_eq!(again, format!("{status}&showInput=false"));

    let event = address(&links, "sendEventPostUri").replace("{eventName}", "Go");
    assert_eq!(post(&api, &event, &json!(["late"])).await.status, 202);
    let ended = poll_to_the_end(&api, status.clone()).await;
    assert_eq!((ended.status.as_u16(), ended.headers.get("location")), (200, None));
    let ended = json_of(&ended);
    for (name, value) in [
        ("name", json!("Wait")),
        ("instanceId", links["id"].clone()),
        ("runtimeStatus", json!("Completed")),
        ("input", json!({"order": 7})),
        ("customStatus", Value::Null),
        ("output", json!(["late"])),
    ] {
        assert_eq!(ended[name], value, "{name}");
    }
    for name in ["createdTime", "lastUpdatedTime"] {
        assert_eq!((ended[name].as_str().unwrap().len(), &ended[name].as_str().unwrap()[19..]), (20, "Z"));
    }
    assert_eq!(ended.as_object().unwrap().len(), 8, "{ended}");

    let purged = delete(&api, &address(&links, "purgeHistoryDeleteUri")).await;
    assert_eq!((purged.status.as_u16(), json_of(&purged)), (200, json!({"instancesDeleted": 1})));
    assert_eq!(bare(&get(&api, &status).await), 404);
}

#[tokio::test]
async fn every_control_operation_works_with_the_url_from_the_start() {
    let api = api().await;
    let links = json_of(&post(&api, "/orchestrators/Wait/i", &json!({})).await);
    let address = |name: &str| address(&links, name).replace("{text}", "a%20reason");
    assert_eq!(links["id"], "i");
    for (name, expected) in [("suspendPostUri", "Suspended"), ("resumePostUri", "Running")] {
        assert_eq!(control(&api, &address(name)).await, 202, "{name}");
        assert_eq!(super::status(&api, "i").await, (202, expected.to_owned()));
    }
    assert_eq!(control(&api, &address("terminatePostUri")).await, 202);
    assert_eq!(super::status(&api, "i").await, (200, "Terminated".to_owned()));
    assert_eq!(control(&api, &address("rewindPostUri")).await, 410);
    let restarted = request(&api, Method::POST, &address("restartPostUri"), Body::empty()).await;
    assert_eq!(restarted.status, 202);
    let names: Vec<String> = links.as_object().unwrap().keys().cloned().collect();
    let expected = [
        "id",
        "purgeHistoryDeleteUri",
        "restartPostUri",
        "resumePostUri",
        "rewindPostUri",
        "sendEventPostUri",
        "statusQueryGetUri",
        "suspendPostUri",
        "terminatePostUri",
    ];
    assert_eq!(names, expected);
    let history = get(&api, "/instances/i?showHistory=true").await.text;
    assert_eq!(history.matches("a reason").count(), 3, "{history}");
}
