//! `GET /api/dlq`: the seven parameters, and one message with all details.

use abide_store::memory::MemoryStore;
use abide_store::public::{PublicTables, PublicWrite};
use abide_store::tables::dead_letters::{DeadLetterRow, DeadLetterStatus, SCHEMA, row_key};
use abide_workflow::Timestamp;
use serde_json::{Value, json};

use crate::test_api::{TestApi, failed};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

fn letter(number: i64) -> DeadLetterRow {
    let (engine, status) = if number % 2 == 0 {
        ("ingress", DeadLetterStatus::Pending)
    } else {
        ("hmac", DeadLetterStatus::Resolved)
    };
    DeadLetterRow {
        row_key: row_key(&format!("m/{number}"), Timestamp(number)),
        engine: engine.to_owned(),
        instance_id: format!("i{}", number % 3),
        original_queue: format!("{engine}-queue"),
        original_message: json!({"number": number}).to_string(),
        error_message: "no receiver accepted it".to_owned(),
        dequeue_count: 5,
        first_failure_at: Timestamp(number * DAY_MS),
        last_failure_at: Timestamp(number * DAY_MS + 1),
        status,
        resolution_notes: (number % 2 == 1).then(|| "done".to_owned()),
        resolved_at: (number % 2 == 1).then_some(Timestamp(number * DAY_MS + 2)),
        resolved_by: (number % 2 == 1).then(|| "me".to_owned()),
        correlation_id: format!("c{number}"),
    }
}

/// Ten messages, one per day from 1 January 1970.
async fn world_with_dead_letters() -> TestApi {
    let store = MemoryStore::default();
    let rows = (0..10).map(|number| PublicWrite::Put(letter(number).to_public_row(1)));
    store.put(&SCHEMA, rows.collect()).await.unwrap();
    let (api, app) = TestApi::on_store(store);
    app.ready().await;
    api
}

async fn listed(api: &TestApi, query: &str) -> Vec<i64> {
    let page = api.get(&format!("/api/dlq?{query}")).await.data();
    let number = |item: &Value| item["correlationId"].as_str().unwrap()[1..].parse().unwrap();
    page["items"].as_array().unwrap().iter().map(number).collect()
}

#[tokio::test]
async fn dead_letters_are_found_by_each_parameter_and_by_all_together() {
    let api = world_with_dead_letters().await;
    assert_eq!(listed(&api, "").await, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(listed(&api, "engine=hmac").await, [9, 7, 5, 3, 1]);
    assert_eq!(listed(&api, "status=Pending").await, [8, 6, 4, 2, 0]);
    assert_eq!(listed(&api, "instanceId=i0").await, [9, 6, 3, 0]);
    assert_eq!(listed(&api, "fromDate=1970-01-08T00:00:00Z").await, [9, 8, 7]);
    assert_eq!(listed(&api, "toDate=1970-01-03T00:00:00Z").await, [1, 0]);
    assert_eq!(listed(&api, "limit=2").await, [9, 8]);
    let all =
        "engine=hmac&status=Resolved&instanceId=i0&fromDate=1970-01-02T00:00:00Z&toDate=1970-01-09T00:00:00Z";
    assert_eq!(listed(&api, &format!("{all}&limit=5")).await, [3]);
    assert_eq!(listed(&api, "engine=hmac&status=Pending").await, [0_i64; 0]);
    let first = api.get("/api/dlq?limit=7").await.data();
    let token = first["continuationToken"].as_str().unwrap();
    assert_eq!(listed(&api, &format!("limit=7&continuationToken={token}")).await, [2, 1, 0]);
}

#[tokio::test]
async fn an_item_has_the_standard_fields_and_the_dead_letter_itself_has_all() {
    let api = world_with_dead_letters().await;
    let item = api.get("/api/dlq?engine=hmac&limit=1").await.data()["items"][0].clone();
    let expected = json!({
        "engine": "hmac", "rowKey": letter(9).row_key, "instanceId": "i0", "originalQueue": "hmac-queue",
        "errorMessage": "no receiver accepted it", "dequeueCount": 5, "status": "Resolved",
        "firstFailureAtUtc": "1970-01-10T00:00:00.000Z", "lastFailureAtUtc": "1970-01-10T00:00:00.001Z",
        "correlationId": "c9",
    });
    assert_eq!(item, expected);
    let key: String = url::form_urlencoded::byte_serialize(letter(9).row_key.as_bytes()).collect();
    let shown = api.get(&format!("/api/dlq/hmac/{key}")).await.data();
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&shown[name], value);
    }
    assert_eq!(shown["originalMessage"], "{\"number\":9}");
    assert_eq!((&shown["resolutionNotes"], &shown["resolvedBy"]), (&json!("done"), &json!("me")));
    assert_eq!(shown["resolvedAtUtc"], "1970-01-10T00:00:00.002Z");
    let missing = api.get(&format!("/api/dlq/ingress/{key}")).await;
    assert_eq!(missing.error(), failed(404, "RESOURCE_NOT_FOUND", ""));
    assert_eq!(api.get("/api/dlq/a%00b/c").await.error(), failed(400, "VALIDATION_ERROR", "engine"));
}

#[tokio::test]
async fn unknown_parameters_and_invalid_values_are_rejected() {
    let api = TestApi::new().await;
    for (query, target) in [
        ("status=pending", "status"),
        ("engine=", "engine"),
        ("limit=1000", "limit"),
        ("fromDate=x", "fromDate"),
        ("correlationId=c1", "correlationId"),
    ] {
        let rejected = api.get(&format!("/api/dlq?{query}")).await;
        assert_eq!(rejected.error(), failed(400, "VALIDATION_ERROR", target), "{query}");
    }
}
