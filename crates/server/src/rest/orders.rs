//! Events and orders for an instance: `POST /api/instances/{id}/events/{name}` and `…/suspend`, `resume`, `terminate`, `rewind`, `restart`.
//!
//! Each is taken when it is durable. Whether a run takes one is for the run to say.

use std::sync::Arc;

use abide_runtime::definitions::DefinitionError;
use abide_runtime::hands::Store;
use abide_runtime::node::ShowError;
use abide_runtime::{Done, Repeat, Reply, Request};
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{InstanceId, Message, Refusal};
use axum::http::StatusCode;
use axum::response::Response;
use semver::Version;
use serde_json::Value;

use super::body::Fields;
use super::instances::{INSTANCE_ID, Named};
use super::repeat::{KEY, RepeatKey, once};
use super::start;
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

/// Characters of a reason.
pub(crate) const REASON_CHARS_MAX: usize = 1_024;
const REASON: Field = Field::optional(
    "reason",
    Kind::Text { chars_min: 1, chars_max: REASON_CHARS_MAX },
    "Why; it is kept in the history.",
);

const EVENT_NAME: Field = Field::required(
    "name",
    Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
    "The event's name, as states wait for it.",
);

pub(super) const RAISE_EVENT: Operation = Operation {
    id: "raiseEvent",
    about: "Raises an event for an instance. One that nobody waits for yet is kept.",
    path: &[INSTANCE_ID, EVENT_NAME],
    body: Some(Body {
        required: false,
        about: "The event's payload; none is null.",
        kinds: &[(JSON, Shape::Any)],
    }),
    ..ORDER
};

pub(super) const SUSPEND: Operation =
    Operation { id: "suspendInstance", about: "Stops a run where it is; it keeps what reaches it.", ..ORDER };
pub(super) const RESUME: Operation =
    Operation { id: "resumeInstance", about: "Lets a suspended or parked run go on.", ..ORDER };
pub(super) const TERMINATE: Operation = Operation { id: "terminateInstance", about: "Ends a run.", ..ORDER };
pub(super) const REWIND: Operation =
    Operation { id: "rewindInstance", about: "Lets a failed run go on at the state that failed.", ..ORDER };
pub(super) const RESTART: Operation = Operation {
    id: "restartInstance",
    about: "Begins a new run with the input and the version of the last one, which must have ended; not if the version is retired.",
    answers: start::ACCEPTED,
    ..ORDER
};

/// What all orders have in common.
const ORDER: Operation = Operation {
    tag: "Instances",
    path: &[INSTANCE_ID],
    headers: &[KEY],
    body: Some(Body { required: false, about: "Why.", kinds: &[(JSON, Shape::Fields(&[REASON]))] }),
    answers: &[Answer::data::<Named<'static>>(202, "It is taken, and durable.")],
    refuses: &[404, 409],
    ..Operation::NONE
};

/// The reason of an order that came without one.
pub(crate) const NO_REASON: &str = "no reason given";

/// Raises an event. The body is its payload; no body is null.
pub(super) async fn raise_event<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [] = asked.query([])?;
    let name = event_name(asked.param("name").await?)?;
    let body = asked.json(app.limits().body_bytes_max).await?;
    let key = RepeatKey::of(asked.headers(), body.as_ref())?;
    let repeat = key.map(|key| key.of_order(&format!("events/{name}"), &id));
    let payload = Arc::new(body.unwrap_or(Value::Null));
    deliver(app, asked, id, repeat, Message::EventRaised { name, payload }).await
}

/// Stops a run where it is; it keeps what reaches it.
pub(super) async fn suspend<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let (id, reason, repeat) = order(app, asked, "suspend").await?;
    deliver(app, asked, id, repeat, Message::Suspend { reason }).await
}

/// Lets a suspended or parked run go on.
pub(super) async fn resume<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let (id, reason, repeat) = order(app, asked, "resume").await?;
    deliver(app, asked, id, repeat, Message::Resume { reason }).await
}

/// Ends a run.
pub(super) async fn terminate<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let (id, reason, repeat) = order(app, asked, "terminate").await?;
    deliver(app, asked, id, repeat, Message::Terminate { reason }).await
}

/// Lets a failed run go on at the state that failed.
pub(super) async fn rewind<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let (id, reason, repeat) = order(app, asked, "rewind").await?;
    deliver(app, asked, id, repeat, Message::Rewind { reason }).await
}

/// Begins a new run with the input and the version of the last one.
pub(super) async fn restart<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let (instance_id, _, repeat) = order(app, asked, "restart").await?;
    if let Err(retired) = check_restart(app, &instance_id).await {
        return start::recalled(app, asked, instance_id, repeat, None).await?.ok_or(retired);
    }
    let reply = app.ask(once(repeat, Request::Restart { instance_id })).await?;
    start::accepted(app, asked, &start::started(reply)?)
}

/// Refuses to begin a run of a version that is retired. Whatever else speaks against a new run is for the shard to say.
pub(crate) async fn check_restart<S: Store>(app: &App<S>, id: &InstanceId) -> Result<(), ApiError> {
    let view = match app.in_time(app.node().show(id)).await? {
        Ok(Some(view)) => view,
        Ok(None) | Err(ShowError::Unreadable(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let Ok(version) = Version::parse(&view.version) else { return Ok(()) };
    match app.in_time(app.node().definitions().check_in_use(&view.workflow, &version)).await? {
        Err(error @ (DefinitionError::Retired { .. } | DefinitionError::Store(_))) => Err(error.into()),
        _ => Ok(()),
    }
}

/// The name of an event, if it can be one.
pub(crate) fn event_name(name: String) -> Result<String, ApiError> {
    let chars = name.chars().count();
    if chars == 0 || chars > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(ApiError::from(Refusal::EventName { chars }).at("name"));
    }
    Ok(name)
}

/// Whom an order is for, why it is given, and what it is recognised by when it comes again.
async fn order<S: Store>(
    app: &App<S>,
    asked: &mut Asked,
    name: &str,
) -> Result<(InstanceId, String, Option<Repeat>), ApiError> {
    let id = asked.instance_id().await?;
    let [] = asked.query([])?;
    let body = asked.json(app.limits().body_bytes_max).await?;
    let key = RepeatKey::of(asked.headers(), body.as_ref())?;
    let repeat = key.map(|key| key.of_order(name, &id));
    let mut fields = Fields::of(body)?;
    let reason = fields.checked_text(&REASON)?;
    fields.end()?;
    Ok((id, reason.unwrap_or_else(|| NO_REASON.to_owned()), repeat))
}

async fn deliver<S: Store>(
    app: &App<S>,
    asked: &mut Asked,
    id: InstanceId,
    repeat: Option<Repeat>,
    message: Message,
) -> Result<Response, ApiError> {
    let request = Request::Deliver { instance_id: id.clone(), message };
    let until = match app.ask(once(repeat, request)).await? {
        Reply::Accepted => None,
        Reply::Once(Done::Accepted, until) => Some(until),
        Reply::Refused(refused) => return Err(refused.into()),
        other => return Err(ApiError::internal(&format!("a message was answered by {other:?}"))),
    };
    Ok(asked.succeed(StatusCode::ACCEPTED, app.now(), &Named::new(&id, until)))
}
