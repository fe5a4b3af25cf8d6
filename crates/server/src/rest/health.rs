//! `/healthz`, `/readyz`, `/metrics`: what orchestrators and monitoring ask.

use abide_runtime::hands::Store;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::asked::Asked;
use crate::envelope;
use crate::error::ApiError;
use crate::metrics;
use crate::openapi::{Answer, Operation};

pub(super) const LIVES: Operation = Operation {
    id: "lives",
    tag: "Server",
    about: "Whether the process lives.",
    answers: &[Answer::data::<HealthJson>(200, "It does.")],
    ..Operation::NONE
};

pub(super) const IS_READY: Operation = Operation {
    id: "isReady",
    tag: "Server",
    about: "Whether requests can be served: every shard is at work and the store is usable. 503 says why not.",
    answers: &[Answer::data::<HealthJson>(200, "They can.")],
    ..Operation::NONE
};

pub(super) const METRICS: Operation = Operation {
    id: "showMetrics",
    tag: "Server",
    about: "Counters and gauges in Prometheus's text format.",
    answers: &[Answer::text(200, METRICS_KIND, "The metrics.")],
    ..Operation::NONE
};

const METRICS_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How the server is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
struct HealthJson {
    health: &'static str,
}

/// The process lives.
pub(super) async fn lives<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &HealthJson { health: "alive" }))
}

/// Requests can be served, or why not.
pub(super) async fn is_ready<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    app.readiness().await.map_err(ApiError::unavailable)?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &HealthJson { health: "ready" }))
}

/// Counters and gauges, in Prometheus's text format.
pub(super) async fn metrics<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let text = metrics::render(app.node().metrics(), app.store_is_usable().await);
    let kind = HeaderValue::from_static(METRICS_KIND);
    Ok(envelope::respond(StatusCode::OK, asked.correlation(), kind, Body::from(text)))
}
