//! `/api/activities/{name}`: declaring remote activities.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::server::{config, http_request};
use crate::test_api::{TestApi, TestResponse, failed};
use abide_runtime::activity_declarations::ActivityDeclarations;
use abide_server::{Config, Server};
use abide_store::memory::MemoryStore;
use abide_store::rows::{Batch, CommitOutcome, Partition, PrivateRows};
use abide_store::tables::activity_declarations;
use abide_store_embedded::{EmbeddedOptions as StoreOptions, EmbeddedStore};
use abide_workflow::Timestamp;
use std::sync::Arc;

fn declaration_at(endpoint: &str) -> Value {
    json!({"category": "externalApi", "transport": "rest", "endpoint": endpoint})
}

/// A declaration whose token would be sent in plain text.
fn plaintext_endpoint() -> Value {
    let mut declaration = declaration_at("http://pay.test/");
    declaration["auth"] = json!({"bearer": {"secretRef": "env:ABIDE_SECRET_PAY"}});
    declaration
}

async fn put(api: &TestApi, name: &str, declaration: &Value) -> TestResponse {
    api.request(Method::PUT, &format!("/api/activities/{name}"), declaration.to_string()).await
}

async fn delete(api: &TestApi, name: &str) -> TestResponse {
    api.request(Method::DELETE, &format!("/api/activities/{name}"), Body::empty()).await
}

#[tokio::test]
async fn each_change_is_a_version_that_stays_readable() {
    let api = TestApi::new().await;
    let first = put(&api, "charge", &declaration_at("https://pay.test/v1")).await;
    assert_eq!((first.status.as_u16(), &first.data()["version"]), (201, &json!(1)));
    let again = put(&api, "charge", &declaration_at("https://pay.test/v1")).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, first.data()));
    assert_eq!(put(&api, "charge", &declaration_at("https://pay.test/v2")).await.data()["version"], 2);
    let shown = api.get("/api/activities/charge").await.data();
    for (field, value) in [
        ("version", json!(2)),
        ("endpoint", json!("https://pay.test/v2")),
        ("source", json!("interface")),
        ("transport", json!("rest")),
        ("concurrency", json!(64)),
        ("underWay", json!(0)),
        ("circuit", json!("closed")),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    let before = api.get("/api/activities/charge?version=1").await.data();
    assert_eq!((&before["endpoint"], &before["circuit"]), (&json!("https://pay.test/v1"), &Value::Null));
    assert_eq!(api.get("/api/activities/charge?version=3").await.status, 404);

    assert_eq!(delete(&api, "charge").await.data(), json!({"name": "charge", "version": 3}));
    for gone in [api.get("/api/activities/charge").await, delete(&api, "charge").await] {
        assert_eq!(gone.status, 404, "{}", gone.text);
    }
    assert_eq!(api.get("/api/activities/charge?version=3").await.data()["removed"], true);
    assert_eq!(api.get("/api/activities/charge?version=2").await.data(), {
        let mut shown = shown;
        let fields = shown.as_object_mut().unwrap();
        fields.remove("underWay");
        fields.remove("circuit");
        shown
    });
}

#[tokio::test]
async fn an_invalid_declaration_is_rejected_with_its_field() {
    let api = TestApi::new().await;
    let with = |field: &str, value: Value| {
        let mut declaration = declaration_at("https://pay.test/");
        declaration[field] = value;
        declaration
    };
    for (declaration, target) in [
        (declaration_at("http://127.0.0.1:9/"), "/endpoint"),
        (declaration_at("http://169.254.169.254/latest"), "/endpoint"),
        (declaration_at("ftp://pay.test/"), "/endpoint"),
        (with("transport", json!("carrier-pigeon")), "/transport"),
        (with("nonsense", json!(1)), "/nonsense"),
        (with("name", json!("other")), "/name"),
        (with("input", json!({"type": "nonsense"})), "/input"),
        (with("attemptTimeout", json!("10 s")), "/attemptTimeout"),
        (with("retryPolicy", json!({"maxAttempts": 0})), "/retryPolicy"),
        (with("compensation", json!("refund")), "/compensation"),
        (with("concurrency", json!(0)), "/concurrency"),
        (with("auth", json!({"bearer": "s3cret"})), "/auth/bearer"),
        (plaintext_endpoint(), "/auth/bearer"),
        (json!({"transport": "rest", "endpoint": "https://pay.test/"}), "/category"),
        (json!([]), ""),
    ] {
        let response = put(&api, "charge", &declaration).await;
        assert_eq!(response.error(), failed(400, "VALIDATION_ERROR", target), "{declaration}");
        assert!(!response.text.contains("s3cret"), "{}", response.text);
    }
    assert_eq!(api.get("/api/activities/charge").await.status, 404, "nothing was declared");
}

