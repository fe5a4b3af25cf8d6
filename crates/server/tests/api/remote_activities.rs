//! Runs that call remote activities, and what the API shows of the calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide_server::{App, Config};
use abide_store::memory::MemoryStore;
use abide_store::rows::Scan;
use axum::http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::test_api::TestApi;

/// A service that doubles a number at one path and fails at the others, and its number of calls.
async fn service() -> (SocketAddr, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(respond(stream));
        }
    });
    (address, calls)
}

async fn respond(mut stream: TcpStream) {
    let mut text = String::new();
    let (head, body) = loop {
        let mut piece = [0; 4_096];
        let read = stream.read(&mut piece).await.unwrap();
        text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_str::<Value>(body) {
            break (head, body);
        }
    };
    let key = head.lines().find_map(|line| line.strip_prefix("x-tpf-idempotency-key: ")).unwrap();
    let (status, response) = if head.starts_with("POST /double ") {
        let characters = body["key"].as_str().map(str::len);
        let doubled = body["n"].as_i64().unwrap() * 2;
        (200, json!({"doubled": doubled, "key": key, "characters": characters}).to_string())
    } else if head.starts_with("POST /busy ") {
        (503, String::new())
    } else if head.starts_with("POST /blab ") {
        let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap();
        let message = format!("key {} and token {token} do not fit", body["key"].as_str().unwrap());
        (412, json!({"error": {"status": "FAILED_PRECONDITION", "message": message}}).to_string())
    } else {
        (412, "not now, not ever".to_owned())
    };
    let head = format!("HTTP/1.1 {status} status\r\nconnection: close\r\ncontent-length: {}", response.len());
    let head = format!("{head}\r\ncontent-type: application/json");
    stream.write_all(format!("{head}\r\n\r\n{response}").as_bytes()).await.unwrap();
}

async fn api(service: SocketAddr) -> TestApi {
    api_with(service, |_| ()).await
}

async fn api_with(service: SocketAddr, change: impl FnOnce(&mut Config)) -> TestApi {
    let declared = ["double", "refuse"].map(|name| {
        let declaration = json!({
            "name": name, "category": "other", "transport": "rest", "endpoint": format!("http://{service}/{name}"),
            "input": {"type": "object", "required": ["n"]},
        });
        serde_json::from_value(declaration).unwrap()
    });
    TestApi::with_config(|config| {
        config.dispatch.allow.push("127.0.0.1".to_owned());
        config.activities.extend(declared);
        change(config);
    })
    .await
}

