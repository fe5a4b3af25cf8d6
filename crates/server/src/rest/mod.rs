//! The HTTP API: maps each path and method to a handler. Each resource has its own file beside this one.
//!
//! Every API route is listed here, one line each, and nowhere else. Only the paths of Durable Functions are routed in
//! [`crate::durable_functions`]. Handlers return a response or an error; one place builds the error responses.

mod activities;
mod activity_json;
mod api_route;
mod backup;
mod body_fields;
pub(crate) mod control;
mod dead_letters;
mod dispatches;
pub(crate) mod entities;
mod event_routes;
mod events;
mod health;
mod history;
mod hold_json;
mod idempotency;
mod instance_json;
mod instance_list;
mod instances;
mod openapi_json;
mod page;
mod purge;
pub(crate) mod start;
mod stats;
mod stuck;
mod workflow_versions;
mod workflows;

use abide_store::Store;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;

pub use backup::BackupSource;
pub use openapi_json::openapi_document;

use crate::api_request::ApiRequest;
use crate::app::App;
use crate::durable_functions;
use crate::error::ApiError;
use api_route::{ApiRoute, handler, route};

/// All API routes. A new one needs a line here and a description beside its handler.
#[rustfmt::skip]
fn api_routes<S: Store>() -> Vec<ApiRoute<S>> {
    vec![
        route!(POST   "/api/workflows", workflows::publish, workflows::PUBLISH),
        route!(GET    "/api/workflows", workflow_versions::list, workflow_versions::LIST),
        route!(POST   "/api/workflows/validate", workflow_versions::validate, workflow_versions::VALIDATE),
        route!(GET    "/api/workflows/{id}/versions", workflow_versions::versions, workflow_versions::VERSIONS),
        route!(POST   "/api/workflows/{id}/versions/{version}/retire", workflow_versions::retire, workflow_versions::RETIRE),
        route!(PUT    "/api/workflows/{id}/default", workflow_versions::set_default, workflow_versions::SET_DEFAULT),
        route!(GET    "/api/workflows/{id}", workflows::show, workflows::SHOW),
        route!(GET    "/api/instances", instance_list::list, instance_list::LIST),
        route!(POST   "/api/instances", start::start, start::START),
        route!(POST   "/api/instances/purge", purge::purge, purge::PURGE),
        route!(GET    "/api/instances/{id}", instances::show, instances::SHOW),
        route!(DELETE "/api/instances/{id}", instances::purge, instances::PURGE),
        route!(GET    "/api/instances/{id}/history", history::page, history::PAGE),
        route!(POST   "/api/instances/{id}/events/{name}", control::raise_event, control::RAISE_EVENT),
        route!(POST   "/api/instances/{id}/suspend", control::suspend, control::SUSPEND),
        route!(POST   "/api/instances/{id}/resume", control::resume, control::RESUME),
        route!(POST   "/api/instances/{id}/terminate", control::terminate, control::TERMINATE),
        route!(POST   "/api/instances/{id}/rewind", control::rewind, control::REWIND),
        route!(POST   "/api/instances/{id}/compensation/retry", control::retry_compensation, control::RETRY_COMPENSATION),
        route!(POST   "/api/instances/{id}/restart", control::restart, control::RESTART),
        route!(GET    "/api/entities", entities::list, entities::LIST),
        route!(GET    "/api/entities/{type}/{key}", entities::show, entities::SHOW),
        route!(GET    "/api/entities/{type}/{key}/events", entities::events, entities::EVENTS),
        route!(POST   "/api/entities/{type}/{key}/{operation}", entities::operate, entities::OPERATE),
        route!(POST   "/api/events", events::receive, events::RECEIVE),
        route!(GET    "/api/routes", event_routes::list, event_routes::LIST),
        route!(GET    "/api/routes/{eventType}", event_routes::show, event_routes::SHOW),
        route!(PUT    "/api/routes/{eventType}", event_routes::put, event_routes::PUT),
        route!(DELETE "/api/routes/{eventType}", event_routes::delete, event_routes::DELETE),
        route!(GET    "/api/stuck", stuck::list, stuck::LIST),
        route!(GET    "/api/stats", stats::show, stats::SHOW),
        route!(GET    "/api/activities", activities::list, activities::LIST),
        route!(GET    "/api/activities/{name}", activities::show, activities::SHOW),
        route!(PUT    "/api/activities/{name}", activities::put, activities::PUT),
        route!(DELETE "/api/activities/{name}", activities::delete, activities::DELETE),
        route!(GET    "/api/dispatches", dispatches::list, dispatches::LIST),
        route!(GET    "/api/dispatches/{instanceId}/{run}/{idempotencyKey}", dispatches::show, dispatches::SHOW),
        route!(GET    "/api/dlq", dead_letters::list, dead_letters::LIST),
        route!(GET    "/api/dlq/{engine}/{rowKey}", dead_letters::show, dead_letters::SHOW),
        route!(GET    "/api/backup", backup::backup, backup::BACKUP),
        route!(GET    "/api/openapi.json", openapi_json::show, openapi_json::SHOW),
        route!(GET    "/healthz", health::liveness, health::LIVENESS),
        route!(GET    "/readyz", health::readiness, health::READINESS),
        route!(GET    "/metrics", health::metrics, health::METRICS),
    ]
}

/// The paths of health checks and monitoring, which are served even when the server accepts nothing else.
pub(crate) const HEALTH_PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The router of the whole API, for all connections but the reserved ones.
pub fn router<S: Store>(app: App<S>) -> Router {
    let router =
        api_routes().into_iter().fold(Router::new(), |router, route: ApiRoute<S>| route.add_to(router));
    router
        .route(
            "/runtime/webhooks/{extension}/{*path}",
            any(|State(app): State<App<S>>, mut request: ApiRequest| async move {
                durable_functions::serve(&app, &mut request).await
            }),
        )
        .fallback(handler!(not_found))
        .method_not_allowed_fallback(handler!(method_not_allowed))
        .with_state(app)
}

/// The router for connections beyond the maximum: health and metrics, and an overload error for everything else.
pub(crate) fn overload_router<S: Store>(app: App<S>) -> Router {
    let routes = api_routes().into_iter().filter(|route: &ApiRoute<S>| HEALTH_PATHS.contains(&route.path));
    let router = routes.fold(Router::new(), |router, route: ApiRoute<S>| route.add_to(router));
    router
        .fallback(handler!(overloaded))
        .method_not_allowed_fallback(handler!(method_not_allowed))
        .with_state(app)
}

async fn overloaded<S: Store>(_app: &App<S>, _request: &mut ApiRequest) -> Result<Response, ApiError> {
    Err(ApiError::unavailable("too many connections; try again later"))
}

async fn not_found<S: Store>(_app: &App<S>, _request: &mut ApiRequest) -> Result<Response, ApiError> {
    Err(ApiError::not_found("there is no resource at this path"))
}

async fn method_not_allowed<S: Store>(
    _app: &App<S>,
    _request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let message = "this path does not support this method; the header Allow lists the supported ones";
    Err(ApiError::rejected(StatusCode::METHOD_NOT_ALLOWED, message))
}
