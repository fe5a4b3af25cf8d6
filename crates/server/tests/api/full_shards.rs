//! A shard that cannot reply, because its store hangs: how much it takes on, and what still gets through.

use abide_server::Config;
use abide_workflow::Duration;
use serde_json::json;
use tokio::sync::watch;

use crate::readiness::faulty_store;
use crate::test_api::{TestApi, error, failed};

async fn metric(api: &TestApi, name: &str) -> u64 {
    let text = api.get("/metrics").await.text;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
}

/// A node with one shard, whose store hangs while the switch is on.
async fn api_with(change: impl FnOnce(&mut Config)) -> (TestApi, watch::Sender<bool>) {
    let (switch, hangs) = watch::channel(false);
    let mut config = Config::default();
    config.store.shards = 1;
    config.server.reply_timeout = Duration(50);
    change(&mut config);
    let (api, app) = TestApi::on_store_with_config(faulty_store(hangs), &config);
    app.ready().await;
    // A busy machine may take longer than the short timeout.
    while !matches!(publish(&api).await, 200 | 201) {}
    while !matches!(start(&api, "first", 1).await, 202 | 409) {}
    while metric(&api, CLIENTS).await > 0 {}
    switch.send_replace(true);
    (api, switch)
}

async fn publish(api: &TestApi) -> u16 {
    api.publish("w", &crate::test_api::waits_for_event()).await.status.as_u16()
}

async fn start(api: &TestApi, id: &str, bytes: usize) -> u16 {
    let start = json!({"workflow": "w", "instanceId": id, "input": "x".repeat(bytes)});
    api.post("/api/instances", &start).await.status.as_u16()
}

const CLIENTS: &str = "abide_shard_queue{shard=\"0\",lane=\"clients\"} ";
const CONTROL: &str = "abide_shard_queue{shard=\"0\",lane=\"control\"} ";
const BYTES: &str = "abide_shard_queue_bytes{shard=\"0\"} ";

#[tokio::test]
async fn a_shard_that_cannot_reply_takes_on_a_bounded_number_of_bytes() {
    let (api, switch) = api_with(|config| config.runtime.unanswered_bytes_max = 100_000).await;
    for number in 0..3 {
        assert_eq!(
            start(&api, &format!("i-{number}"), 30_000).await,
            503,
            "accepted, and not durable in time"
        );
    }
    let large = json!({"workflow": "w", "instanceId": "i-3", "input": "x".repeat(30_000)});
    let refused = api.post("/api/instances", &large).await;
    assert_eq!(refused.headers["retry-after"], "1");
    let refused = error(&refused, 429);
    assert_eq!(refused["code"], "RATE_LIMITED");
    assert_eq!(refused["message"], "too many bytes of requests wait in shard/0000; try again later");
    let durable = "/runtime/webhooks/durabletask/orchestrators/w";
    assert_eq!(api.post(durable, &json!("x".repeat(30_000))).await.status, 429);
    // The clients have given up, but the shard has their requests.
    assert_eq!((metric(&api, CLIENTS).await, metric(&api, BYTES).await / 10_000), (3, 9));
    assert_eq!(metric(&api, "abide_requests_refused_total{reason=\"shardBytes\"} ").await, 2);
    assert_eq!(start(&api, "small", 1_000).await, 503, "there is room for a small one");

    switch.send_replace(false);
    while metric(&api, CLIENTS).await > 0 {}
    assert_eq!(metric(&api, BYTES).await, 0);
    for id in ["i-0", "i-1", "i-2", "small"] {
        assert_eq!(api.get(&format!("/api/instances/{id}")).await.status, 200, "{id}");
    }
    assert_eq!(api.get("/api/instances/i-3").await.error(), failed(404, "RESOURCE_NOT_FOUND", ""));
}

#[tokio::test]
async fn a_full_shard_refuses_clients_and_no_control_operation() {
    let (api, switch) = api_with(|config| config.runtime.max_concurrent_orchestrator_functions = 1).await;
    // At least 16 have room, whatever is configured.
    for number in 0..16 {
        assert_eq!(start(&api, &format!("i-{number}"), 1).await, 503, "{number}");
    }
    let go = "/api/instances/first/events/Go";
    for (path, body) in [("/api/instances", json!({"workflow": "w"})), (go, json!(1))] {
        let refused = error(&api.post(path, &body).await, 429);
        assert_eq!(refused["message"], "too many requests wait in shard/0000; try again later", "{path}");
    }
    assert_eq!(metric(&api, "abide_requests_refused_total{reason=\"shardItems\"} ").await, 2);
    for operation in ["suspend", "resume", "terminate"] {
        let path = format!("/api/instances/first/{operation}");
        let unanswered = error(&api.post(&path, &json!({"reason": "enough"})).await, 503);
        assert_eq!(unanswered["details"][0]["code"], "OUTCOME_UNKNOWN", "{operation}: it is accepted");
    }
    assert_eq!((metric(&api, CLIENTS).await, metric(&api, CONTROL).await), (16, 3));

    switch.send_replace(false);
    while metric(&api, CLIENTS).await + metric(&api, CONTROL).await > 0 {}
    assert_eq!(api.get("/api/instances/first").await.data()["status"], "Terminated");
    while start(&api, "after", 1).await != 202 {}
}
