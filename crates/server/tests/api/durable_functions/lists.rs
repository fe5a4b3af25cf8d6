//! Listing and purging by filter. The public table is milliseconds behind the shards, so the tests wait for it.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_store::memory::MemoryStore;
use abide_store::public::{PublicTables, PublicWrite};
use abide_store::tables::public_instances::{PublicInstanceRow, SCHEMA};
use abide_workflow::{RunNumber, Timestamp};
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::{ROOT, api, bare, control, delete, get, json_of, message, post};
use crate::test_api::TestApi;

/// The instance ids of all pages of a list.
async fn ids(api: &TestApi, path: &str) -> Vec<String> {
    let (mut ids, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut request = Request::builder().method(Method::GET).uri(format!("{ROOT}{path}"));
        if let Some(token) = &token {
            request = request.header("x-ms-continuation-token", token);
        }
        let page = api.send(request.body(Body::empty()).unwrap()).await;
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

/// Waits until a list has exactly these ids, in any order.
async fn wait_for_list(api: &TestApi, path: &str, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&id| id.to_owned()).collect();
    let listed = async {
        loop {
            let ids = ids(api, path).await;
            assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "one item per instance");
            if ids.into_iter().collect::<BTreeSet<_>>() == expected {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), listed).await.is_ok(), "{path}: {expected:?}");
}

async fn api_with_instances() -> TestApi {
    let api = api().await;
    for (name, id) in [("Wait", "a-1"), ("Wait", "a-2"), ("Echo", "b-1"), ("Fail", "b-2"), ("Wait", "c")] {
        assert!(post(&api, &format!("/orchestrators/{name}/{id}"), &json!({"id": id})).await.status == 202);
    }
    assert_eq!(control(&api, "/instances/a-2/suspend").await, 202);
    assert_eq!(control(&api, "/instances/c/terminate").await, 202);
    api
}

#[tokio::test]
async fn instances_are_listed_by_status_prefix_and_time() {
    let api = api_with_instances().await;
    wait_for_list(&api, "/instances", &["a-1", "a-2", "b-1", "b-2", "c"]).await;
    wait_for_list(&api, "/instances/?runtimeStatus=Running", &["a-1"]).await;
    wait_for_list(&api, "/instances?runtimeStatus=Suspended", &["a-2"]).await;
    wait_for_list(&api, "/instances?runtimeStatus=completed,Failed", &["b-1", "b-2"]).await;
    wait_for_list(&api, "/instances?runtimeStatus=Terminated&runtimeStatus=Running", &["a-1", "c"]).await;
    wait_for_list(&api, "/instances?instanceIdPrefix=a-", &["a-1", "a-2"]).await;
    wait_for_list(&api, "/instances?createdTimeFrom=2020-01-01&createdTimeTo=2021-01-01T00:00:00Z", &[])
        .await;
    wait_for_list(
        &api,
        "/instances?createdTimeFrom=2020-01-01T00:00:00Z&top=2",
        &["a-1", "a-2", "b-1", "b-2", "c"],
    )
    .await;

    let created = json_of(&get(&api, "/instances/a-1").await)["createdTime"].as_str().unwrap().to_owned();
    assert!(ids(&api, &format!("/instances?createdTimeFrom={created}")).await.contains(&"a-1".to_owned()));
    let shown = json_of(&get(&api, "/instances?runtimeStatus=Completed").await);
    assert_eq!((&shown[0]["input"], &shown[0]["output"]), (&json!({"id": "b-1"}), &json!({"id": "b-1"})));
    let hidden = json_of(&get(&api, "/instances?runtimeStatus=Completed&showInput=False").await);
    assert_eq!((&hidden[0]["input"], &hidden[0]["output"]), (&Value::Null, &json!({"id": "b-1"})));
}

