//! `POST /instances/{id}/raiseEvent/{eventName}` and `…/terminate`, `suspend`, `resume`, `rewind`: 202 when the request
//! is durable.
//!
//! The reason of a control operation is in the query. Its body is ignored: some clients send an empty one of an
//! arbitrary content type.

use std::sync::Arc;

use abide_runtime::{RequestError, ShardReply, ShardRequest};
use abide_store::Store;
use abide_workflow::{Message, MessageRefusal};
use axum::http::StatusCode;
use serde_json::Value;

use super::query_parameters::QueryParameters;
use super::response::{DurableError, DurableResult, status_only};
use super::status::parse_instance_id;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::control::{NO_REASON, REASON_CHARS_MAX, validate_event_name};

/// Raises an event. The body is its payload; without a body it is null.
pub(super) async fn raise_event<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    id: &str,
    name: &str,
) -> DurableResult {
    let name = validate_event_name(name.to_owned())?;
    let payload =
        if request.has_body() { request.json_body(app.limits().body_bytes_max).await? } else { None };
    let payload = Arc::new(payload.unwrap_or(Value::Null));
    send_message(app, request, id, Message::EventRaised { name, payload }).await
}

/// Sends a control operation.
pub(super) async fn control<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    id: &str,
    message_with_reason: fn(String) -> Message,
) -> DurableResult {
    let message = message_with_reason(reason(request)?);
    send_message(app, request, id, message).await
}

fn reason(request: &ApiRequest) -> Result<String, DurableError> {
    let parameters = QueryParameters::from_request(request);
    let reason = parameters.text("reason").unwrap_or(NO_REASON);
    if reason.chars().count() > REASON_CHARS_MAX || reason.chars().any(char::is_control) {
        let message =
            format!("must have at most {REASON_CHARS_MAX} characters, none of them a control character");
        return Err(DurableError::invalid("reason", message));
    }
    Ok(reason.to_owned())
}

/// Sends a message to the current run. The shard replies when the turn that consumed or refused it is durable. These
/// clients send no idempotency key, so a repeated request is a second message.
async fn send_message<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    id: &str,
    message: Message,
) -> DurableResult {
    let shard_request = ShardRequest::SendMessage { instance_id: parse_instance_id(id)?, message };
    match app.request(shard_request).await? {
        // Resuming a run that is not suspended has nothing to do, and is no error for these clients.
        ShardReply::Accepted
        | ShardReply::Rewound(_)
        | ShardReply::Refused(RequestError::Message(MessageRefusal::NotSuspended { .. })) => {
            Ok(status_only(StatusCode::ACCEPTED, request.correlation()))
        }
        ShardReply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("unexpected reply to a message: {other:?}")).into()),
    }
}
