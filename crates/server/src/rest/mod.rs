//! The HTTP interface: which path and method leads to which function. A file per resource beside this one.
//!
//! Every route is here, one line each, and nowhere else, but for those of Durable Functions, which [`crate::durable`] tells apart. Handlers answer data or an error; this file makes responses of both.

mod body;
mod health;
mod history;
mod instance_json;
mod instances;
pub(crate) mod orders;
mod repeat;
pub(crate) mod start;
mod workflows;

use abide_runtime::hands::Store;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{any, get, post};

use crate::app::App;
use crate::asked::Asked;
use crate::durable;
use crate::error::ApiError;

/// A handler with a response made of whatever it answers.
macro_rules! answered {
    ($handler:path) => {
        |State(app): State<App<S>>, mut asked: Asked| async move {
            let answer = match asked.check(app.callers()) {
                Ok(()) => $handler(&app, &mut asked).await,
                Err(error) => Err(error),
            };
            asked.answer(answer, app.now())
        }
    };
}

/// All routes, on a node.
pub fn router<S: Store>(app: App<S>) -> Router {
    Router::new()
        .route("/api/workflows", post(answered!(workflows::publish)))
        .route("/api/workflows/{id}", get(answered!(workflows::show)))
        .route("/api/instances", post(answered!(start::start)))
        .route("/api/instances/{id}", get(answered!(instances::show)).delete(answered!(instances::purge)))
        .route("/api/instances/{id}/history", get(answered!(history::page)))
        .route("/api/instances/{id}/events/{name}", post(answered!(orders::raise_event)))
        .route("/api/instances/{id}/suspend", post(answered!(orders::suspend)))
        .route("/api/instances/{id}/resume", post(answered!(orders::resume)))
        .route("/api/instances/{id}/terminate", post(answered!(orders::terminate)))
        .route("/api/instances/{id}/rewind", post(answered!(orders::rewind)))
        .route("/api/instances/{id}/restart", post(answered!(orders::restart)))
        .route("/healthz", get(answered!(health::lives)))
        .route("/readyz", get(answered!(health::is_ready)))
        .route("/metrics", get(answered!(health::metrics)))
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
    Router::new()
        .route("/healthz", get(answered!(health::lives)))
        .route("/readyz", get(answered!(health::is_ready)))
        .route("/metrics", get(answered!(health::metrics)))
        .fallback(answered!(no_room))
        .method_not_allowed_fallback(answered!(not_that_way))
        .with_state(app)
}

async fn no_room<S: Store>(_app: &App<S>, _asked: &mut Asked) -> Result<axum::response::Response, ApiError> {
    Err(ApiError::unavailable("there are too many connections; try again later"))
}

async fn nothing_there<S: Store>(
    _app: &App<S>,
    _asked: &mut Asked,
) -> Result<axum::response::Response, ApiError> {
    Err(ApiError::not_found("there is nothing at this path"))
}

async fn not_that_way<S: Store>(
    _app: &App<S>,
    _asked: &mut Asked,
) -> Result<axum::response::Response, ApiError> {
    let message = "this path does not take this method; the header Allow has those it takes";
    Err(ApiError::refused(StatusCode::METHOD_NOT_ALLOWED, message))
}
