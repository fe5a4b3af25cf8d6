//! `/api/activities/{name}`: declaring activities that other services run.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::server::{ask, config};
use crate::world::{Answer, World, failed};
use abide_runtime::declared::DeclaredActivities;
use abide_server::{Config, Server};
use abide_store::memory::MemoryStore;
use abide_store::rows::{Batch, CommitOutcome, Partition, PrivateRows};
use abide_store::tables::activities;
use abide_store_embedded::{EmbeddedStore, Options as StoreOptions};
use std::sync::Arc;

fn at(endpoint: &str) -> Value {
    json!({"category": "externalApi", "transport": "rest", "endpoint": endpoint})
}

/// A token that everybody on the way could read.
fn in_the_clear() -> Value {
    let mut declaration = at("http://pay.test/");
    declaration["auth"] = json!({"bearer": {"secretRef": "env:ABIDE_SECRET_PAY"}});
    declaration
}

async fn put(world: &World, name: &str, declaration: &Value) -> Answer {
    world.ask(Method::PUT, &format!("/api/activities/{name}"), declaration.to_string()).await
}

async fn delete(world: &World, name: &str) -> Answer {
    world.ask(Method::DELETE, &format!("/api/activities/{name}"), Body::empty()).await
}

#[tokio::test]
async fn each_change_is_a_version_that_stays_readable() {
    let world = World::new().await;
    let first = put(&world, "charge", &at("https://pay.test/v1")).await;
    assert_eq!((first.status.as_u16(), &first.data()["version"]), (201, &json!(1)));
    let again = put(&world, "charge", &at("https://pay.test/v1")).await;
    assert_eq!((again.status.as_u16(), again.data()), (200, first.data()));
    assert_eq!(put(&world, "charge", &at("https://pay.test/v2")).await.data()["version"], 2);
    let shown = world.get("/api/activities/charge").await.data();
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
    let before = world.get("/api/activities/charge?version=1").await.data();
    assert_eq!((&before["endpoint"], &before["circuit"]), (&json!("https://pay.test/v1"), &Value::Null));
    assert_eq!(world.get("/api/activities/charge?version=3").await.status, 404);

    assert_eq!(delete(&world, "charge").await.data(), json!({"name": "charge", "version": 3}));
    for gone in [world.get("/api/activities/charge").await, delete(&world, "charge").await] {
        assert_eq!(gone.status, 404, "{}", gone.text);
    }
    assert_eq!(world.get("/api/activities/charge?version=3").await.data()["removed"], true);
    assert_eq!(world.get("/api/activities/charge?version=2").await.data(), {
        let mut shown = shown;
        let fields = shown.as_object_mut().unwrap();
        fields.remove("underWay");
        fields.remove("circuit");
        shown
    });
}

#[tokio::test]
async fn what_cannot_be_declared_is_told_by_its_field() {
    let world = World::new().await;
    let with = |field: &str, value: Value| {
        let mut declaration = at("https://pay.test/");
        declaration[field] = value;
        declaration
    };
    for (declaration, target) in [
        (at("http://127.0.0.1:9/"), "/endpoint"),
        (at("http://169.254.169.254/latest"), "/endpoint"),
        (at("ftp://pay.test/"), "/endpoint"),
        (with("transport", json!("carrier-pigeon")), "/transport"),
        (with("nonsense", json!(1)), "/nonsense"),
        (with("name", json!("other")), "/name"),
        (with("input", json!({"type": "nonsense"})), "/input"),
        (with("attemptTimeout", json!("10 s")), "/attemptTimeout"),
        (with("retryPolicy", json!({"maxAttempts": 0})), "/retryPolicy"),
        (with("compensation", json!("refund")), "/compensation"),
        (with("concurrency", json!(0)), "/concurrency"),
        (with("auth", json!({"bearer": "s3cret"})), "/auth/bearer"),
        (in_the_clear(), "/auth/bearer"),
        (json!({"transport": "rest", "endpoint": "https://pay.test/"}), "/category"),
        (json!([]), ""),
    ] {
        let answer = put(&world, "charge", &declaration).await;
        assert_eq!(answer.error(), failed(400, "VALIDATION_ERROR", target), "{declaration}");
        assert!(!answer.text.contains("s3cret"), "{}", answer.text);
    }
    assert_eq!(world.get("/api/activities/charge").await.status, 404, "nothing was declared");
}

