//! `GET /api/dispatches`: pages cover every call once, and each page has a bounded cost.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::dispatches::names;
use crate::test_api::{TestApi, echo, failed};

#[tokio::test]
async fn pages_cover_all_calls_of_a_run_of_all_shards_and_of_all_runs() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    let delay =
        json!({"type": "task", "activity": "core.delay", "input": {"duration": "$.item"}, "next": "Out"});
    let states = json!({
        "Begin": {"type": "map", "items": "$.input", "maxConcurrency": 10, "next": "Done",
            "iterator": {"startAt": "One", "states": {"One": delay, "Out": {"type": "succeed"}}}},
        "Done": {"type": "succeed"},
    });
    let published = api.publish("fan", &states).await;
    assert_eq!(published.status, 201, "{}", published.text);
    let input = json!(["PT0S", "PT0S", "PT0S", "PT1H", "PT1H", "PT1H", "PT1H"]);
    api.post("/api/instances", &json!({"workflow": "fan", "instanceId": "fan", "input": input})).await.data();
    let whole = loop {
        let whole = api.all_dispatches("executionId=fan", 100, 7).await;
        if whole.iter().filter(|item| item["state"] == "ACKED").count() == 3 {
            break whole;
        }
    };
    assert!(whole[..4].iter().all(|item| item["state"] == "SENT"), "open ones first");
    for limit in [1, 2, 3, 4, 5] {
        assert_eq!(api.all_dispatches("executionId=fan", limit, 7).await, whole, "{limit}");
    }
    for number in 0..5 {
        api.call("slow", &format!("s{number}")).await;
        api.call("worn", &format!("w{number}")).await;
    }
    let open = api.all_dispatches("", 100, 9).await;
    let failed_calls = api.all_dispatches("state=FAILED_FINAL", 100, 5).await;
    assert_eq!(names(&failed_calls), ["w4", "w3", "w2", "w1", "w0"]);
    for limit in [1, 2, 3] {
        assert_eq!(api.all_dispatches("", limit, 9).await, open, "{limit}");
        assert_eq!(api.all_dispatches("state=FAILED_FINAL", limit, 5).await, failed_calls, "{limit}");
        assert_eq!(api.all_dispatches("state=ACKED", limit, 3).await.len(), 3, "three of one run");
    }
}

