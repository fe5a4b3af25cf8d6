//! A server without a socket, and helpers to send it requests.

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::{EgressGuard, EgressGuardConfig, LocalActivities};
use abide_runtime::Node;
use abide_runtime::definitions::Definitions;
use abide_server::{ActivityCatalogue, App, AppLimits, Config, OriginPolicy, router};
use abide_store::Store;
use abide_store::memory::MemoryStore;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::openapi_conformance::Exchange;

/// Small, so that tests can exceed it.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct TestApi {
    router: Router,
}

/// A response with its whole body.
#[derive(Clone, Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestApi {
    /// A ready node on an empty store.
    pub(crate) async fn new() -> Self {
        let (api, app) = Self::on_store(MemoryStore::default());
        app.ready().await;
        api
    }

    /// As [`Self::new`], with a changed configuration.
    pub(crate) async fn with_config(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let (api, app) = Self::on_store_with_config(MemoryStore::default(), &config);
        app.ready().await;
        api
    }

    /// A node on this store; it may not be ready yet.
    pub(crate) fn on_store<S: Store>(store: S) -> (Self, App<S>) {
        Self::on_store_with_config(store, &Config::default())
    }

    pub(crate) fn on_store_with_config<S: Store>(store: S, config: &Config) -> (Self, App<S>) {
        Self::on_shared_store(&Arc::new(store), config)
    }

    /// A node on a store that the test reads or writes too.
    pub(crate) fn on_shared_store<S: Store>(store: &Arc<S>, config: &Config) -> (Self, App<S>) {
        let store = Arc::clone(store);
        let activities =
            LocalActivities::with_builtins(EgressGuard::new(EgressGuardConfig::default())).unwrap();
        let mut options = config.node_options("node".to_owned(), 1, &store.capabilities()).unwrap();
        let limits = AppLimits {
            body_bytes_max: BODY_BYTES_MAX,
            payload_bytes_max: options.shard_config.run_limits.payload_bytes_max,
            reply_timeout: Duration::from_millis(config.server.reply_timeout.0),
            response_bytes_max: config.server.response_bytes_max,
            requests_per_second: config.server.requests_per_second,
            concurrent_sessions_max: config.runtime.max_concurrent_sessions,
        };
        let origin_policy = OriginPolicy::new(config.server.listen, &config.server.hosts);
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let outbound = config.dispatch.outbound().unwrap();
        let catalogue = ActivityCatalogue::new(&store, activities, outbound, &config.activities).unwrap();
        options.shard_config.targets = catalogue.targets();
        let node = Node::start(store, definitions, catalogue.activity_router(), options).unwrap();
        let app = App::new(Arc::new(node), catalogue, limits, origin_policy);
        (Self { router: router(app.clone()) }, app)
    }

    /// Sends a request as clients do, with `Host` and `Content-Type`.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> TestResponse {
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert(HeaderValue::from_static("localhost:7070"));
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        self.send_as_is(request).await
    }

    pub(crate) async fn send_as_is(&self, request: Request<Body>) -> TestResponse {
        let (method, uri, request_headers) =
            (request.method().clone(), request.uri().clone(), request.headers().clone());
        let (request, request_body) = buffer_body(request).await;
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let status = parts.status;
        let headers = parts.headers;
        let request_body = request_body.as_deref();
        let method = &method;
        let uri = &uri;
        let request_headers = &request_headers;
        Exchange { method, uri, request_headers, request_body, status, headers: &headers, body: &text }
            .check();
        TestResponse { status, headers, text }
    }

    pub(crate) async fn request(&self, method: Method, path: &str, body: impl Into<Body>) -> TestResponse {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.request(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.request(Method::POST, path, body.to_string()).await
    }

    /// Publishes a definition of these states, which starts at `Begin`.
    pub(crate) async fn publish(&self, id: &str, states: &Value) -> TestResponse {
        self.post("/api/workflows", &definition(id, "1.0.0", states)).await
    }

    /// Publishes a definition with the states of [`waits_for_event`].
    pub(crate) async fn publish_waiting(&self, id: &str) {
        let response = self.publish(id, &waits_for_event()).await;
        assert_eq!(response.status, 201, "{}", response.text);
    }
}

/// The request and its body, unless the body is streamed.
async fn buffer_body(request: Request<Body>) -> (Request<Body>, Option<Bytes>) {
    if request.body().size_hint().exact().is_none() {
        return (request, None);
    }
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (Request::from_parts(parts, Body::from(bytes.clone())), Some(bytes))
}

impl TestResponse {
    /// The envelope, with its common parts checked.
    pub(crate) fn json(&self) -> Value {
        let json: Value = serde_json::from_str(&self.text).unwrap();
        assert_eq!(self.headers["content-type"], "application/json");
        assert_eq!(json["correlationId"], self.headers["x-correlation-id"].to_str().unwrap());
        assert!(json["timestamp"].as_str().unwrap().ends_with('Z'));
        let (status, part) =
            if self.status.is_success() { ("Succeeded", "data") } else { ("Failed", "error") };
        assert_eq!(json["status"], status);
        assert!(json.get(part).is_some() && json.as_object().unwrap().len() == 4, "{json}");
        json
    }

    pub(crate) fn data(&self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.text);
        self.json()["data"].clone()
    }

    /// Status, code and target of a failure.
    pub(crate) fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty());
        (self.status.as_u16(), text("code"), text("target"))
    }
}

pub(crate) fn definition(id: &str, version: &str, states: &Value) -> Value {
    json!({
        "$schema": "workflow-schema-v1.json", "id": id, "version": version,
        "startAt": "Begin", "states": states,
    })
}

/// Ends at once with its input.
pub(crate) fn echo() -> Value {
    json!({"Begin": {"type": "succeed", "output": "$.input"}})
}

/// Waits for the event `Go` and ends with its payload.
pub(crate) fn waits_for_event() -> Value {
    json!({
        "Begin": {
            "type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "P1D",
            "output": "$.state.brought", "next": "Done",
        },
        "Done": {"type": "succeed", "output": "$.state.brought"},
    })
}

pub(crate) fn failed(status: u16, code: &str, target: &str) -> (u16, String, String) {
    (status, code.to_owned(), target.to_owned())
}

/// The error of a response that must have this status.
pub(crate) fn error(response: &TestResponse, status: u16) -> Value {
    assert_eq!(response.status, status, "{}", response.text);
    response.json()["error"].clone()
}