#[tokio::test]
async fn activities_of_the_server_and_the_configuration_cannot_be_changed() {
    let configured: Value = declaration_at("https://pay.test/");
    let mut declaration = configured.clone();
    declaration["name"] = json!("configured");
    let declaration = serde_json::from_value(declaration).unwrap();
    let api = TestApi::with_config(|config| config.activities.push(declaration)).await;
    for name in ["core.echo", "configured"] {
        assert_eq!(put(&api, name, &configured).await.error().0, 409, "{name}");
        assert_eq!(delete(&api, name).await.error().0, 409, "{name}");
    }
    let source =
        async |name: &str| api.get(&format!("/api/activities/{name}")).await.data()["source"].clone();
    assert_eq!(
        (source("core.echo").await, source("configured").await),
        (json!("server"), json!("configuration"))
    );
    let all = api.get("/api/activities").await.data();
    let names: Vec<&Value> = all["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert!(names.contains(&&json!("configured")));
}

#[tokio::test]
async fn a_compensation_is_declared_before_its_activity_and_removed_after_it() {
    let api = TestApi::new().await;
    let mut charge = declaration_at("https://pay.test/charge");
    charge["compensation"] = json!("refund");
    assert_eq!(put(&api, "charge", &charge).await.error().2, "/compensation");
    assert_eq!(put(&api, "refund", &declaration_at("https://pay.test/refund")).await.status, 201);
    assert_eq!(put(&api, "charge", &charge).await.status, 201);
    assert_eq!(delete(&api, "refund").await.error().0, 409);
    assert_eq!(
        (delete(&api, "charge").await.status, delete(&api, "refund").await.status),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
}

#[tokio::test]
async fn a_definition_is_checked_against_the_activities_declared_when_it_is_published() {
    let api = TestApi::new().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "charge", "input": {"amount": "much"}, "next": "Done"},
        "Done": {"type": "succeed"},
    });
    assert_eq!(api.publish("pay", &states).await.status, 400);
    let mut charge = declaration_at("https://pay.test/");
    charge["input"] = json!({"type": "object", "properties": {"amount": {"type": "number"}}});
    assert_eq!(put(&api, "charge", &charge).await.status, 201);
    let rejected = api.publish("pay", &states).await;
    assert!(rejected.status == 400 && rejected.text.contains("amount"), "{}", rejected.text);
    charge["input"] = json!(true);
    assert_eq!(put(&api, "charge", &charge).await.status, 201);
    assert_eq!(api.publish("pay", &states).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declarations_are_in_force_after_a_restart_unless_the_configuration_forbids_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut allowing = config(folder.path());
    allowing.dispatch.allow.push("10.1.2.3".to_owned());
    let server = Server::start(&allowing).await.unwrap();
    server.ready().await;
    let address = server.address();
    let mut allowed = declaration_at("https://pay.test/");
    for (name, declaration) in [("refund", declaration_at("http://10.1.2.3/")), ("allowed", allowed.clone())]
    {
        let (status, body) =
            http_request(address, "PUT", &format!("/api/activities/{name}"), &declaration.to_string()).await;
        assert_eq!(status, 201, "{body}");
    }
    allowed["compensation"] = json!("refund");
    assert_eq!(http_request(address, "PUT", "/api/activities/charge", &allowed.to_string()).await.0, 201);
    server.stop().await;

    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let (_, shown) = http_request(server.address(), "GET", "/api/activities?limit=100", "").await;
    let items = shown["data"]["items"].as_array().unwrap().clone();
    let item = |name: &str| items.iter().find(|item| item["name"] == name).unwrap().clone();
    assert_eq!((&item("allowed")["circuit"], &item("allowed")["unusable"]), (&json!("closed"), &Value::Null));
    assert!(item("refund")["unusable"].as_str().unwrap().contains("10.1.2.3"), "{}", item("refund"));
    assert!(
        item("charge")["unusable"].as_str().unwrap().contains("compensation"),
        "an activity without its compensation is unusable too"
    );
    let (_, shown) = http_request(server.address(), "GET", "/api/activities/refund", "").await;
    assert_eq!(shown["data"]["unusable"], item("refund")["unusable"]);
    server.stop().await;
}

