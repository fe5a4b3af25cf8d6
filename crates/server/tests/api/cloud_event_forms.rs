//! `POST /api/events`: valid and invalid forms of CloudEvents.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::test_api::{TestApi, TestResponse, error};

/// A server that records events of one type.
async fn api() -> TestApi {
    let api = TestApi::new().await;
    let route = json!({"entityType": "device", "action": "record"}).to_string();
    assert_eq!(api.request(Method::PUT, "/api/routes/noted", route).await.status, 200);
    api
}

/// Sends an event in headers, with these additional headers.
async fn binary(api: &TestApi, content_type: &str, headers: &[(&str, &str)]) -> TestResponse {
    let mut request = Request::post("/api/events").header("content-type", content_type);
    for (name, value) in [("ce-specversion", "1.0"), ("ce-source", "/fleet"), ("ce-type", "noted")] {
        request = request.header(name, value);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::from("{}")).unwrap()).await
}

async fn recorded(api: &TestApi, session: &str) -> Value {
    api.get(&format!("/api/entities/device/{session}/events")).await.data()["items"][0]["event"].clone()
}

#[tokio::test]
async fn a_quoted_header_is_unquoted_before_it_is_decoded() {
    let api = api().await;
    let headers = [("ce-id", "1"), ("ce-subject", "\"dev-1\""), ("ce-said", "\"a \\\"b\\\\ %22c%C3%A4\"")];
    let response = binary(&api, "application/json", &headers).await;
    assert_eq!(response.status, 202, "{}", response.text);
    assert_eq!(recorded(&api, "dev-1").await["said"], "a \"b\\ \"cä");
    let headers = [("ce-id", "2"), ("ce-subject", "dev-2"), ("ce-said", "a \"b\" c")];
    assert_eq!(binary(&api, "application/json", &headers).await.status, 202);
    assert_eq!(recorded(&api, "dev-2").await["said"], "a \"b\" c", "inner quotes are unchanged");
    for wrong in ["\"a", "\"", "\"a\\\"", "\"a\"b"] {
        let headers = [("ce-id", "3"), ("ce-subject", "dev-3"), ("ce-said", wrong)];
        let rejected = binary(&api, "application/json", &headers).await;
        assert_eq!(error(&rejected, 400)["target"], "ce-said", "{wrong}");
    }
}

#[tokio::test]
async fn an_unknown_format_of_whole_events_is_not_taken_for_event_data() {
    let api = api().await;
    let headers = [("ce-id", "1"), ("ce-subject", "dev-1")];
    for kind in [
        "application/cloudevents+xml",
        "application/cloudevents-batch+avro",
        "Application/CloudEvents+protobuf; x=y",
    ] {
        assert_eq!(binary(&api, kind, &headers).await.status, 415, "{kind}");
    }
    assert_eq!(binary(&api, "application/xml", &headers).await.status, 202);
}

#[tokio::test]
async fn data_and_its_type_are_not_accepted_as_headers() {
    let api = api().await;
    for name in ["ce-data", "ce-data_base64", "ce-datacontenttype"] {
        let headers = [("ce-id", "1"), ("ce-subject", "dev-1"), (name, "e30=")];
        let rejected = binary(&api, "application/json", &headers).await;
        assert_eq!(error(&rejected, 400)["target"], name);
    }
}

#[tokio::test]
async fn numbers_in_attributes_are_32_bit_integers() {
    let api = api().await;
    let send = async |number: &str| {
        let event = format!(
            r#"{{"specversion": "1.0", "id": "{number}", "source": "/fleet", "type": "noted", "subject": "d", "n": {number}}}"#
        );
        let request = Request::post("/api/events").header("content-type", "application/cloudevents+json");
        api.send(request.body(Body::from(event)).unwrap()).await
    };
    for fine in ["0", "-2147483648", "2147483647", "true"] {
        assert_eq!(send(fine).await.status, 202, "{fine}");
    }
    for wrong in ["1.5", "1e3", "2147483648", "-2147483649"] {
        assert_eq!(error(&send(wrong).await, 400)["target"], "/n", "{wrong}");
    }
}
