//! Entities: signals, states and lists.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::{ROOT, api, bare, delete, get, json_of, message, post, request};
use crate::test_api::TestApi;

async fn record(api: &TestApi, entity: &str, event: &Value) {
    let response = post(api, &format!("/entities/{entity}?op=RecordEvent"), event).await;
    assert_eq!(bare(&response), 202);
}

#[tokio::test]
async fn a_signal_is_accepted_and_takes_effect() {
    let api = api().await;
    assert_eq!(bare(&get(&api, "/entities/Device/d-1").await), 404);
    for number in 0..3 {
        record(&api, "Device/d-1", &json!({"number": number})).await;
    }
    // Entity types and built-in operations are case-insensitive.
    let shown = get(&api, "/entities/device/d-1?code=x").await;
    let state = json!({"eventCount": 3, "firstPosition": 0, "nextPosition": 3});
    assert_eq!((shown.status.as_u16(), json_of(&shown)), (200, state));
    assert_eq!(post(&api, "/entities/device/d-1?op=clear", &json!({"upTo": 1})).await.status, 202);
    assert_eq!(json_of(&get(&api, "/entities/device/d-1").await)["eventCount"], 1);
    // An operation that only reads has no effect as a signal.
    assert_eq!(
        bare(&request(&api, Method::POST, "/entities/device/d-1?op=GetState", Body::empty()).await),
        202
    );
}

#[tokio::test]
async fn an_invalid_signal_is_rejected() {
    let api = api().await;
    for path in ["/entities/device/d?op=Explode", "/entities/device/d", "/entities/a%20b/d?op=RecordEvent"] {
        assert_eq!(message(&request(&api, Method::POST, path, "1").await).0, 400, "{path}");
    }
    assert_eq!(message(&post(&api, "/entities/device/d?op=Clear", &json!({"upto": 1})).await).0, 400);
    // Clients use DELETE as the signal `delete`, which no entity kind here has.
    assert_eq!(message(&delete(&api, "/entities/device/d").await).0, 400);
    let text =
        Request::builder().method(Method::POST).uri(format!("{ROOT}/entities/device/d?op=RecordEvent"));
    let text = text.header("content-type", "text/plain").body(Body::from("hello")).unwrap();
    assert_eq!(message(&api.send(text).await).0, 400);
    assert_eq!(bare(&get(&api, "/entities/device/d").await), 404);
    assert_eq!(message(&get(&api, "/entities/a%20b/d").await).0, 400);
}

/// Types and keys of all pages of a list.
async fn listed(api: &TestApi, path: &str) -> BTreeSet<(String, String)> {
    let (mut found, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut request = Request::builder().uri(format!("{ROOT}{path}"));
        if let Some(token) = &token {
            request = request.header("x-ms-continuation-token", token);
        }
        let page = api.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(page.status, 200, "{}", page.text);
        for item in json_of(&page).as_array().unwrap() {
            let text = |name: &str| item["entityId"][name].as_str().unwrap().to_owned();
            assert!(item["lastOperationTime"].as_str().unwrap().ends_with('Z'), "{item}");
            found.push((text("name"), text("key")));
        }
        token = page.headers.get("x-ms-continuation-token").map(|token| token.to_str().unwrap().to_owned());
        if token.is_none() {
            let distinct: BTreeSet<_> = found.iter().cloned().collect();
            assert_eq!(distinct.len(), found.len(), "each once");
            return distinct;
        }
    }
}

#[tokio::test]
async fn entities_are_listed_by_type_and_time() {
    let api = api().await;
    let mut expected = BTreeSet::new();
    for number in 0..20 {
        for kind in ["device", "site"] {
            record(&api, &format!("{kind}/k-{number}"), &json!(number)).await;
            expected.insert((kind.to_owned(), format!("k-{number}")));
        }
    }
    assert_eq!(listed(&api, "/entities").await, expected);
    assert_eq!(listed(&api, "/entities/?top=3").await, expected);
    let devices = expected.into_iter().filter(|(kind, _)| kind == "device").collect::<BTreeSet<_>>();
    assert_eq!(listed(&api, "/entities/Device?top=7").await, devices);
    assert_eq!(listed(&api, "/entities/device?lastOperationTimeFrom=2020-01-01").await, devices);
    assert_eq!(listed(&api, "/entities?lastOperationTimeTo=2020-01-01").await, BTreeSet::new());

    let plain = json_of(&get(&api, "/entities/site?top=1").await);
    assert_eq!(plain[0]["state"], Value::Null);
    let fetched = json_of(&get(&api, "/entities/site?top=1&fetchState=true").await);
    assert_eq!(fetched[0]["state"]["eventCount"], 1);
    let request =
        Request::builder().uri(format!("{ROOT}/entities")).header("x-ms-continuation-token", "AAAA");
    assert_eq!(message(&api.send(request.body(Body::empty()).unwrap()).await).0, 400);
}

#[tokio::test]
async fn a_key_may_contain_an_escaped_slash() {
    let api = api().await;
    record(&api, "device/a%2Fb", &json!(1)).await;
    assert_eq!(json_of(&get(&api, "/entities/device/a%2Fb").await)["eventCount"], 1);
    assert_eq!(api.get("/api/entities/device/a%2Fb").await.data()["entityKey"], "a/b");
    assert_eq!(bare(&get(&api, "/entities/device/a/b").await), 404);
    assert_eq!(message(&get(&api, "/entities/device/%FF").await).0, 400);
}
