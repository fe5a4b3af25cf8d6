//! The HTTP interface: which path and method leads to which function. A file per resource beside this one.
//!
//! Every route is here, one line each, and nowhere else, but for those of Durable Functions, which [`crate::durable`] tells apart. Handlers answer data or an error; responses are made of both in one place.

mod activities;
mod activity_json;
mod body;
mod dispatches;
mod dlq;
pub(crate) mod entities;
mod events;
mod health;
mod history;
mod instance_json;
mod instances;
mod list;
mod openapi_json;
pub(crate) mod orders;
mod page;
mod purge;
mod repeat;
mod route;
mod routes;
pub(crate) mod start;
mod stats;
mod stuck;
mod versions;
mod workflows;

use abide_runtime::hands::Store;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::any;

pub use openapi_json::interface;

use crate::app::App;
use crate::asked::Asked;
use crate::durable;
use crate::error::ApiError;
use route::{Route, answered, route};

/// All routes. A new one is a line here and a description beside its handler.
#[rustfmt::skip]
fn routes<S: Store>() -> Vec<Route<S>> {
    vec![
        route!(POST   "/api/workflows", workflows::publish, workflows::PUBLISH),
        route!(GET    "/api/workflows", versions::list, versions::LIST),
        route!(POST   "/api/workflows/validate", versions::validate, versions::VALIDATE),
        route!(GET    "/api/workflows/{id}/versions", versions::versions, versions::VERSIONS),
        route!(POST   "/api/workflows/{id}/versions/{version}/retire", versions::retire, versions::RETIRE),
        route!(PUT    "/api/workflows/{id}/default", versions::set_default, versions::SET_DEFAULT),
        route!(GET    "/api/workflows/{id}", workflows::show, workflows::SHOW),
        route!(GET    "/api/instances", list::list, list::LIST),
        route!(POST   "/api/instances", start::start, start::START),
        route!(POST   "/api/instances/purge", purge::purge, purge::PURGE),
        route!(GET    "/api/instances/{id}", instances::show, instances::SHOW),
        route!(DELETE "/api/instances/{id}", instances::purge, instances::PURGE),
        route!(GET    "/api/instances/{id}/history", history::page, history::PAGE),
        route!(POST   "/api/instances/{id}/events/{name}", orders::raise_event, orders::RAISE_EVENT),
        route!(POST   "/api/instances/{id}/suspend", orders::suspend, orders::SUSPEND),
        route!(POST   "/api/instances/{id}/resume", orders::resume, orders::RESUME),
        route!(POST   "/api/instances/{id}/terminate", orders::terminate, orders::TERMINATE),
        route!(POST   "/api/instances/{id}/rewind", orders::rewind, orders::REWIND),
        route!(POST   "/api/instances/{id}/restart", orders::restart, orders::RESTART),
        route!(GET    "/api/entities", entities::list, entities::LIST),
        route!(GET    "/api/entities/{type}/{key}", entities::show, entities::SHOW),
        route!(GET    "/api/entities/{type}/{key}/events", entities::events, entities::EVENTS),
        route!(POST   "/api/entities/{type}/{key}/{operation}", entities::operate, entities::OPERATE),
        route!(POST   "/api/events", events::take, events::TAKE),
        route!(GET    "/api/routes", routes::list, routes::LIST),
        route!(GET    "/api/routes/{eventType}", routes::show, routes::SHOW),
        route!(PUT    "/api/routes/{eventType}", routes::put, routes::PUT),
        route!(DELETE "/api/routes/{eventType}", routes::delete, routes::DELETE),
        route!(GET    "/api/stuck", stuck::list, stuck::LIST),
        route!(GET    "/api/stats", stats::show, stats::SHOW),
        route!(GET    "/api/activities", activities::list, activities::LIST),
        route!(GET    "/api/activities/{name}", activities::show, activities::SHOW),
        route!(PUT    "/api/activities/{name}", activities::put, activities::PUT),
        route!(DELETE "/api/activities/{name}", activities::delete, activities::DELETE),
        route!(GET    "/api/dispatches", dispatches::list, dispatches::LIST),
        route!(GET    "/api/dispatches/{instanceId}/{run}/{idempotencyKey}", dispatches::show, dispatches::SHOW),
        route!(GET    "/api/dlq", dlq::list, dlq::LIST),
        route!(GET    "/api/dlq/{engine}/{rowKey}", dlq::show, dlq::SHOW),
        route!(GET    "/api/openapi.json", openapi_json::show, openapi_json::SHOW),
        route!(GET    "/healthz", health::lives, health::LIVES),
        route!(GET    "/readyz", health::is_ready, health::IS_READY),
        route!(GET    "/metrics", health::metrics, health::METRICS),
    ]
}

/// Paths of those who ask how the server is, which it says even if it has no room for anything else.
pub(crate) const OF_SERVER: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The interface on a node.
pub fn router<S: Store>(app: App<S>) -> Router {
    let router = routes().into_iter().fold(Router::new(), |router, route: Route<S>| route.add_to(router));
    router
        .route(
            "/runtime/webhooks/{extension}/{*path}",
            any(|State(app): State<App<S>>, mut asked: Asked| async move {
                durable::serve(&app, &mut asked).await
            }),
        )
        .fallback(answered!(nothing_there))
        .method_not_allowed_fallback(answered!(not_that_way))
        .with_state(app)
}

/// What a server has for those it has no room for: how it is, and that it is full.
pub(crate) fn reserve<S: Store>(app: App<S>) -> Router {
    let routes = routes().into_iter().filter(|route: &Route<S>| OF_SERVER.contains(&route.path));
    let router = routes.fold(Router::new(), |router, route: Route<S>| route.add_to(router));
    router.fallback(answered!(no_room)).method_not_allowed_fallback(answered!(not_that_way)).with_state(app)
}

async fn no_room<S: Store>(_app: &App<S>, _asked: &mut Asked) -> Result<Response, ApiError> {
    Err(ApiError::unavailable("there are too many connections; try again later"))
}

async fn nothing_there<S: Store>(_app: &App<S>, _asked: &mut Asked) -> Result<Response, ApiError> {
    Err(ApiError::not_found("there is nothing at this path"))
}

async fn not_that_way<S: Store>(_app: &App<S>, _asked: &mut Asked) -> Result<Response, ApiError> {
    let message = "this path does not take this method; the header Allow has those it takes";
    Err(ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, message))
}
