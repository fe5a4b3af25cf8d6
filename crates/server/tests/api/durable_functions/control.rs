//! Events, control operations, history and purges.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::{ROOT, api, bare, control, delete, get, json_of, message, post, request, status};
use crate::test_api::TestApi;

async fn post_status(api: &TestApi, path: &str) -> u16 {
    bare(&request(api, Method::POST, path, Body::empty()).await)
}

#[tokio::test]
async fn control_operations_are_accepted_by_live_instances_and_gone_for_ended_ones() {
    let api = api().await;
    post(&api, "/orchestrators/Wait/i", &json!({})).await;
    let all = ["terminate", "suspend", "resume", "rewind", "raiseEvent/Go"];
    for what in all {
        assert_eq!(post_status(&api, &format!("/instances/none/{what}?reason=x")).await, 404, "{what}");
    }
    // Resuming an instance that is not suspended is no error.
    assert_eq!(post_status(&api, "/instances/i/resume").await, 202);
    assert_eq!(post_status(&api, "/instances/i/suspend?reason=an%20audit").await, 202);
    assert_eq!(status(&api, "i").await, (202, "Suspended".to_owned()));
    assert_eq!(post_status(&api, "/instances/i/raiseEvent/go").await, 202);
    assert_eq!(post_status(&api, "/instances/i/resume?reason=").await, 202);
    assert_eq!(status(&api, "i").await, (200, "Completed".to_owned()));
    for what in all {
        assert_eq!(post_status(&api, &format!("/instances/i/{what}")).await, 410, "{what}");
    }
}

#[tokio::test]
async fn only_a_failed_run_is_rewound() {
    let api = api().await;
    post(&api, "/orchestrators/Wait/live", &json!({})).await;
    let live = request(&api, Method::POST, "/instances/live/rewind", Body::empty()).await;
    assert!(live.status == 412 && json_of(&live).as_str().unwrap().contains("Running"), "{}", live.text);
    // It failed in a `fail` state: there is nothing to rewind to.
    post(&api, "/orchestrators/Fail/chosen?timeout=30", &json!({})).await;
    assert_eq!(control(&api, "/instances/chosen/rewind").await, 412);

    let states = json!({
        "Begin": {
            "type": "task", "activity": "core.fail", "input": {"times": 1, "retryable": false},
            "output": "$.state.out", "next": "Done",
        },
        "Done": {"type": "succeed", "output": "$.state.out"},
    });
    assert_eq!(api.publish("Flaky", &states).await.status, 201);
    let failed = json_of(&post(&api, "/orchestrators/Flaky/i?timeout=30", &json!({})).await);
    assert_eq!(failed["runtimeStatus"], "Failed");
    assert!(failed["output"].as_str().is_some_and(|text| text.contains(": ")), "{failed}");
    assert_eq!(post_status(&api, "/instances/i/rewind?reason=again").await, 202);
    let history = get(&api, "/instances/i?showHistory=true").await.text;
    assert!(history.contains("ExecutionRewound") && history.contains("again"), "{history}");
}

#[tokio::test]
async fn a_failure_is_a_500_if_the_client_requests_it() {
    let api = api().await;
    post(&api, "/orchestrators/Fail/i?timeout=30", &json!({})).await;
    let plain = get(&api, "/instances/i").await;
    assert_eq!((plain.status.as_u16(), &json_of(&plain)["output"]), (200, &json!("Broken: on purpose")));
    let strict = get(&api, "/instances/i?returnInternalServerErrorOnFailure=true").await;
    assert_eq!((strict.status.as_u16(), &json_of(&strict)["runtimeStatus"]), (500, &json!("Failed")));
    post(&api, "/orchestrators/Echo/fine?timeout=30", &json!({})).await;
    assert_eq!(get(&api, "/instances/fine?returnInternalServerErrorOnFailure=true").await.status, 200);
}