fn calling(activity: &str) -> Value {
    json!({
        "Begin": {"type": "task", "activity": activity, "input": "$.input", "output": "$.state.result", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.result"},
    })
}

async fn run(api: &TestApi, activity: &str, input: Value) -> Value {
    assert_eq!(api.publish(activity, &calling(activity)).await.status, 201);
    let start = json!({"workflow": activity, "instanceId": activity, "input": input});
    api.post("/api/instances?wait=PT30S", &start).await.data()
}

#[tokio::test]
async fn a_run_gets_the_result_of_the_service_and_the_call_shows_its_target() {
    let (service, calls) = service().await;
    let api = api(service).await;
    let ended = run(&api, "double", json!({"n": 21})).await;
    assert_eq!((&ended["status"], &ended["output"]["doubled"]), (&json!("Completed"), &json!(42)));
    let key = ended["output"]["key"].as_str().unwrap();
    let call = api.get(&format!("/api/dispatches/double/1/{key}")).await.data();
    assert_eq!((&call["transport"], &call["target"]), (&json!("rest"), &json!(format!("http://{service}"))));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_permanent_failure_is_a_dead_letter_with_target_and_status() {
    let (service, _) = service().await;
    let api = api(service).await;
    let ended = run(&api, "refuse", json!({"n": 1})).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("Failed"), &json!("Http412")));
    // Dead letters become readable shortly after the run has ended.
    let dead = loop {
        let mut page = api.get("/api/dlq?engine=refuse").await.data();
        if let Some(dead) = page["items"].as_array_mut().unwrap().pop() {
            break dead;
        }
        tokio::task::yield_now().await;
    };
    let path = format!("/api/dlq/refuse/{}", dead["rowKey"].as_str().unwrap());
    let text = api.get(&path).await.data().to_string();
    for part in ["rest", &format!("http://{service}"), "412", "non_retryable"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn an_input_that_does_not_match_the_schema_fails_permanently_without_being_sent() {
    let (service, calls) = service().await;
    let api = api(service).await;
    let ended = run(&api, "double", json!({"m": 21})).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("Failed"), &json!("InputInvalid")));
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_secret_reaches_the_service_and_no_history() {
    let (service, _) = service().await;
    let folder = tempfile::tempdir().unwrap();
    // The service returns the length of the key, to show that it received it.
    std::fs::write(folder.path().join("key"), "s3cret").unwrap();
    let path = folder.path().join("key").display().to_string();
    let api =
        api_with(service, |config| config.dispatch.secrets_folders.push(folder.path().to_owned())).await;
    let states = json!({
        "Begin": {
            "type": "task", "activity": "double", "input": {"n": 1, "key": {"secretRef": format!("file:{path}")}},
            "output": "$.state.result", "next": "Done",
        },
        "Done": {"type": "succeed", "output": "$.state.result"},
    });
    assert_eq!(api.publish("secretive", &states).await.status, 201);
    let start = json!({"workflow": "secretive", "instanceId": "s"});
    let ended = api.post("/api/instances?wait=PT30S", &start).await.data();
    assert_eq!(ended["output"]["characters"], "s3cret".len(), "{ended}");
    let history = api.get("/api/instances/s/history").await;
    let dispatches = api.get("/api/dispatches?executionId=s%2F1").await;
    for shown in [history, dispatches] {
        assert!(shown.status.is_success() && !shown.text.contains("s3cret"), "{}", shown.text);
    }
}

/// The bytes of all stored rows.
fn stored(store: &MemoryStore, app: &App<MemoryStore>) -> Vec<u8> {
    let mut all = Vec::new();
    for shard in app.node().shards() {
        let mut next = Some(Scan::all());
        while let Some(scan) = next {
            let page = store.scan_now(&shard.partition().unwrap(), scan).unwrap();
            all.extend(page.rows.iter().flat_map(|row| row.value.iter().copied()));
            next = page.next;
        }
    }
    all
}

#[tokio::test]
async fn secrets_repeated_in_a_failure_of_the_service_are_stored_nowhere() {
    let (service, _) = service().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str, value: &str| {
        std::fs::write(folder.path().join(name), value).unwrap();
        json!({"secretRef": format!("file:{}", folder.path().join(name).display())})
    };
    let key = secret("key", "canary-in-the-input");
    let token = secret("token", "canary-in-the-head");
    let mut config = Config::default();
    config.dispatch.allow.push("127.0.0.1".to_owned());
    config.dispatch.secrets_folders.push(folder.path().to_owned());
    let declared = json!({
        "name": "blab", "category": "other", "transport": "rest", "endpoint": format!("http://{service}/blab"),
        "auth": {"bearer": token},
    });
    config.activities.push(serde_json::from_value(declared).unwrap());
    let store = Arc::new(MemoryStore::default());
    let (api, app) = TestApi::on_shared_store(&store, &config);
    app.ready().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "blab", "input": {"key": key}, "next": "Done"},
        "Done": {"type": "succeed"},
    });
    assert_eq!(api.publish("secretive", &states).await.status, 201);
    let start = json!({"workflow": "secretive", "instanceId": "s"});
    let ended = api.post("/api/instances?wait=PT30S", &start).await;
    assert!(ended.text.contains("key [secret] and token [secret] do not fit"), "{}", ended.text);
    let dead = loop {
        let page = api.get("/api/dlq?engine=secretive").await.data();
        if let Some(dead) = page["items"].as_array().unwrap().first() {
            break dead["rowKey"].as_str().unwrap().to_owned();
        }
        tokio::task::yield_now().await;
    };
    let call = api.dispatches("executionId=s").await.remove(0);
    for path in [
        "/api/instances/s".to_owned(),
        "/api/instances".to_owned(),
        "/api/instances/s/history".to_owned(),
        "/api/dispatches?executionId=s".to_owned(),
        format!("/api/dispatches/s/1/{}", call["idempotencyKey"].as_str().unwrap()),
        "/api/dlq".to_owned(),
        format!("/api/dlq/secretive/{dead}"),
        "/api/activities/blab".to_owned(),
        "/api/workflows/secretive".to_owned(),
        "/metrics".to_owned(),
    ] {
        let shown = api.get(&path).await;
        assert!(shown.status.is_success() && !shown.text.contains("canary"), "{path}: {}", shown.text);
    }
    let stored = stored(&store, &app);
    assert!(
        stored.windows(7).any(|bytes| bytes == b"do not ")
            && !stored.windows(6).any(|bytes| bytes == b"canary")
    );
}

#[tokio::test]
async fn a_retry_policy_applies_to_definitions_published_after_its_declaration() {
    let (service, calls) = service().await;
    let api = TestApi::with_config(|config| config.dispatch.allow.push("127.0.0.1".to_owned())).await;
    let declare = async |attempts: u32| {
        let declared = json!({
            "category": "other", "transport": "rest", "endpoint": format!("http://{service}/busy"),
            "retryPolicy": {"maxAttempts": attempts, "initialInterval": "PT0.001S", "maxInterval": "PT0.001S"},
        });
        let response = api.request(Method::PUT, "/api/activities/busy", declared.to_string()).await;
        assert_eq!(response.status, 201, "{}", response.text);
    };
    let attempts_of = async |workflow: &str| {
        let before = calls.load(Ordering::SeqCst);
        let start = json!({"workflow": workflow, "input": {"n": 1}});
        let ended = api.post("/api/instances?wait=PT30S", &start).await.data();
        assert_eq!(ended["error"]["code"], "Http503", "{ended}");
        calls.load(Ordering::SeqCst) - before
    };
    declare(2).await;
    assert_eq!(api.publish("early", &calling("busy")).await.status, 201);
    assert_eq!(attempts_of("early").await, 2);
    declare(4).await;
    assert_eq!(attempts_of("early").await, 2, "a published version does not change");
    assert_eq!(api.publish("late", &calling("busy")).await.status, 201);
    assert_eq!(attempts_of("late").await, 4);
}
