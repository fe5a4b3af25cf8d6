//! `/healthz`, `/readyz`, `/metrics`: what orchestrators and monitoring ask.

use abide_runtime::hands::Store;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::app::App;
use crate::asked::Asked;
use crate::envelope;
use crate::error::ApiError;
use crate::metrics;

#[derive(Serialize)]
struct HealthJson {
    health: &'static str,
}

/// The process lives.
pub(super) async fn lives<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    Ok(asked.succeed(StatusCode::OK, app.now(), &HealthJson { health: "alive" }))
}

/// Requests can be served, or why not.
pub(super) async fn is_ready<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    app.readiness().await.map_err(ApiError::unavailable)?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &HealthJson { health: "ready" }))
}

/// Counters and gauges, in Prometheus's text format.
pub(super) async fn metrics<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let text = metrics::render(app.node().metrics(), app.store_is_usable().await);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(envelope::respond(StatusCode::OK, asked.correlation(), kind, Body::from(text)))
}
