//! Requests of web pages of other sites, and requests for other hosts.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;

use crate::test_api::{TestApi, failed};

#[tokio::test]
async fn pages_of_other_sites_can_do_nothing() {
    let api = TestApi::new().await;
    api.publish_waiting("w").await;
    let begun = api.post("/api/instances", &json!({"workflow": "w", "instanceId": "i"})).await;
    assert_eq!(begun.status, 202);
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:3000"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for (method, path) in [
            (Method::POST, "/api/instances/i/terminate"),
            (Method::POST, "/api/instances/i/events/Go"),
            (Method::DELETE, "/api/instances/i"),
            (Method::OPTIONS, "/api/instances"),
            (Method::GET, "/api/instances/i"),
            (Method::GET, "/metrics"),
            (Method::GET, "/nowhere"),
        ] {
            let request = Request::builder().method(&method).uri(path).header(name, value);
            let rejected = api.send(request.body(Body::empty()).unwrap()).await;
            let (status, code, target) = rejected.error();
            assert_eq!(
                (status, code.as_str()),
                (403, "AUTHORIZATION_FAILED"),
                "{method} {path} {name}: {value}"
            );
            assert!(target.eq_ignore_ascii_case(name), "{target}");
            assert!(!rejected.headers.contains_key("access-control-allow-origin"));
        }
    }
    assert_eq!(api.get("/api/instances/i").await.data()["status"], "Running");

    let own = Request::post("/api/instances/i/terminate").header("origin", "http://localhost:7070");
    let own = own.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap();
    assert_eq!(api.send(own).await.status, 202, "a page of this server");
}

#[tokio::test]
async fn a_request_for_another_host_is_rejected() {
    let api = TestApi::with_config(|config| config.server.hosts = vec!["abide.internal".to_owned()]).await;
    let get_as = async |host: &str| {
        let request = Request::get("/healthz").header("host", host).body(Body::empty()).unwrap();
        api.send_as_is(request).await
    };
    for host in ["localhost:7070", "127.0.0.1", "[::1]:7070", "abide.internal"] {
        assert_eq!(get_as(host).await.status, 200, "{host}");
    }
    for host in ["rebound.example:7070", "192.168.1.7", "abide.internal.evil.example"] {
        assert_eq!(get_as(host).await.error(), failed(421, "VALIDATION_ERROR", "Host"), "{host}");
    }
    let nameless = api.send_as_is(Request::get("/healthz").body(Body::empty()).unwrap()).await;
    assert_eq!(nameless.error(), failed(421, "VALIDATION_ERROR", "Host"));
}
