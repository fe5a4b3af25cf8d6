//! A server without a socket, and how to ask it.

use std::sync::Arc;
use std::time::Duration;

use abide_dispatch::{Activities, Guard, GuardConfig};
use abide_runtime::Node;
use abide_runtime::definitions::Definitions;
use abide_runtime::hands::Store;
use abide_server::{App, AppLimits, Callers, Catalogue, Config, router};
use abide_store::memory::MemoryStore;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::described::Exchange;

/// Bytes of a body; small, so that tests can exceed it.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct World {
    router: Router,
}

/// A response, read.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl World {
    /// A node at work on an empty store.
    pub(crate) async fn new() -> Self {
        let world = Self::on(MemoryStore::default());
        world.1.ready().await;
        world.0
    }

    /// As [`Self::new`], configured otherwise.
    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        let world = Self::configured(MemoryStore::default(), &config);
        world.1.ready().await;
        world.0
    }

    /// A node on this store, whether it works or not.
    pub(crate) fn on<S: Store>(store: S) -> (Self, App<S>) {
        Self::configured(store, &Config::default())
    }

    pub(crate) fn configured<S: Store>(store: S, config: &Config) -> (Self, App<S>) {
        Self::beside(&Arc::new(store), config)
    }

    /// A node on a store that somebody else looks into.
    pub(crate) fn beside<S: Store>(store: &Arc<S>, config: &Config) -> (Self, App<S>) {
        let store = Arc::clone(store);
        let activities = Activities::with_builtins(Guard::new(GuardConfig::default())).unwrap();
        let mut options = config.node_options("node".to_owned(), 1, &store.capabilities()).unwrap();
        let limits = AppLimits {
            body_bytes_max: BODY_BYTES_MAX,
            payload_bytes_max: options.shard.run.payload_bytes_max,
            answer_max: Duration::from_millis(config.server.answer_timeout.0),
            requests_per_second: config.server.requests_per_second,
            sessions_max: config.runtime.max_concurrent_sessions,
        };
        let callers = Callers::new(config.server.listen, &config.server.hosts);
        let definitions = Arc::new(Definitions::new(Arc::clone(&store)).unwrap());
        let outbound = config.dispatch.outbound().unwrap();
        let catalogue = Catalogue::new(&store, activities, outbound, &config.activities).unwrap();
        options.shard.targets = catalogue.targets();
        let node = Node::start(store, definitions, catalogue.everywhere(), options).unwrap();
        let app = App::new(Arc::new(node), catalogue, limits, callers);
        (Self { router: router(app.clone()) }, app)
    }

    /// Sends a request as clients do: it says whom it is for and what it brings.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Answer {
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert(HeaderValue::from_static("localhost:7070"));
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        self.send_as_is(request).await
    }

    pub(crate) async fn send_as_is(&self, request: Request<Body>) -> Answer {
        let (method, uri, asked) =
            (request.method().clone(), request.uri().clone(), request.headers().clone());
        let (request, sent) = known(request).await;
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (status, headers) = (parts.status, parts.headers);
        let sent = sent.as_deref();
        let (method, uri, asked) = (&method, &uri, &asked);
        Exchange { method, uri, asked, sent, status, headers: &headers, body: &text }.check();
        Answer { status, headers, text }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, body.to_string()).await
    }

    /// Publishes a definition of these states, which begins with `Begin`.
    pub(crate) async fn publish(&self, id: &str, states: &Value) -> Answer {
        self.post("/api/workflows", &definition(id, "1.0.0", states)).await
    }

    /// Publishes a definition that [`waits`].
    pub(crate) async fn publish_waiting(&self, id: &str) {
        let answer = self.publish(id, &waits()).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
}

/// A request and its body, unless that comes bit by bit.
async fn known(request: Request<Body>) -> (Request<Body>, Option<Bytes>) {
    if request.body().size_hint().exact().is_none() {
        return (request, None);
    }
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (Request::from_parts(parts, Body::from(bytes.clone())), Some(bytes))
}

impl Answer {
    /// The envelope, checked as far as it is the same for all.
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

/// Waits for the event `Go` and ends with what it brought.
pub(crate) fn waits() -> Value {
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

/// The error of an answer with this status.
pub(crate) fn error(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.text);
    answer.json()["error"].clone()
}