#[tokio::test]
async fn an_instance_with_several_runs_is_listed_once() {
    let api = api().await;
    for run in 1..=3 {
        let begun = post(&api, "/orchestrators/Echo/i?timeout=30", &json!({"run": run})).await;
        assert_eq!(begun.status, 200);
    }
    wait_for_list(&api, "/instances", &["i"]).await;
    assert_eq!(json_of(&get(&api, "/instances").await)[0]["input"], json!({"run": 3}));
}

#[tokio::test]
async fn an_invalid_filter_is_rejected() {
    let api = api().await;
    for wrong in
        ["runtimeStatus=Compleeted", "createdTimeFrom=yesterday", "createdTimeTo=x", "top=0", "showInput=1"]
    {
        let (status, message) = message(&get(&api, &format!("/instances?{wrong}")).await);
        assert!(status == 400 && wrong.starts_with(message.split(':').next().unwrap()), "{wrong}: {message}");
        let path = format!("{ROOT}/instances?{wrong}");
        assert!(!api.request(Method::DELETE, &path, Body::empty()).await.status.is_success(), "{wrong}");
    }
    let request =
        Request::builder().uri(format!("{ROOT}/instances")).header("x-ms-continuation-token", "AAAA");
    assert_eq!(message(&api.send(request.body(Body::empty()).unwrap()).await).0, 400);
}

#[tokio::test]
async fn instances_are_purged_by_time_and_status() {
    let api = api_with_instances().await;
    wait_for_list(&api, "/instances?runtimeStatus=Completed,Failed,Terminated", &["b-1", "b-2", "c"]).await;
    let unbounded = delete(&api, "/instances?runtimeStatus=Completed").await;
    assert!(unbounded.status == 400 && json_of(&unbounded).is_string(), "{}", unbounded.text);
    assert_eq!(
        bare(&delete(&api, "/instances?createdTimeFrom=2020-01-01&createdTimeTo=2021-01-01").await),
        404
    );

    let failed = delete(&api, "/instances?createdTimeFrom=2020-01-01&runtimeStatus=Failed,Running").await;
    assert_eq!((failed.status.as_u16(), json_of(&failed)), (200, json!({"instancesDeleted": 1})));
    assert_eq!(bare(&get(&api, "/instances/b-2").await), 404);
    let rest = delete(&api, "/instances/?createdTimeFrom=2020-01-01").await;
    assert_eq!((rest.status.as_u16(), json_of(&rest)), (200, json!({"instancesDeleted": 2})));
    wait_for_list(&api, "/instances", &["a-1", "a-2"]).await;
    assert_eq!(bare(&delete(&api, "/instances?createdTimeFrom=2020-01-01").await), 404);
}

#[tokio::test]
async fn an_ended_instance_is_purged_among_many_live_ones() {
    let (api, app) = TestApi::on_store(MemoryStore::default());
    app.ready().await;
    api.publish("Echo", &crate::test_api::echo()).await;
    assert_eq!(post(&api, "/orchestrators/Echo/old?timeout=30", &json!({})).await.status, 200);
    wait_for_list(&api, "/instances", &["old"]).await;
    let live_row = |number: u32| PublicInstanceRow {
        run_number: RunNumber::FIRST,
        instance_id: format!("i-{number}"),
        execution_id: format!("i-{number}/1"),
        workflow: "Wait".to_owned(),
        version: "1.0.0".to_owned(),
        status: "Running".to_owned(),
        correlation_id: String::new(),
        entity_id: None,
        created_at: app.node().now().plus(abide_workflow::Duration(u64::from(number))),
        updated_at: Timestamp(0),
        error: None,
    };
    for first in (0..10_500).step_by(500) {
        let rows =
            (first..first + 500).map(|number| PublicWrite::Put(live_row(number).to_public_row(1))).collect();
        app.node().store().put(&SCHEMA, rows).await.unwrap();
    }
    let purged = delete(&api, "/instances?createdTimeFrom=2020-01-01").await;
    assert_eq!((purged.status.as_u16(), &purged.text[..]), (200, "{\"instancesDeleted\":1}"));
}
