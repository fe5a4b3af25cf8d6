//! `/healthz`, `/readyz`, `/metrics`: health checks and metrics. They are served even when the server is overloaded.

use abide_store::Store;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::metrics::{self, ServerMetrics};
use crate::openapi::{OperationSpec, ResponseSpec};
use crate::response;

pub(super) const LIVENESS: OperationSpec = OperationSpec {
    id: "lives",
    tag: "Server",
    about: "Checks that the process is alive.",
    responses: &[ResponseSpec::enveloped::<HealthJson>(200, "The process is alive.")],
    ..OperationSpec::EMPTY
};

pub(super) const READINESS: OperationSpec = OperationSpec {
    id: "isReady",
    tag: "Server",
    about: "Checks that requests can be served: every shard is ready and the store is usable. A 503 has the reason if not.",
    responses: &[ResponseSpec::enveloped::<HealthJson>(200, "Requests can be served.")],
    ..OperationSpec::EMPTY
};

pub(super) const METRICS: OperationSpec = OperationSpec {
    id: "showMetrics",
    tag: "Server",
    about: "Returns counters and gauges in Prometheus's text format.",
    responses: &[ResponseSpec::text(200, METRICS_CONTENT_TYPE, "The metrics.")],
    ..OperationSpec::EMPTY
};

const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
struct HealthJson {
    health: &'static str,
}

pub(super) async fn liveness<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    Ok(request.data_response(StatusCode::OK, app.now(), &HealthJson { health: "alive" }))
}

pub(super) async fn readiness<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    app.readiness().await.map_err(ApiError::unavailable)?;
    Ok(request.data_response(StatusCode::OK, app.now(), &HealthJson { health: "ready" }))
}

pub(super) async fn metrics<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let text = metrics::render(app.node().metrics(), &ServerMetrics::of(app), app.is_store_usable().await);
    let content_type = HeaderValue::from_static(METRICS_CONTENT_TYPE);
    Ok(response::build_response(StatusCode::OK, request.correlation(), content_type, Body::from(text)))
}