#[tokio::test]
async fn events_have_json_payloads_and_names_and_reasons_have_limits() {
    let api = api().await;
    post(&api, "/orchestrators/Wait/i", &json!({})).await;
    let long = "a".repeat(2_000);
    for path in [format!("/instances/i/raiseEvent/{long}"), format!("/instances/i/terminate?reason={long}")] {
        assert_eq!(message(&request(&api, Method::POST, &path, Body::empty()).await).0, 400);
    }
    let text = Request::builder().method(Method::POST).uri(format!("{ROOT}/instances/i/raiseEvent/Go"));
    let text = text.header("content-type", "text/plain").body(Body::from("hello")).unwrap();
    assert_eq!(message(&api.send(text).await).0, 400);
    assert_eq!(message(&request(&api, Method::POST, "/instances/i/raiseEvent/Go", "{").await).0, 400);
    assert_eq!(post(&api, "/instances/i/raiseEvent/Go", &json!({"by": "me"})).await.status, 202);
    assert_eq!(json_of(&get(&api, "/instances/i").await)["output"], json!({"by": "me"}));
}

#[tokio::test]
async fn history_has_the_form_of_durable_functions() {
    let api = api().await;
    let states = json!({
        "Begin": {
            "type": "task", "activity": "core.echo", "input": {"a": 1}, "output": "$.state.out", "next": "Pause",
        },
        "Pause": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.out"},
    });
    assert_eq!(api.publish("Steps", &states).await.status, 201);
    post(&api, "/orchestrators/Steps/i", &json!({"b": 2})).await;
    assert_eq!(post_status(&api, "/instances/i/raiseEvent/Go").await, 202);
    while get(&api, "/instances/i").await.status == 202 {
        tokio::task::yield_now().await;
    }
    assert_eq!(json_of(&get(&api, "/instances/i").await).get("historyEvents"), None);

    let shown = json_of(&get(&api, "/instances/i?showHistory=true&showHistoryOutput=true").await);
    let events = shown["historyEvents"].as_array().unwrap();
    let of = |kind: &str| {
        let mut found = events.iter().filter(|event| event["EventType"] == kind);
        (found.next().cloned().unwrap_or_default(), found.count())
    };
    assert_eq!(events.first().unwrap()["EventType"], "ExecutionStarted");
    assert_eq!(events.last().unwrap()["EventType"], "ExecutionCompleted");
    let (begun, _) = of("ExecutionStarted");
    assert_eq!((&begun["FunctionName"], &begun["Input"]), (&json!("Steps"), &json!({"b": 2})));
    let (done, others) = of("TaskCompleted");
    assert_eq!((&done["FunctionName"], &done["Result"], others), (&json!("core.echo"), &json!({"a": 1}), 0));
    assert!(done["ScheduledTime"].is_string() && done["Timestamp"].is_string(), "{done}");
    // The scheduling event is part of the completion event, and only there.
    assert_eq!(of("TaskScheduled").0, Value::Null);
    assert_eq!(of("EventRaised").0["Name"], "Go");
    let (end, _) = of("ExecutionCompleted");
    assert_eq!((&end["OrchestrationStatus"], &end["Result"]), (&json!("Completed"), &json!({"a": 1})));
    assert!(!events.iter().any(|event| event["EventType"].as_str().unwrap().starts_with("State")));

    let plain = get(&api, "/instances/i?showHistory=true&showInput=false").await;
    assert!(!plain.text.contains("Result") && !plain.text.contains("Input"), "{}", plain.text);
}

#[tokio::test]
async fn an_ended_instance_is_purged_and_a_live_one_is_not() {
    let api = api().await;
    post(&api, "/orchestrators/Wait/i", &json!({})).await;
    let live = delete(&api, "/instances/i").await;
    assert!(live.status == 412 && json_of(&live).is_string(), "{}", live.text);
    assert_eq!(control(&api, "/instances/i/terminate").await, 202);
    let purged = delete(&api, "/instances/i").await;
    assert_eq!((purged.status.as_u16(), json_of(&purged)), (200, json!({"instancesDeleted": 1})));
    assert_eq!(bare(&delete(&api, "/instances/i").await), 404);
    assert_eq!(bare(&get(&api, "/instances/i").await), 404);
}
