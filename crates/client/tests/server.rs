//! The client against a server in the same process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use abide_client::history::Fact;
use abide_client::{CallViewFilter, Client, ErrorCode, NewInstance, StartOutcome, Status};
use abide_server::{Config, Server};
use serde_json::json;

/// A server on its own data folder, with a client.
struct World {
    client: Client,
    server: Server,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        config.store.data = folder.path().join("data");
        config.store.shards = 2;
        let server = Server::start(&config).await.unwrap();
        server.ready().await;
        let client = Client::new(&format!("http://{}", server.address())).unwrap();
        Self { client, server, _folder: folder }
    }

    /// Publishes a definition that echoes its input, and one that waits for the event `Go`.
    async fn publish(&self) {
        let echo = json!({"Begin": {"type": "succeed", "output": "$.input"}});
        let gate = json!({
            "Begin": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D", "output": "$.state.go", "next": "End"},
            "End": {"type": "succeed", "output": "$.state.go"},
        });
        for (id, states) in [("echo", echo), ("gate", gate)] {
            let definition = json!({"$schema": "workflow-schema-v1.json", "id": id, "version": "1.0.0", "startAt": "Begin", "states": states});
            let published = self.client.publish(definition.to_string()).await.unwrap();
            assert_eq!((published.id.as_str(), published.version.as_str()), (id, "1.0.0"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_started_awaited_shown_and_purged() {
    let world = World::new().await;
    world.publish().await;
    let client = &world.client;
    let start = NewInstance::new("echo").id("e-1").input(json!({"a": 1})).wait(Duration::from_secs(30));
    let StartOutcome::Ended(run) = client.start(&start).await.unwrap() else {
        panic!("the run has not ended")
    };
    assert_eq!(
        (run.status, run.output.as_ref(), run.error.is_none()),
        (Status::Completed, Some(&json!({"a": 1})), true)
    );
    let shown = client.instance("e-1").await.unwrap();
    assert_eq!((shown.execution_id.as_str(), shown.status), ("e-1/1", Status::Completed));
    let raw = client.instance("e-1").raw().await.unwrap();
    assert!(raw.get().starts_with(r#"{"instanceId":"e-1","#), "not the server's JSON: {raw}");

    let mut events = client.history("e-1").page_size(2);
    let mut facts = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        assert_eq!(event.sequence, facts.len() as u64 + 1);
        facts.push(event.fact);
    }
    assert!(matches!(
        facts.as_slice(),
        [Fact::OrchestratorStarted, Fact::ExecutionStarted { .. }, .., Fact::OrchestratorCompleted]
    ));

    client.purge("e-1").await.unwrap();
    assert!(client.instance("e-1").await.unwrap_err().is_not_found());
    world.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_operations_and_events_reach_a_run() {
    let world = World::new().await;
    world.publish().await;
    let client = &world.client;
    let StartOutcome::Running(started) = client.start(&NewInstance::new("gate").id("g-1")).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(started.execution_id, "g-1/1");
    client.suspend("g-1", Some("a look")).await.unwrap();
    assert_eq!(client.instance("g-1").await.unwrap().status, Status::Suspended);
    client.resume("g-1", None).await.unwrap();
    let waiting = client.instance("g-1").await.unwrap();
    assert_eq!(
        (waiting.current_states[0].state.as_str(), waiting.current_states[0].waiting_for.kind.as_str()),
        ("Begin", "event")
    );
    client.terminate("g-1", Some("enough")).await.unwrap();
    assert_eq!(client.instance("g-1").await.unwrap().status, Status::Terminated);
    let refused = client.raise_event("g-1", "Go", &json!({"x": 1})).await.unwrap_err();
    assert_eq!(refused.error_response().unwrap().code, ErrorCode::Conflict);
    assert_eq!(client.restart("g-1", None).await.unwrap().execution_id, "g-1/2");
    client.raise_event("g-1", "Go", &json!({"x": 1})).await.unwrap();
    assert_eq!(client.instance("g-1").await.unwrap().output, Some(json!({"x": 1})));
    let refused = client.rewind("g-1", None, false).await.unwrap_err();
    assert_eq!(refused.error_response().unwrap().status, 409);
    assert!(client.metrics().await.unwrap().contains("abide_instances_started_total 2"));
    assert_eq!(client.readiness().await.unwrap().health, "ready");
    world.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_activities_are_listed_and_shown() {
    let world = World::new().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "core.fail", "input": {"times": 1}, "next": "End",
            "retryPolicy": {"maxAttempts": 2, "initialInterval": "PT0.001S"}},
        "End": {"type": "succeed"},
    });
    let definition = json!({"$schema": "workflow-schema-v1.json", "id": "shaky", "version": "1.0.0", "startAt": "Begin", "states": states});
    world.client.publish(definition.to_string()).await.unwrap();
    world.client.start(&NewInstance::new("shaky").id("r-1").wait(Duration::from_secs(30))).await.unwrap();
    let filter = CallViewFilter {
        execution_id: Some("r-1/1".to_owned()),
        state: Some("ACKED".to_owned()),
        activity: Some("core.fail".to_owned()),
        older_than: Some(Duration::ZERO),
    };
    let calls = world.client.calls(&filter).take(10).await.unwrap();
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((call.attempt, call.transport.as_str(), call.attempts.len()), (1, "local", 0));
    let shown = world.client.call("r-1", 1, &call.idempotency_key).await.unwrap();
    let failed: Vec<_> = shown.attempts.iter().filter_map(|event| event.error.as_ref()).collect();
    assert_eq!((shown.attempts.len(), failed.len()), (3, 1));
    assert!(failed.iter().all(|error| error.code == "Failed"));
    let old = CallViewFilter { older_than: Some(Duration::from_millis(3_600_500)), ..filter };
    assert_eq!(world.client.calls(&old).take(10).await.unwrap(), []);
    assert!(world.client.call("r-1", 2, &call.idempotency_key).await.unwrap_err().is_not_found());
    world.server.stop().await;
}