#[tokio::test]
async fn a_page_examines_a_bounded_number_of_runs_and_may_be_empty_with_a_token() {
    let api = TestApi::new().await;
    api.publish("echo", &echo()).await;
    api.publish_callers().await;
    api.call("shaky", "first").await;
    for number in 0..101 {
        api.call("echo", &format!("e{number}")).await;
    }
    // The call of the oldest run is the 102nd that is examined.
    api.all_dispatches("state=ACKED", 50, 1).await;
    let page = loop {
        let page = api.get("/api/dispatches?state=ACKED").await.data();
        if page["continuationToken"].is_string() {
            break page;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(page["items"], json!([]));
    let token = page["continuationToken"].as_str().unwrap();
    let items = api.dispatches(&format!("state=ACKED&continuationToken={token}")).await;
    assert_eq!(names(&items), ["first"]);
}

#[tokio::test]
async fn pages_distinguish_calls_that_were_settled_in_one_turn() {
    let api = TestApi::new().await;
    let delay =
        json!({"type": "task", "activity": "core.delay", "input": {"duration": "PT1H"}, "next": "Out"});
    let states = json!({
        "Begin": {"type": "map", "items": "$.input", "maxConcurrency": 10, "next": "Done",
            "iterator": {"startAt": "One", "states": {"One": delay, "Out": {"type": "succeed"}}}},
        "Done": {"type": "succeed"},
    });
    assert_eq!(api.publish("fan", &states).await.status, 201);
    let start = json!({"workflow": "fan", "instanceId": "fan", "input": [1, 2, 3, 4, 5]});
    api.post("/api/instances", &start).await.data();
    api.all_dispatches("executionId=fan&state=SENT", 50, 5).await;
    assert_eq!(api.post("/api/instances/fan/terminate", &json!({})).await.status, 202);
    let whole = api.all_dispatches("executionId=fan&state=FAILED_FINAL", 50, 5).await;
    let at = |item: &Value| item["settledAtUtc"].clone();
    assert!(whole.iter().all(|item| at(item) == at(&whole[0])), "one turn has settled them all");
    api.all_dispatches("state=FAILED_FINAL", 50, 5).await;
    for limit in [1, 2, 3] {
        assert_eq!(api.all_dispatches("executionId=fan", limit, 5).await, whole, "{limit}");
        assert_eq!(api.all_dispatches("state=FAILED_FINAL", limit, 5).await, whole, "{limit}");
    }
}

#[tokio::test]
async fn runs_with_the_same_timestamp_are_each_listed_once() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    let ids: Vec<String> = (0..40).map(|number| format!("f{number:02}")).collect();
    // Concurrently, so that many of them start in the same millisecond.
    futures_util::future::join_all(ids.iter().map(|id| api.call("final", id))).await;
    let whole = api.all_dispatches("state=FAILED_FINAL", 100, ids.len()).await;
    for limit in [1, 7] {
        assert_eq!(api.all_dispatches("state=FAILED_FINAL", limit, ids.len()).await, whole, "{limit}");
    }
    let mut listed = names(&whole);
    listed.sort_unstable();
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn an_instance_that_continued_as_new_has_the_calls_and_the_history_of_each_run() {
    let api = TestApi::new().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "core.echo", "input": "$.input", "next": "Again"},
        "Again": {"type": "choice", "choices": [{"when": {"path": "$.input.more", "op": "eq", "value": true}, "next": "Next"}],
            "default": "Done"},
        "Next": {"type": "continueAsNew", "input": {"more": false}},
        "Done": {"type": "succeed"},
    });
    let published = api.publish("twice", &states).await;
    assert_eq!(published.status, 201, "{}", published.text);
    let start = json!({"workflow": "twice", "instanceId": "t", "input": {"more": true}});
    api.post("/api/instances", &start).await.data();
    loop {
        let run = api.get("/api/instances/t").await.data();
        if run["executionId"] == "t/2" && run["status"] == "Completed" {
            break;
        }
        tokio::task::yield_now().await;
    }
    let settled = api.all_dispatches("executionId=t", 50, 1).await;
    assert_eq!((&settled[0]["executionId"], &settled[0]["state"]), (&json!("t/2"), &json!("ACKED")));
    while api.get("/api/instances").await.data()["items"].as_array().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let earlier = api.dispatches("executionId=t/1").await;
    assert_eq!((&earlier[0]["executionId"], &earlier[0]["state"]), (&json!("t/1"), &json!("ACKED")));
    assert_eq!(
        api.all_dispatches("state=ACKED", 1, 2).await,
        [&settled[..], &earlier].concat(),
        "both runs are in the public table"
    );
    for (run, call) in [(1, &earlier[0]), (2, &settled[0])] {
        let key = call["idempotencyKey"].as_str().unwrap();
        let shown = api.get(&format!("/api/dispatches/t/{run}/{key}")).await.data();
        assert_eq!(shown["attempts"].as_array().unwrap().len(), 2, "{shown}");
        assert_eq!(api.started_runs(&format!("t/history?run={run}")).await, [run]);
    }
    assert_eq!(api.started_runs("t/history?").await, [2]);
    assert_eq!(
        api.get("/api/instances/t/history?run=3").await.error(),
        failed(404, "RESOURCE_NOT_FOUND", "")
    );
}

#[tokio::test]
async fn pages_go_on_in_the_run_they_began_with_and_a_token_is_of_its_run() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    api.call("worn", "a").await;
    let page = api.get("/api/instances/a/history?limit=3").await.data();
    let token = page["continuationToken"].as_str().unwrap();
    let restarted = api.post("/api/instances/a/restart?", &json!({})).await;
    assert_eq!(restarted.status, 202, "{}", restarted.text);
    let rest = format!("/api/instances/a/history?limit=100&continuationToken={token}");
    let whole = api.get("/api/instances/a/history?run=1&limit=100").await.data();
    assert_eq!(
        api.get(&rest).await.data()["items"].as_array().unwrap()[..],
        whole["items"].as_array().unwrap()[3..]
    );
    for (query, target) in
        [("run=2", "continuationToken"), ("run=0", "run"), ("run=x", "run"), ("run=4294967296", "run")]
    {
        let rejected = api.get(&format!("{rest}&{query}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", target), "{query}");
    }
}

#[tokio::test]
async fn purging_an_instance_purges_its_earlier_runs() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    api.call("worn", "a").await;
    api.call("worn", "a").await;
    api.call("worn", "b").await;
    api.all_dispatches("state=FAILED_FINAL", 50, 3).await;
    let deleted = api.request(Method::DELETE, "/api/instances/a", Body::empty()).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text);
    assert_eq!(names(&api.all_dispatches("state=FAILED_FINAL", 50, 1).await), ["b"]);
    api.all_dispatches("executionId=a/1", 50, 0).await;
    while api.get("/api/instances/a/history?run=1").await.status != 404 {
        tokio::task::yield_now().await;
    }
}

impl TestApi {
    /// The numbers of the runs whose start is in a history.
    async fn started_runs(&self, history: &str) -> Vec<u64> {
        let page = self.get(&format!("/api/instances/{history}")).await.data();
        let events = page["items"].as_array().unwrap().iter();
        events.filter_map(|event| event["run"].as_u64()).collect()
    }
}
