//! What a script does: it knows the address of the start and follows what it is told.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use super::{ask, bare, delete, get, json_of, order, post, world};
use crate::world::{Answer, World};

fn address(management: &Value, name: &str) -> String {
    management[name].as_str().unwrap().to_owned()
}

/// Asks where it is told to ask again until it is told no more, as clients of the pattern do. `Retry-After` is theirs to wait for.
async fn poll_to_the_end(world: &World, mut address: String) -> Answer {
    loop {
        let answer = get(world, &address).await;
        if answer.status != 202 {
            return answer;
        }
        assert_eq!(answer.headers["retry-after"], "5");
        address = answer.headers["location"].to_str().unwrap().to_owned();
    }
}

#[tokio::test]
async fn a_script_starts_polls_and_purges_by_the_addresses_it_is_given() {
    let world = world().await;
    let started = post(&world, "/orchestrators/Wait?code=secret%3D", &json!({"order": 7})).await;
    assert_eq!((started.status.as_u16(), &started.headers["retry-after"]), (202, &"10".parse().unwrap()));
    let management = json_of(&started);
    let status = address(&management, "statusQueryGetUri");
    assert_eq!(started.headers["location"], status.as_str());
    assert!(status.starts_with("http://localhost:7071/runtime/webhooks/durabletask/instances/"), "{status}");
    assert!(status.ends_with("?taskHub=abide&connection=Storage&code=secret%3D"), "{status}");

    let running = get(&world, &format!("{status}&showInput=false")).await;
    assert_eq!((running.status.as_u16(), &json_of(&running)["input"]), (202, &Value::Null));
    let again = running.headers["location"].to_str().unwrap();
    assert_eq!(again, format!("{status}&showInput=false"));

    let event = address(&management, "sendEventPostUri").replace("{eventName}", "Go");
    assert_eq!(post(&world, &event, &json!(["late"])).await.status, 202);
    let ended = poll_to_the_end(&world, status.clone()).await;
    assert_eq!((ended.status.as_u16(), ended.headers.get("location")), (200, None));
    let ended = json_of(&ended);
    for (name, value) in [
        ("name", json!("Wait")),
        ("instanceId", management["id"].clone()),
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

    let purged = delete(&world, &address(&management, "purgeHistoryDeleteUri")).await;
    assert_eq!((purged.status.as_u16(), json_of(&purged)), (200, json!({"instancesDeleted": 1})));
    assert_eq!(bare(&get(&world, &status).await), 404);
}

#[tokio::test]
async fn every_order_can_be_given_by_the_address_that_came_with_the_start() {
    let world = world().await;
    let management = json_of(&post(&world, "/orchestrators/Wait/i", &json!({})).await);
    let address = |name: &str| address(&management, name).replace("{text}", "a%20reason");
    assert_eq!(management["id"], "i");
    for (name, expected) in [("suspendPostUri", "Suspended"), ("resumePostUri", "Running")] {
        assert_eq!(order(&world, &address(name)).await, 202, "{name}");
        assert_eq!(super::status(&world, "i").await, (202, expected.to_owned()));
    }
    assert_eq!(order(&world, &address("terminatePostUri")).await, 202);
    assert_eq!(super::status(&world, "i").await, (200, "Terminated".to_owned()));
    assert_eq!(order(&world, &address("rewindPostUri")).await, 410);
    let restarted = ask(&world, Method::POST, &address("restartPostUri"), Body::empty()).await;
    assert_eq!(restarted.status, 202);
    let names: Vec<String> = management.as_object().unwrap().keys().cloned().collect();
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
    let history = get(&world, "/instances/i?showHistory=true").await.text;
    assert_eq!(history.matches("a reason").count(), 3, "{history}");
}
