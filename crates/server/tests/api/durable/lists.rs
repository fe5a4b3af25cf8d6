//! Listing and forgetting by filter. The table behind it is milliseconds behind the truth, so what was begun is waited for.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_store::memory::MemoryStore;
use abide_store::public::{PublicTables, PublicWrite};
use abide_store::tables::public_instances::{PublicInstance, SCHEMA};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::{ROOT, bare, delete, get, json_of, message, order, post, world};
use crate::world::World;

/// The ids a list has, page after page.
async fn ids(world: &World, path: &str) -> Vec<String> {
    let (mut ids, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut request = Request::builder().method(Method::GET).uri(format!("{ROOT}{path}"));
        if let Some(token) = &token {
            request = request.header("x-ms-continuation-token", token);
        }
        let page = world.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let items = json_of(&page);
        ids.extend(
            items.as_array().unwrap().iter().map(|item| item["instanceId"].as_str().unwrap().to_owned()),
        );
        token = page.headers.get("x-ms-continuation-token").map(|token| token.to_str().unwrap().to_owned());
        if token.is_none() {
            return ids;
        }
    }
}

/// Waits until a list has exactly these, in whatever order.
async fn has(world: &World, path: &str, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&id| id.to_owned()).collect();
    let listed = async {
        loop {
            let ids = ids(world, path).await;
            assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "one item for an instance");
            if ids.into_iter().collect::<BTreeSet<_>>() == expected {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), listed).await.is_ok(), "{path}: {expected:?}");
}

async fn begun() -> World {
    let world = world().await;
    for (name, id) in [("Wait", "a-1"), ("Wait", "a-2"), ("Echo", "b-1"), ("Fail", "b-2"), ("Wait", "c")] {
        assert!(post(&world, &format!("/orchestrators/{name}/{id}"), &json!({"id": id})).await.status == 202);
    }
    assert_eq!(order(&world, "/instances/a-2/suspend").await, 202);
    assert_eq!(order(&world, "/instances/c/terminate").await, 202);
    world
}

#[tokio::test]
async fn instances_are_listed_by_status_prefix_and_time() {
    let world = begun().await;
    has(&world, "/instances", &["a-1", "a-2", "b-1", "b-2", "c"]).await;
    has(&world, "/instances/?runtimeStatus=Running", &["a-1"]).await;
    has(&world, "/instances?runtimeStatus=Suspended", &["a-2"]).await;
    has(&world, "/instances?runtimeStatus=completed,Failed", &["b-1", "b-2"]).await;
    has(&world, "/instances?runtimeStatus=Terminated&runtimeStatus=Running", &["a-1", "c"]).await;
    has(&world, "/instances?instanceIdPrefix=a-", &["a-1", "a-2"]).await;
    has(&world, "/instances?createdTimeFrom=2020-01-01&createdTimeTo=2021-01-01T00:00:00Z", &[]).await;
    has(&world, "/instances?createdTimeFrom=2020-01-01T00:00:00Z&top=2", &["a-1", "a-2", "b-1", "b-2", "c"])
        .await;

    let created = json_of(&get(&world, "/instances/a-1").await)["createdTime"].as_str().unwrap().to_owned();
    assert!(ids(&world, &format!("/instances?createdTimeFrom={created}")).await.contains(&"a-1".to_owned()));
    let shown = json_of(&get(&world, "/instances?runtimeStatus=Completed").await);
    assert_eq!((&shown[0]["input"], &shown[0]["output"]), (&json!({"id": "b-1"}), &json!({"id": "b-1"})));
    let hidden = json_of(&get(&world, "/instances?runtimeStatus=Completed&showInput=False").await);
    assert_eq!((&hidden[0]["input"], &hidden[0]["output"]), (&Value::Null, &json!({"id": "b-1"})));
}

#[tokio::test]
async fn an_instance_is_listed_once_however_often_it_ran() {
    let world = world().await;
    for run in 1..=3 {
        let begun = post(&world, "/orchestrators/Echo/i?timeout=30", &json!({"run": run})).await;
        assert_eq!(begun.status, 200);
    }
    has(&world, "/instances", &["i"]).await;
    assert_eq!(json_of(&get(&world, "/instances").await)[0]["input"], json!({"run": 3}));
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_refused() {
    let world = world().await;
    for wrong in
        ["runtimeStatus=Compleeted", "createdTimeFrom=yesterday", "createdTimeTo=x", "top=0", "showInput=1"]
    {
        let (status, message) = message(&get(&world, &format!("/instances?{wrong}")).await);
        assert!(status == 400 && wrong.starts_with(message.split(':').next().unwrap()), "{wrong}: {message}");
        let path = format!("{ROOT}/instances?{wrong}");
        assert!(!world.ask(Method::DELETE, &path, Body::empty()).await.status.is_success(), "{wrong}");
    }
    let request =
        Request::builder().uri(format!("{ROOT}/instances")).header("x-ms-continuation-token", "AAAA");
    assert_eq!(message(&world.send(request.body(Body::empty()).unwrap()).await).0, 400);
}

#[tokio::test]
async fn many_are_forgotten_by_time_and_status() {
    let world = begun().await;
    has(&world, "/instances?runtimeStatus=Completed,Failed,Terminated", &["b-1", "b-2", "c"]).await;
    let unbounded = delete(&world, "/instances?runtimeStatus=Completed").await;
    assert!(unbounded.status == 400 && json_of(&unbounded).is_string(), "{}", unbounded.text);
    assert_eq!(
        bare(&delete(&world, "/instances?createdTimeFrom=2020-01-01&createdTimeTo=2021-01-01").await),
        404
    );

    let failed = delete(&world, "/instances?createdTimeFrom=2020-01-01&runtimeStatus=Failed,Running").await;
    assert_eq!((failed.status.as_u16(), json_of(&failed)), (200, json!({"instancesDeleted": 1})));
    assert_eq!(bare(&get(&world, "/instances/b-2").await), 404);
    let rest = delete(&world, "/instances/?createdTimeFrom=2020-01-01").await;
    assert_eq!((rest.status.as_u16(), json_of(&rest)), (200, json!({"instancesDeleted": 2})));
    has(&world, "/instances", &["a-1", "a-2"]).await;
    assert_eq!(bare(&delete(&world, "/instances?createdTimeFrom=2020-01-01").await), 404);
}

#[tokio::test]
async fn what_has_ended_is_forgotten_however_much_lives() {
    let (world, app) = World::on(MemoryStore::default());
    app.ready().await;
    world.publish("Echo", &crate::world::echo()).await;
    assert_eq!(post(&world, "/orchestrators/Echo/old?timeout=30", &json!({})).await.status, 200);
    has(&world, "/instances", &["old"]).await;
    let living = |number: u32| PublicInstance {
        run_number: 1,
        instance_id: format!("i-{number}"),
        execution_id: format!("i-{number}/1"),
        workflow: "Wait".to_owned(),
        version: "1.0.0".to_owned(),
        status: "Running".to_owned(),
        correlation_id: String::new(),
        entity_id: None,
        created_at: i64::from(number) + app.node().now().0,
        updated_at: 0,
        error: None,
    };
    for first in (0..10_500).step_by(500) {
        let rows = (first..first + 500).map(|number| PublicWrite::Put(living(number).to_row(1))).collect();
        app.node().store().put(&SCHEMA, rows).await.unwrap();
    }
    let purged = delete(&world, "/instances?createdTimeFrom=2020-01-01").await;
    assert_eq!((purged.status.as_u16(), &purged.text[..]), (200, "{\"instancesDeleted\":1}"));
}
