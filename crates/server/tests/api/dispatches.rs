//! `/api/dispatches`: open and settled calls, the filters, and one call with its attempts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::test_api::{TestApi, failed};

/// States with one task.
fn task(activity: &str, input: &Value, attempts: u32) -> Value {
    let retry = json!({"maxAttempts": attempts, "initialInterval": "PT0.001S", "maxInterval": "PT0.001S"});
    json!({
        "Begin": {"type": "task", "activity": activity, "input": input, "retryPolicy": retry, "next": "Done"},
        "Done": {"type": "succeed"},
    })
}

impl TestApi {
    /// Publishes workflows that wait in a call, succeed after two failures, exhaust their retries, and fail
    /// permanently.
    pub(crate) async fn publish_callers(&self) {
        for (id, states) in [
            ("slow", task("core.delay", &json!({"duration": "PT1H"}), 1)),
            ("shaky", task("core.fail", &json!({"times": 2, "code": "Shaky"}), 5)),
            ("worn", task("core.fail", &json!({"times": 9, "code": "Worn"}), 2)),
            ("final", task("core.fail", &json!({"times": 9, "code": "Final", "retryable": false}), 5)),
        ] {
            let response = self.publish(id, &states).await;
            assert_eq!(response.status, 201, "{}", response.text);
        }
    }

    /// Starts a run; waits for its end unless it is slow.
    pub(crate) async fn call(&self, workflow: &str, id: &str) {
        let wait = if workflow == "slow" { "" } else { "?wait=PT30S" };
        let start = json!({"workflow": workflow, "instanceId": id});
        let status = self.post(&format!("/api/instances{wait}"), &start).await.status;
        assert_eq!(status, if workflow == "slow" { 202 } else { 200 });
    }

    pub(crate) async fn dispatches(&self, query: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/dispatches?{query}")).await.data();
        page["items"].as_array().unwrap().clone()
    }

    /// The items of all pages of this size, once there are `count` of them: calls and public rows appear after the
    /// response.
    pub(crate) async fn all_dispatches(&self, query: &str, limit: usize, count: usize) -> Vec<Value> {
        let complete = async {
            loop {
                let found = self.pages_of_dispatches(query, limit).await;
                if found.len() == count {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        let complete = tokio::time::timeout(Duration::from_secs(20), complete).await;
        assert!(complete.is_ok(), "{query:?} with limit {limit} never has {count} items");
        complete.unwrap()
    }

    async fn pages_of_dispatches(&self, query: &str, limit: usize) -> Vec<Value> {
        let mut found = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.get(&format!("/api/dispatches?{query}&limit={limit}{token}")).await.data();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit);
            found.extend(items.iter().cloned());
            let Some(next) = page["continuationToken"].as_str() else { return found };
            token = format!("&continuationToken={next}");
        }
    }

    async fn shown(&self, item: &Value) -> Value {
        let run = item["executionId"].as_str().unwrap();
        let key = item["idempotencyKey"].as_str().unwrap();
        self.get(&format!("/api/dispatches/{run}/{key}")).await.data()
    }
}

pub(crate) fn names(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["instanceId"].as_str().unwrap()).collect()
}