#[tokio::test]
async fn during_a_change_a_declaration_is_never_shown_with_another_version() {
    let store = Arc::new(MemoryStore::default());
    let (api, app) = TestApi::on_shared_store(&store, &Config::default());
    app.ready().await;
    assert_eq!(put(&api, "charge", &declaration_at("https://pay.test/v1")).await.status, 201);
    // Stored, but not yet in force.
    let next = json!({"name": "charge", "category": "externalApi", "transport": "rest", "endpoint": "https://pay.test/v2"});
    let stored = ActivityDeclarations::new(store).unwrap();
    stored.declare("charge", Some(&next.to_string()), Timestamp(1)).await.unwrap();
    let list = api.get("/api/activities?limit=100").await.data();
    let item =
        list["items"].as_array().unwrap().iter().find(|item| item["name"] == "charge").unwrap().clone();
    for shown in [api.get("/api/activities/charge").await.data(), item] {
        let item = (&shown["version"], &shown["endpoint"], &shown["underWay"]);
        assert_eq!(item, (&json!(2), &json!("https://pay.test/v2"), &json!(0)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_with_unreadable_declarations_and_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    for name in ["charge", "refund"] {
        let declaration = declaration_at("https://pay.test/").to_string();
        let (status, body) =
            http_request(server.address(), "PUT", &format!("/api/activities/{name}"), &declaration).await;
        assert_eq!(status, 201, "{body}");
    }
    server.stop().await;
    let store = EmbeddedStore::open(&config.store.data, StoreOptions::default()).unwrap();
    let batch = Batch::checked().create(activity_declarations::key("charge", 2), b"?".to_vec());
    let outcome = store.commit(&Partition::new("activities").unwrap(), batch).await;
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    let stored = ActivityDeclarations::new(Arc::new(store)).unwrap();
    stored.declare("strange", Some("{}"), Timestamp(1)).await.unwrap();
    drop(stored);

    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    let (status, shown) = http_request(server.address(), "GET", "/api/activities?limit=100", "").await;
    assert_eq!(status, 200, "{shown}");
    let items = shown["data"]["items"].as_array().unwrap();
    let item = |name: &str| items.iter().find(|item| item["name"] == name).unwrap();
    assert_eq!(item("refund")["circuit"], "closed");
    for name in ["charge", "strange"] {
        assert!(item(name)["unusable"].is_string(), "{}", item(name));
        let (_, shown) = http_request(server.address(), "GET", &format!("/api/activities/{name}"), "").await;
        assert_eq!(&shown["data"], item(name));
    }
    let declaration = declaration_at("https://pay.test/").to_string();
    assert_eq!(http_request(server.address(), "PUT", "/api/activities/charge", &declaration).await.0, 201);
    assert_eq!(http_request(server.address(), "DELETE", "/api/activities/strange", "").await.0, 200);
    let (_, shown) = http_request(server.address(), "GET", "/api/activities/charge", "").await;
    assert_eq!((&shown["data"]["version"], &shown["data"]["circuit"]), (&json!(3), &json!("closed")));
    server.stop().await;
}
