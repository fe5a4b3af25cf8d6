//! `/api/entities`: idempotent operations, pages of events, lists.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::test_api::{TestApi, error};

const DEVICE: &str = "/api/entities/device/dev-1";

async fn record(api: &TestApi, path: &str, event: &Value) -> Value {
    let response = api.post(&format!("{path}/RecordEvent"), event).await;
    assert_eq!(response.status, 200, "{}", response.text);
    response.data()["output"].clone()
}

#[tokio::test]
async fn events_are_recorded_in_order_read_in_pages_and_cleared_up_to_a_position() {
    let api = TestApi::new().await;
    assert_eq!(api.get(DEVICE).await.status, 404);
    for number in 0..5 {
        assert_eq!(record(&api, DEVICE, &json!({"n": number})).await, json!({"position": number}));
    }
    let shown = api.get(DEVICE).await.data();
    assert_eq!(
        (&shown["eventCount"], &shown["nextPosition"], &shown["state"]),
        (&json!(5), &json!(5), &Value::Null)
    );

    let first = api.get(&format!("{DEVICE}/events?limit=2")).await.data();
    let numbers = |page: &Value| -> Vec<i64> {
        page["items"].as_array().unwrap().iter().map(|item| item["event"]["n"].as_i64().unwrap()).collect()
    };
    assert_eq!(numbers(&first), [0, 1]);
    let token = first["continuationToken"].as_str().unwrap();
    let second = api.get(&format!("{DEVICE}/events?continuationToken={token}")).await.data();
    assert_eq!((numbers(&second), &second["continuationToken"]), (vec![2, 3, 4], &Value::Null));
    assert_eq!(numbers(&api.get(&format!("{DEVICE}/events?from=3")).await.data()), [3, 4]);

    let cleared = api.post(&format!("{DEVICE}/clear"), &json!({"upTo": 2})).await.data();
    assert_eq!(cleared["output"], json!({"cleared": 3, "firstPosition": 3}));
    let left = api.post(&format!("{DEVICE}/GetEvents"), &json!({"limit": 10})).await.data();
    assert_eq!(numbers(&left["output"]), [3, 4]);
    assert_eq!(api.post(&format!("{DEVICE}/getState"), &json!({})).await.data()["output"]["eventCount"], 2);
}

#[tokio::test]
async fn an_operation_with_a_key_takes_effect_once() {
    let api = TestApi::new().await;
    let send = |event: Value, key: &'static str| {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{DEVICE}/RecordEvent"))
            .header("Idempotency-Key", key)
            .body(Body::from(event.to_string()))
            .unwrap();
        api.send(request)
    };
    let first = send(json!(1), "k1").await.data();
    assert!(first["idempotencyKeyExpiresAtUtc"].is_string(), "{first}");
    assert_eq!(send(json!(1), "k1").await.data(), first);
    assert_eq!(error(&send(json!(2), "k1").await, 409)["code"], "CONFLICT");
    assert_eq!(send(json!(2), "k2").await.data()["output"], json!({"position": 1}));
    assert_eq!(api.get(DEVICE).await.data()["eventCount"], 2);
}

#[tokio::test]
async fn invalid_operations_are_rejected() {
    let api = TestApi::new().await;
    record(&api, DEVICE, &json!(1)).await;
    for (path, body) in [
        ("/api/entities/device/dev-1/Dance", json!({})),
        ("/api/entities/device/dev-1/Clear", json!({"upTo": "x"})),
        ("/api/entities/device/dev-1/Clear", json!({"all": true})),
        ("/api/entities/de%20vice/dev-1/RecordEvent", json!({})),
        ("/api/entities/device/a%00b/RecordEvent", json!({})),
        ("/api/entities/device/dev-1/GetEvents", json!({"limit": 1_000_000})),
    ] {
        assert_eq!(error(&api.post(path, &body).await, 400)["code"], "VALIDATION_ERROR", "{path}");
    }
    assert_eq!(api.get("/api/entities/device/other/events").await.status, 404);
    assert_eq!(
        error(&api.get(&format!("{DEVICE}/events?continuationToken=x")).await, 400)["target"],
        "continuationToken"
    );
}

#[tokio::test]
async fn each_entity_is_listed_once_by_type_and_in_pages() {
    let api = TestApi::new().await;
    for number in 0..25 {
        record(&api, &format!("/api/entities/device/dev-{number}"), &json!(number)).await;
        record(&api, &format!("/api/entities/sensor/s{number}"), &json!(number)).await;
    }
    for (query, count) in [("", 50), ("type=device&", 25), ("type=SENSOR&", 25), ("type=none&", 0)] {
        let mut found = std::collections::BTreeSet::new();
        let mut token = String::new();
        loop {
            let page = api.get(&format!("/api/entities?{query}limit=7{token}")).await.data();
            for item in page["items"].as_array().unwrap() {
                assert!(found.insert(item.to_string()), "{item} is duplicated");
            }
            match page["continuationToken"].as_str() {
                Some(next) => token = format!("&continuationToken={next}"),
                None => break,
            }
        }
        assert_eq!(found.len(), count, "{query}");
    }
}

#[tokio::test]
async fn a_token_of_a_list_of_another_type_is_rejected() {
    let api = TestApi::new().await;
    for number in 0..40 {
        record(&api, &format!("/api/entities/device/dev-{number}"), &json!(number)).await;
        record(&api, &format!("/api/entities/sensor/s{number}"), &json!(number)).await;
    }
    let page = api.get("/api/entities?type=device&limit=1").await.data();
    let token = page["continuationToken"].as_str().unwrap();
    let rejected = api.get(&format!("/api/entities?type=sensor&continuationToken={token}")).await;
    assert_eq!(error(&rejected, 400)["target"], "continuationToken");
    let durable = |entity_type: &str, token: Option<&str>| {
        let path = format!("/runtime/webhooks/durabletask/entities/{entity_type}?top=1");
        let request = Request::get(path).header("x-ms-continuation-token", token.unwrap_or_default());
        api.send(request.body(Body::empty()).unwrap())
    };
    let page = durable("device", None).await;
    let token = page.headers["x-ms-continuation-token"].to_str().unwrap();
    assert_eq!(durable("Device", Some(token)).await.status, 200);
    assert_eq!(durable("sensor", Some(token)).await.status, 400);
}