fn sorted(items: &[Value]) -> Vec<&str> {
    let mut names = names(items);
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_call_is_listed_as_open_while_its_activity_runs() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    api.call("slow", "s-1").await;
    let items = api.all_dispatches("state=SENT", 50, 1).await;
    let item = &items[0];
    for (name, value) in [
        ("executionId", json!("s-1/1")),
        ("instanceId", json!("s-1")),
        ("step", json!("Begin")),
        ("activity", json!("core.delay")),
        ("state", json!("SENT")),
        ("attempt", json!(0)),
        ("transport", json!("local")),
        ("target", json!(null)),
        ("settledAtUtc", json!(null)),
        ("lastError", json!(null)),
        ("terminalReason", json!(null)),
    ] {
        assert_eq!(item[name], value, "{name}");
    }
    assert!(item["createdAtUtc"].is_string() && item["sentAtUtc"].is_string());
    assert_eq!(api.dispatches("").await, items, "open calls are listed by default");
    assert_eq!(api.dispatches("executionId=s-1/1").await, items);
    let shown = api.shown(item).await;
    assert_eq!(shown["state"], "SENT");
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(shown["attempts"][0]["eventType"], "TaskScheduled");
    let deliveries = &shown["deliveries"];
    assert_eq!(
        (&deliveries[0]["outcome"], &deliveries[0]["endedAtUtc"], &deliveries[1]),
        (&json!("underWay"), &Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn a_call_that_succeeded_after_failures_shows_each_with_its_time_and_reason() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    api.call("shaky", "r-1").await;
    let items = api.dispatches("executionId=r-1").await;
    let [item] = &items[..] else { panic!("{items:?}") };
    assert_eq!((&item["state"], &item["attempt"]), (&json!("ACKED"), &json!(2)));
    assert!(item["lastError"].as_str().unwrap().contains("failed as asked, 2 of 2"));
    assert!(item["settledAtUtc"].as_str() > item["createdAtUtc"].as_str());
    let shown = api.shown(item).await;
    let attempts = shown["attempts"].as_array().unwrap();
    let types: Vec<&str> = attempts.iter().map(|event| event["eventType"].as_str().unwrap()).collect();
    assert_eq!(types, ["TaskScheduled", "TaskFailed", "TaskFailed", "TaskCompleted"]);
    for (number, event) in [(0, &attempts[1]), (1, &attempts[2])] {
        assert_eq!((&event["attempt"], &event["error"]["code"]), (&json!(number), &json!("Shaky")));
        assert!(event["retryAtUtc"].as_str() > event["timestamp"].as_str());
    }
    let deliveries = shown["deliveries"].as_array().unwrap();
    let outcomes: Vec<&str> = deliveries.iter().map(|one| one["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["failed", "failed", "succeeded"]);
    for (number, one) in deliveries.iter().enumerate() {
        assert_eq!(one["attempt"], number);
        assert!(one["sentAtUtc"].as_str() <= one["endedAtUtc"].as_str(), "{one}");
    }
    // The other fields are the same as in the list.
    for (name, value) in item.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
    let text = attempts.iter().map(|event| event.to_string()).collect::<String>();
    assert!(!text.contains("\"times\""), "the call's input is not shown");
}

#[tokio::test]
async fn a_permanently_failed_call_shows_the_reason() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    for (workflow, reason, attempt) in [("worn", "retry_exhausted", 1), ("final", "non_retryable", 0)] {
        api.call(workflow, workflow).await;
        let items = api.dispatches(&format!("executionId={workflow}")).await;
        let [item] = &items[..] else { panic!("{items:?}") };
        assert_eq!((&item["state"], &item["attempt"]), (&json!("FAILED_FINAL"), &json!(attempt)));
        assert_eq!(item["terminalReason"], reason);
        let shown = api.shown(item).await;
        let last = shown["attempts"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["eventType"], "TaskFailed");
        assert!(last.get("retryAtUtc").is_none(), "there was no further attempt");
        let deliveries = shown["deliveries"].as_array().unwrap();
        assert_eq!(deliveries.len(), attempt + 1, "{deliveries:?}");
        assert!(deliveries.iter().all(|one| one["outcome"] == "failed"), "{deliveries:?}");
    }
    api.call("slow", "ended").await;
    api.all_dispatches("state=SENT", 50, 1).await;
    assert_eq!(api.post("/api/instances/ended/terminate", &json!({})).await.status, 202);
    let items = api.all_dispatches("executionId=ended&state=FAILED_FINAL", 50, 1).await;
    assert_eq!(items[0]["terminalReason"], "cancelled");
}

#[tokio::test]
async fn calls_are_found_by_each_parameter_and_by_all_together() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    for (workflow, id) in [("slow", "s"), ("shaky", "r"), ("worn", "w"), ("final", "f"), ("slow", "t")] {
        api.call(workflow, id).await;
    }
    assert_eq!(sorted(&api.all_dispatches("", 50, 2).await), ["s", "t"]);
    assert_eq!(sorted(&api.all_dispatches("state=SENT", 50, 2).await), ["s", "t"]);
    assert_eq!(names(&api.all_dispatches("state=ACKED", 50, 1).await), ["r"]);
    assert_eq!(names(&api.all_dispatches("state=FAILED_FINAL", 50, 2).await), ["f", "w"], "newest run first");
    for (query, expected) in [
        ("state=PENDING", &[][..]),
        ("activity=core.delay", &["s", "t"]),
        ("activity=core.fail", &[]),
        ("activity=core.fail&state=ACKED", &["r"]),
        ("olderThan=PT1H", &[]),
        ("olderThan=PT0S", &["s", "t"]),
        ("olderThan=PT1H&state=ACKED", &[]),
        ("olderThan=PT0S&state=FAILED_FINAL", &["f", "w"]),
        ("executionId=s", &["s"]),
        ("executionId=s/1&state=SENT&activity=core.delay&olderThan=PT0S", &["s"]),
        ("executionId=s&state=ACKED", &[]),
        ("executionId=r&state=SENT", &[]),
        ("executionId=w&olderThan=P1D", &[]),
        ("executionId=s/2", &[]),
        ("executionId=nobody", &[]),
    ] {
        assert_eq!(sorted(&api.dispatches(query).await), expected, "{query}");
    }
}

#[tokio::test]
async fn unknown_parameters_and_invalid_values_are_rejected() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    for (query, target) in [
        ("state=sent", "state"),
        ("state=", "state"),
        ("activity=", "activity"),
        ("olderThan=5m", "olderThan"),
        ("olderThan=P1Y", "olderThan"),
        ("olderThan=-PT1S", "olderThan"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("executionId=", "executionId"),
        ("executionId=a%20b", "executionId"),
        ("executionId=a/", "executionId"),
        ("executionId=a/0", "executionId"),
        ("executionId=a/x", "executionId"),
        ("executionId=a/1/2", "executionId"),
        ("continuationToken=x", "continuationToken"),
        ("instanceId=a", "instanceId"),
        ("state=SENT&state=SENT", "state"),
    ] {
        let rejected = api.get(&format!("/api/dispatches?{query}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", target), "{query}");
    }
    // A token is valid for its own filter only.
    api.call("slow", "s-1").await;
    api.call("slow", "s-2").await;
    api.all_dispatches("", 50, 2).await;
    let page = api.get("/api/dispatches?limit=1").await.data();
    let token = page["continuationToken"].as_str().unwrap();
    for query in ["state=SENT", "state=ACKED", "executionId=s-1", "activity=core.delay", "olderThan=PT0S"] {
        let rejected = api.get(&format!("/api/dispatches?{query}&continuationToken={token}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", "continuationToken"), "{query}");
    }
}

#[tokio::test]
async fn a_missing_call_is_not_found_and_an_invalid_path_is_rejected() {
    let api = TestApi::new().await;
    api.publish_callers().await;
    api.call("shaky", "r").await;
    let key = api.dispatches("executionId=r").await[0]["idempotencyKey"].as_str().unwrap().to_owned();
    let other = "0".repeat(64);
    for path in [format!("r/1/{other}"), format!("r/2/{key}"), format!("nobody/1/{key}")] {
        let missing = api.get(&format!("/api/dispatches/{path}")).await;
        assert_eq!(missing.error(), failed(404, "RESOURCE_NOT_FOUND", ""), "{path}");
    }
    for (path, target) in [
        (format!("r/1/{}", &key[1..]), "idempotencyKey"),
        (format!("r/1/{}", key.to_uppercase()), "idempotencyKey"),
        (format!("r/0/{key}"), "run"),
        (format!("r/x/{key}"), "run"),
        (format!("r/4294967296/{key}"), "run"),
        (format!("a%20b/1/{key}"), "instanceId"),
        (format!("r/1/{key}?limit=1"), "limit"),
    ] {
        let rejected = api.get(&format!("/api/dispatches/{path}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", target), "{path}");
    }
    // The calls of a purged run are not found.
    api.request(axum::http::Method::DELETE, "/api/instances/r", axum::body::Body::empty()).await.data();
    assert_eq!(api.get(&format!("/api/dispatches/r/1/{key}")).await.status, 404);
    assert!(api.dispatches("executionId=r").await.is_empty());
}