#[tokio::test]
async fn what_the_server_or_the_configuration_has_is_not_changed_here() {
    let configured: Value = at("https://pay.test/");
    let mut declaration = configured.clone();
    declaration["name"] = json!("configured");
    let declaration = serde_json::from_value(declaration).unwrap();
    let world = World::with(|config| config.activities.push(declaration)).await;
    for name in ["core.echo", "configured"] {
        assert_eq!(put(&world, name, &configured).await.error().0, 409, "{name}");
        assert_eq!(delete(&world, name).await.error().0, 409, "{name}");
    }
    let source =
        async |name: &str| world.get(&format!("/api/activities/{name}")).await.data()["source"].clone();
    assert_eq!(
        (source("core.echo").await, source("configured").await),
        (json!("server"), json!("configuration"))
    );
    let all = world.get("/api/activities").await.data();
    let names: Vec<&Value> = all["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert!(names.contains(&&json!("configured")));
}

#[tokio::test]
async fn a_compensation_is_declared_before_what_it_undoes_and_removed_after() {
    let world = World::new().await;
    let mut charge = at("https://pay.test/charge");
    charge["compensation"] = json!("refund");
    assert_eq!(put(&world, "charge", &charge).await.error().2, "/compensation");
    assert_eq!(put(&world, "refund", &at("https://pay.test/refund")).await.status, 201);
    assert_eq!(put(&world, "charge", &charge).await.status, 201);
    assert_eq!(delete(&world, "refund").await.error().0, 409);
    assert_eq!(
        (delete(&world, "charge").await.status, delete(&world, "refund").await.status),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
}

#[tokio::test]
async fn a_definition_may_name_what_is_declared_when_it_is_published() {
    let world = World::new().await;
    let states = json!({
        "Begin": {"type": "task", "activity": "charge", "input": {"amount": "much"}, "next": "Done"},
        "Done": {"type": "succeed"},
    });
    assert_eq!(world.publish("pay", &states).await.status, 400);
    let mut charge = at("https://pay.test/");
    charge["input"] = json!({"type": "object", "properties": {"amount": {"type": "number"}}});
    assert_eq!(put(&world, "charge", &charge).await.status, 201);
    let refused = world.publish("pay", &states).await;
    assert!(refused.status == 400 && refused.text.contains("amount"), "{}", refused.text);
    charge["input"] = json!(true);
    assert_eq!(put(&world, "charge", &charge).await.status, 201);
    assert_eq!(world.publish("pay", &states).await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_declared_is_in_force_after_a_restart_unless_it_may_not_be_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut allowing = config(folder.path());
    allowing.dispatch.allow.push("10.1.2.3".to_owned());
    let server = Server::start(&allowing).await.unwrap();
    server.ready().await;
    let address = server.address();
    let mut kept = at("https://pay.test/");
    for (name, declaration) in [("refund", at("http://10.1.2.3/")), ("kept", kept.clone())] {
        let (status, told) =
            ask(address, "PUT", &format!("/api/activities/{name}"), &declaration.to_string()).await;
        assert_eq!(status, 201, "{told}");
    }
    kept["compensation"] = json!("refund");
    assert_eq!(ask(address, "PUT", "/api/activities/charge", &kept.to_string()).await.0, 201);
    server.stop().await;

    let server = Server::start(&config(folder.path())).await.unwrap();
    server.ready().await;
    let (_, shown) = ask(server.address(), "GET", "/api/activities?limit=100", "").await;
    let items = shown["data"]["items"].as_array().unwrap().clone();
    let item = |name: &str| items.iter().find(|item| item["name"] == name).unwrap().clone();
    assert_eq!((&item("kept")["circuit"], &item("kept")["unusable"]), (&json!("closed"), &Value::Null));
    assert!(item("refund")["unusable"].as_str().unwrap().contains("10.1.2.3"), "{}", item("refund"));
    assert!(
        item("charge")["unusable"].as_str().unwrap().contains("compensation"),
        "what needs it goes with it"
    );
    let (_, shown) = ask(server.address(), "GET", "/api/activities/refund", "").await;
    assert_eq!(shown["data"]["unusable"], item("refund")["unusable"]);
    server.stop().await;
}

#[tokio::test]
async fn while_a_change_is_made_no_declaration_is_shown_as_of_another_version() {
    let store = Arc::new(MemoryStore::default());
    let (world, app) = World::beside(&store, &Config::default());
    app.ready().await;
    assert_eq!(put(&world, "charge", &at("https://pay.test/v1")).await.status, 201);
    // Stored, and not yet in force.
    let next = json!({"name": "charge", "category": "externalApi", "transport": "rest", "endpoint": "https://pay.test/v2"});
    let stored = DeclaredActivities::new(store).unwrap();
    stored.declare("charge", Some(&next.to_string()), 1).await.unwrap();
    let list = world.get("/api/activities?limit=100").await.data();
    let item =
        list["items"].as_array().unwrap().iter().find(|item| item["name"] == "charge").unwrap().clone();
    for shown in [world.get("/api/activities/charge").await.data(), item] {
        let said = (&shown["version"], &shown["endpoint"], &shown["underWay"]);
        assert_eq!(said, (&json!(2), &json!("https://pay.test/v2"), &json!(0)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_with_declarations_that_cannot_be_read_and_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    for name in ["charge", "refund"] {
        let declaration = at("https://pay.test/").to_string();
        let (status, told) =
            ask(server.address(), "PUT", &format!("/api/activities/{name}"), &declaration).await;
        assert_eq!(status, 201, "{told}");
    }
    server.stop().await;
    let store = EmbeddedStore::open(&config.store.data, StoreOptions::default()).unwrap();
    let batch = Batch::checked().create(activities::key("charge", 2), b"?".to_vec());
    let outcome = store.commit(&Partition::new("activities").unwrap(), batch).await;
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    let stored = DeclaredActivities::new(Arc::new(store)).unwrap();
    stored.declare("strange", Some("{}"), 1).await.unwrap();
    drop(stored);

    let server = Server::start(&config).await.unwrap();
    server.ready().await;
    let (status, shown) = ask(server.address(), "GET", "/api/activities?limit=100", "").await;
    assert_eq!(status, 200, "{shown}");
    let items = shown["data"]["items"].as_array().unwrap();
    let item = |name: &str| items.iter().find(|item| item["name"] == name).unwrap();
    assert_eq!(item("refund")["circuit"], "closed");
    for name in ["charge", "strange"] {
        assert!(item(name)["unusable"].is_string(), "{}", item(name));
        let (_, shown) = ask(server.address(), "GET", &format!("/api/activities/{name}"), "").await;
        assert_eq!(&shown["data"], item(name));
    }
    let declaration = at("https://pay.test/").to_string();
    assert_eq!(ask(server.address(), "PUT", "/api/activities/charge", &declaration).await.0, 201);
    assert_eq!(ask(server.address(), "DELETE", "/api/activities/strange", "").await.0, 200);
    let (_, shown) = ask(server.address(), "GET", "/api/activities/charge", "").await;
    assert_eq!((&shown["data"]["version"], &shown["data"]["circuit"]), (&json!(3), &json!("closed")));
    server.stop().await;
}
