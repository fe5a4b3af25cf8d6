//! The HTTP API of Durable Functions, `/runtime/webhooks/durabletask/…`, so that its clients and scripts work
//! unchanged.
//!
//! It maps the paths, parameters, statuses and bodies of that API to the same node that the `rest` API uses. It adds no
//! functions of its own: the meaning of every request is decided in the same code as for the `rest` API.
//! docs/reference/durable-functions.md lists the differences.
//!
//! One API route leads here. The paths below it are matched case-insensitively, and double and trailing slashes are
//! ignored: existing clients send all of these.

mod control;
mod entities;
mod history;
mod links;
mod list;
mod purge;
mod query_parameters;
mod response;
mod start;
mod status;
mod status_json;

use std::borrow::Cow;

use abide_store::Store;
use abide_workflow::Message;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use percent_encoding::percent_decode_str;

use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::response_share::{ResponseShare, needs_share};
use query_parameters::QueryParameters;
use response::{DurableError, DurableResult};

/// Serves every request below `/runtime/webhooks/`, of any method, for the router in `rest`. Checks its admission
/// first, and makes a response without room again when there is room, as the `rest` API does for its own.
pub(crate) async fn serve<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Response {
    let mut result = request.check_admission(app).map_err(DurableError::from);
    let mut share = ResponseShare::default();
    loop {
        let response = match result {
            Ok(()) => route(app, request).await,
            Err(error) => return request.finish(error.to_response(request.correlation())),
        };
        let response =
            request.finish(response.unwrap_or_else(|error| error.to_response(request.correlation())));
        if !needs_share(request, &response) {
            return response;
        }
        result = match share.admit(app, request.method().is_safe(), response).await {
            Ok(Some(response)) => return response,
            Ok(None) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        };
    }
}

/// Maps method and path to a handler.
async fn route<S: Store>(app: &App<S>, request: &mut ApiRequest) -> DurableResult {
    let extension = request.path_param("extension").await?;
    if !extension.eq_ignore_ascii_case("durabletask") {
        return Err(DurableError::StatusOnly(StatusCode::NOT_FOUND));
    }
    let parts = path_segments(request.uri().path())?;
    let mut parts = parts.iter().map(String::as_str);
    let resource = parts.next().map(str::to_ascii_lowercase);
    let rest: Vec<&str> = parts.collect();
    match (request.method().clone(), resource.as_deref(), rest.as_slice()) {
        (Method::POST, Some("orchestrators"), [name]) => start::start(app, request, name, None).await,
        (Method::POST, Some("orchestrators"), [name, id]) => start::start(app, request, name, Some(id)).await,
        (Method::GET, Some("instances"), []) => list::page(app, request).await,
        (Method::DELETE, Some("instances"), []) => purge::purge_matching(app, request).await,
        (Method::GET, Some("instances"), [id]) => status::show(app, request, id).await,
        (Method::DELETE, Some("instances"), [id]) => purge::purge_instance(app, request, id).await,
        (Method::POST, Some("instances"), [id, operation]) => {
            let message_with_reason: fn(String) -> Message = match operation.to_ascii_lowercase().as_str() {
                "terminate" => |reason| Message::Terminate { reason },
                "suspend" => |reason| Message::Suspend { reason },
                "resume" => |reason| Message::Resume { reason },
                "rewind" => |reason| Message::Rewind { reason },
                "restart" => return start::restart(app, request, id).await,
                _ => return Err(DurableError::StatusOnly(StatusCode::NOT_FOUND)),
            };
            control::control(app, request, id, message_with_reason).await
        }
        (Method::POST, Some("instances"), [id, raise, name]) if raise.eq_ignore_ascii_case("raiseEvent") => {
            control::raise_event(app, request, id, name).await
        }
        (Method::GET, Some("entities"), []) => entities::page(app, request, None).await,
        (Method::GET, Some("entities"), [name]) => entities::page(app, request, Some(name)).await,
        (Method::GET, Some("entities"), [name, key]) => entities::show(app, request, name, key).await,
        (Method::POST, Some("entities"), [name, key]) => {
            let operation = QueryParameters::from_request(request).text("op").unwrap_or_default().to_owned();
            entities::signal(app, request, name, key, &operation).await
        }
        (Method::DELETE, Some("entities"), [name, key]) => {
            entities::signal(app, request, name, key, "delete").await
        }
        // Durable Functions also returns 404 for a method that a path does not support.
        _ => Err(DurableError::StatusOnly(StatusCode::NOT_FOUND)),
    }
}

/// The segments of a path after `/runtime/webhooks/{extension}/`. The path is split before it is decoded, because a
/// segment may contain an escaped slash.
fn path_segments(path: &str) -> Result<Vec<String>, DurableError> {
    const BEFORE: usize = 3;
    let parts = path.split('/').filter(|part| !part.is_empty()).skip(BEFORE);
    let decoded = parts.map(|part| percent_decode_str(part).decode_utf8().map(Cow::into_owned));
    decoded.collect::<Result<_, _>>().map_err(|_| ApiError::invalid("", "the path is not UTF-8").into())
}
