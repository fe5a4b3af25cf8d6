//! `POST /instances/{id}/raiseEvent/{eventName}` and `…/terminate`, `suspend`, `resume`, `rewind`: 202 when it is durable.
//!
//! Orders carry their reason in the query. A body is not looked at: some clients send one, of whatever kind, with nothing in it.

use std::sync::Arc;

use abide_runtime::hands::Store;
use abide_runtime::{Refused, Reply, Request};
use abide_workflow::{Message, Refusal};
use axum::http::StatusCode;
use serde_json::Value;

use super::answer::{Answered, Otherwise, bare};
use super::parameters::Parameters;
use super::status::instance;
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::rest::orders::{NO_REASON, REASON_CHARS_MAX, event_name};

/// Raises an event. The body is its payload; no body is null.
pub(super) async fn raise_event<S: Store>(app: &App<S>, asked: &mut Asked, id: &str, name: &str) -> Answered {
    let name = event_name(name.to_owned())?;
    let payload = if asked.has_body() { asked.json(app.limits().body_bytes_max).await? } else { None };
    let payload = Arc::new(payload.unwrap_or(Value::Null));
    deliver(app, asked, id, Message::EventRaised { name, payload }).await
}

/// Gives an order.
pub(super) async fn give<S: Store>(
    app: &App<S>,
    asked: &mut Asked,
    id: &str,
    order: fn(String) -> Message,
) -> Answered {
    let message = order(reason(asked)?);
    deliver(app, asked, id, message).await
}

fn reason(asked: &Asked) -> Result<String, Otherwise> {
    let parameters = Parameters::of(asked);
    let reason = parameters.text("reason").unwrap_or(NO_REASON);
    if reason.chars().count() > REASON_CHARS_MAX || reason.chars().any(char::is_control) {
        let message = format!("it may have {REASON_CHARS_MAX} characters, none of them a control character");
        return Err(Otherwise::invalid("reason", message));
    }
    Ok(reason.to_owned())
}

async fn deliver<S: Store>(app: &App<S>, asked: &mut Asked, id: &str, message: Message) -> Answered {
    let request = Request::Deliver { instance_id: instance(id)?, message };
    match app.ask(request).await? {
        // A run that goes on already does what resuming it asks for.
        Reply::Accepted | Reply::Refused(Refused::Message(Refusal::NotSuspended { .. })) => {
            Ok(bare(StatusCode::ACCEPTED, asked.correlation()))
        }
        Reply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("a message was answered by {other:?}")).into()),
    }
}
