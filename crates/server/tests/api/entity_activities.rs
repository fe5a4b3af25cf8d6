//! The activities with which workflows use entities, on a complete server.

use serde_json::{Value, json};

use crate::server::{config, http_request};
use crate::test_api::definition;

fn task(activity: &str, input: &Value, to: &str, next: &str) -> Value {
    json!({"type": "task", "activity": activity, "input": input, "output": to, "next": next})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_recorded_after_the_workflow_read_the_position_are_neither_read_nor_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let server = abide_server::Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let address = server.address();
    let input = |up_to: &str| json!({"entityType": "device", "entityId": "$.input.key", "upTo": up_to});
    let states = json!({
        "Begin": task("entity.get", &json!({"entityType": "device", "entityId": "$.input.key"}), "$.state.e", "Wait"),
        "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D", "next": "Read"},
        "Read": task("GetEntityEvents", &input("$.state.e.lastPosition"), "$.state.events", "Clear"),
        "Clear": task("ClearEntityEvents", &input("$.state.e.lastPosition"), "$.state.cleared", "Page"),
        "Page": task(
            "entity.call",
            &json!({"entityType": "device", "entityId": "$.input.key", "operation": "GetEvents", "input": {"from": 0, "limit": 1}}),
            "$.state.page", "Done",
        ),
        "Done": {"type": "succeed", "output": "$.state"},
    });
    let published =
        http_request(address, "POST", "/api/workflows", &definition("w", "1.0.0", &states).to_string()).await;
    assert_eq!(published.0, 201, "{}", published.1);
    let record = async |key: &str, event: Value| {
        let path = format!("/api/entities/device/{key}/RecordEvent");
        assert_eq!(http_request(address, "POST", &path, &event.to_string()).await.0, 200);
    };
    let run = async |key: &str| {
        let start = json!({"workflow": "w", "instanceId": key, "input": {"key": key}}).to_string();
        assert_eq!(http_request(address, "POST", "/api/instances", &start).await.0, 202);
        let path = format!("/api/instances/{key}");
        let shown = async || http_request(address, "GET", &path, "").await.1["data"].clone();
        while shown().await["currentStates"][0]["state"] != "Wait" {
            assert_ne!(shown().await["status"], "Failed", "{}", shown().await);
        }
        record(key, json!({"n": "late-1"})).await;
        record(key, json!({"n": "late-2"})).await;
        http_request(address, "POST", &format!("{path}/events/Go"), "").await;
        loop {
            let shown = shown().await;
            assert_ne!(shown["status"], "Failed", "{shown}");
            if shown["status"] == "Completed" {
                break shown["output"].clone();
            }
        }
    };
    record("full", json!({"n": 0})).await;
    record("full", json!({"n": 1})).await;
    let full = run("full").await;
    assert_eq!((&full["e"]["lastPosition"], &full["e"]["eventCount"]), (&json!(1), &json!(2)), "{full}");
    assert_eq!(full["events"], json!([{"n": 0}, {"n": 1}]));
    assert_eq!(full["cleared"]["cleared"], 2);
    let page = &full["page"];
    assert_eq!(
        (&page["events"][0]["position"], &page["events"][0]["event"]),
        (&json!(2), &json!({"n": "late-1"}))
    );
    assert!(page["events"][0]["recordedAtUtc"].is_string() && page["events"][1].is_null(), "{page}");
    assert_eq!(page["nextPosition"], 3);

    record("empty", json!({"n": 0})).await;
    assert_eq!(http_request(address, "POST", "/api/entities/device/empty/Clear", "").await.0, 200);
    let empty = run("empty").await;
    assert_eq!((&empty["e"]["lastPosition"], &empty["events"]), (&json!(null), &json!([])), "{empty}");
    assert_eq!((&empty["cleared"]["cleared"], &empty["page"]["nextPosition"]), (&json!(0), &json!(2)));
    server.stop().await;
}
