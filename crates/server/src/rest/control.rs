//! Events and control operations for an instance: `POST /api/instances/{id}/events/{name}` and `…/suspend`, `resume`,
//! `terminate`, `rewind`, `compensation/retry`, `restart`.
//!
//! Each is acknowledged when it is durable. The run itself decides, in the turn that consumes it, whether it accepts
//! one; about a restart the shard decides. Durable Functions shares the checks of this file.

use std::sync::Arc;

use abide_runtime::definitions::DefinitionError;
use abide_runtime::node::RunReadError;
use abide_runtime::{IdempotentReply, RequestIdempotency, ShardReply, ShardRequest};
use abide_store::Store;
use abide_workflow::history::{KeyChoice, KeyReason, RedrivenStep};
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{InstanceId, Message, MessageRefusal};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;
use serde_json::Value;

use super::body_fields::BodyFields;
use super::idempotency::{ClientIdempotencyKey, IDEMPOTENCY_KEY, with_idempotency};
use super::instances::{INSTANCE_ID, InstanceRefJson};
use super::start;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};

pub(crate) const REASON_CHARS_MAX: usize = 1_024;
const REASON: Field = Field::optional(
    "reason",
    FieldKind::Text { chars_min: 1, chars_max: REASON_CHARS_MAX },
    "The reason; it is recorded in the history.",
);

const NEW_KEY: Field = Field::optional(
    "newKey",
    FieldKind::Bool,
    "True to give every call that is made again a new idempotency key, even if an earlier attempt may have run.",
);

const RECURSIVE: Field = Field::optional(
    "recursive",
    FieldKind::Bool,
    "True to end all descendants of the run too, abandoned ones included.",
);

const EVENT_NAME: Field = Field::required(
    "name",
    FieldKind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
    "The name of the event that a state waits for.",
);

pub(super) const RAISE_EVENT: OperationSpec = OperationSpec {
    id: "raiseEvent",
    about: "Raises an event for an instance. An event that no state waits for yet is buffered.",
    path: &[INSTANCE_ID, EVENT_NAME],
    body: Some(BodySpec {
        required: false,
        about: "The event's payload; without a body it is null.",
        content: &[(JSON, BodyShape::Any)],
    }),
    ..CONTROL
};

pub(super) const SUSPEND: OperationSpec = OperationSpec {
    id: "suspendInstance",
    about: "Suspends a run; it buffers incoming messages.",
    ..CONTROL
};
pub(super) const RESUME: OperationSpec =
    OperationSpec { id: "resumeInstance", about: "Resumes a suspended or parked run.", ..CONTROL };
pub(super) const TERMINATE: OperationSpec = OperationSpec {
    id: "terminateInstance",
    about: "Ends a run, and with `recursive` all its descendants.",
    body: Some(BodySpec {
        required: false,
        about: "The reason, and whether the descendants end too.",
        content: &[(JSON, BodyShape::Fields(&[REASON, RECURSIVE]))],
    }),
    ..CONTROL
};
pub(super) const REWIND: OperationSpec = OperationSpec {
    id: "rewindInstance",
    about: "Continues a failed run at the state that failed. A call whose outcome is unknown keeps its idempotency key.",
    body: Some(BodySpec {
        required: false,
        about: "The reason, and whether every call gets a new key.",
        content: &[(JSON, BodyShape::Fields(&[REASON, NEW_KEY]))],
    }),
    responses: &[ResponseSpec::enveloped::<RewoundJson<'static>>(202, "The run continues.")],
    ..CONTROL
};
pub(super) const RETRY_COMPENSATION: OperationSpec = OperationSpec {
    id: "retryCompensation",
    about: "Runs the failed compensation steps of an ended run again. The run has its former end again afterwards.",
    ..CONTROL
};
pub(super) const RESTART: OperationSpec = OperationSpec {
    id: "restartInstance",
    about: "Starts a new run with the input and version of the last one, which must have ended. The version must not be retired.",
    responses: start::STARTED_RESPONSES,
    ..CONTROL
};

/// The common part of all control operations.
const CONTROL: OperationSpec = OperationSpec {
    tag: "Instances",
    path: &[INSTANCE_ID],
    headers: &[IDEMPOTENCY_KEY],
    body: Some(BodySpec {
        required: false,
        about: "The reason.",
        content: &[(JSON, BodyShape::Fields(&[REASON]))],
    }),
    responses: &[ResponseSpec::enveloped::<InstanceRefJson<'static>>(
        202,
        "The request is accepted and durable.",
    )],
    error_statuses: &[404, 409],
    ..OperationSpec::EMPTY
};

/// The reason of a control operation that was sent without one.
pub(crate) const NO_REASON: &str = "no reason given";

/// A run that continues, and what it does again.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RewoundInstance")]
#[serde(rename_all = "camelCase")]
struct RewoundJson<'a> {
    #[serde(flatten)]
    instance: InstanceRefJson<'a>,
    /// The steps that are done again, at most the first fifty, the failed one first.
    steps: Vec<RedrivenStepJson>,
}

/// A step that is done again.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RedrivenStep")]
#[serde(rename_all = "camelCase")]
struct RedrivenStepJson {
    step: String,
    /// The positions of its branch in the maps and parallels around it, outermost first.
    items: Vec<u32>,
    #[schemars(extend("enum" = ["same", "new"]))]
    key: &'static str,
    #[schemars(extend("enum" = KEY_REASONS))]
    reason: &'static str,
}

const KEY_REASONS: &[&str] =
    &["outcomeUnknown", "interrupted", "outcomeKnown", "requested", "branchesStartAgain", "newChild"];

impl RedrivenStepJson {
    fn of(step: &RedrivenStep) -> Self {
        Self {
            step: step.step.clone(),
            items: step.items.clone(),
            key: match step.key {
                KeyChoice::Same => "same",
                KeyChoice::New => "new",
            },
            reason: match step.reason {
                KeyReason::OutcomeUnknown => "outcomeUnknown",
                KeyReason::Interrupted => "interrupted",
                KeyReason::OutcomeKnown => "outcomeKnown",
                KeyReason::Requested => "requested",
                KeyReason::BranchesStartAgain => "branchesStartAgain",
                KeyReason::NewChild => "newChild",
            },
        }
    }
}

/// Raises an event. The body is its payload; without a body it is null.
pub(super) async fn raise_event<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let id = request.instance_id().await?;
    let [] = request.raw_query([])?;
    let name = validate_event_name(request.path_param("name").await?)?;
    let body = request.json_body(app.limits().body_bytes_max).await?;
    let key = ClientIdempotencyKey::from_request(request.headers(), body.as_ref())?;
    let idempotency = key.map(|key| key.for_control(&format!("events/{name}"), &id));
    let payload = Arc::new(body.unwrap_or(Value::Null));
    send_message(app, request, id, idempotency, Message::EventRaised { name, payload }).await
}

pub(super) async fn suspend<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let (id, reason, idempotency) = parse_control(app, request, "suspend").await?;
    send_message(app, request, id, idempotency, Message::Suspend { reason }).await
}

pub(super) async fn resume<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let (id, reason, idempotency) = parse_control(app, request, "resume").await?;
    send_message(app, request, id, idempotency, Message::Resume { reason }).await
}

pub(super) async fn terminate<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let (id, mut fields, idempotency) = parse_fields(app, request, "terminate").await?;
    let reason = take_reason(&mut fields)?;
    let recursive = fields.take_checked(&RECURSIVE)? == Some(Value::Bool(true));
    fields.reject_unknown()?;
    let message = if recursive { Message::TerminateTree { reason } } else { Message::Terminate { reason } };
    send_message(app, request, id, idempotency, message).await
}

pub(super) async fn rewind<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let (id, mut fields, idempotency) = parse_fields(app, request, "rewind").await?;
    let reason = take_reason(&mut fields)?;
    let new_key = fields.take_checked(&NEW_KEY)? == Some(Value::Bool(true));
    fields.reject_unknown()?;
    let message = if new_key { Message::RewindWithNewKeys { reason } } else { Message::Rewind { reason } };
    let shard_request = ShardRequest::SendMessage { instance_id: id.clone(), message };
    let (steps, until) = match app.request(with_idempotency(idempotency, shard_request)).await? {
        ShardReply::Rewound(steps) => (steps, None),
        ShardReply::Idempotent(IdempotentReply::Rewound(steps), until) => (steps, Some(until)),
        // The reply that an older build stored.
        ShardReply::Idempotent(IdempotentReply::Accepted, until) => (Vec::new(), Some(until)),
        ShardReply::Refused(refused) => return Err(refused.into()),
        other => return Err(ApiError::internal(&format!("unexpected reply to a rewind: {other:?}"))),
    };
    let steps = steps.iter().map(RedrivenStepJson::of).collect();
    let data = RewoundJson { instance: InstanceRefJson::new(&id, until), steps };
    Ok(request.data_response(StatusCode::ACCEPTED, app.now(), &data))
}

pub(super) async fn retry_compensation<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let (id, reason, idempotency) = parse_control(app, request, "compensation/retry").await?;
    send_message(app, request, id, idempotency, Message::RetryCompensation { reason }).await
}

/// Starts a new run with the input, version, correlation id and entity of the last one. The reason is not recorded. A
/// repetition of a restart gets the stored reply even if the version was retired since.
pub(super) async fn restart<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let (instance_id, _, idempotency) = parse_control(app, request, "restart").await?;
    if let Err(retired) = check_version_not_retired(app, &instance_id).await {
        return start::replay_stored_reply(app, request, instance_id, idempotency, None)
            .await?
            .ok_or(retired);
    }
    let reply = app.request(with_idempotency(idempotency, ShardRequest::Restart { instance_id })).await?;
    start::accepted_response(app, request, &start::expect_started(reply)?)
}

/// Fails if the version of the instance's last run is retired. Restarts of both APIs call it first, because the shard
/// does not check this. It reads stored rows only; all other reasons against a new run are found later.
pub(crate) async fn check_version_not_retired<S: Store>(
    app: &App<S>,
    id: &InstanceId,
) -> Result<(), ApiError> {
    let view = match app.with_timeout(app.node().view_instance(id)).await? {
        Ok(Some(view)) => view,
        Ok(None) | Err(RunReadError::Unreadable(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let Ok(version) = Version::parse(&view.version) else { return Ok(()) };
    match app.with_timeout(app.node().definitions().check_not_retired(&view.workflow, &version)).await? {
        Err(error @ (DefinitionError::Retired { .. } | DefinitionError::Store(_))) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Checks an event name, as the run would. Both APIs need it for events, and an event route must not name what no run
/// accepts.
pub(crate) fn validate_event_name(name: String) -> Result<String, ApiError> {
    let chars = name.chars().count();
    if chars == 0 || chars > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(ApiError::from(MessageRefusal::InvalidEventName { chars }).with_target("name"));
    }
    Ok(name)
}

/// Reads the request of a control operation: its instance, reason and idempotency. `name` becomes part of the stored
/// idempotency key.
async fn parse_control<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    name: &str,
) -> Result<(InstanceId, String, Option<RequestIdempotency>), ApiError> {
    let (id, mut fields, idempotency) = parse_fields(app, request, name).await?;
    let reason = take_reason(&mut fields)?;
    fields.reject_unknown()?;
    Ok((id, reason, idempotency))
}

/// As [`parse_control`], but the caller takes the fields of the body.
async fn parse_fields<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    name: &str,
) -> Result<(InstanceId, BodyFields, Option<RequestIdempotency>), ApiError> {
    let id = request.instance_id().await?;
    let [] = request.raw_query([])?;
    let body = request.json_body(app.limits().body_bytes_max).await?;
    let key = ClientIdempotencyKey::from_request(request.headers(), body.as_ref())?;
    let idempotency = key.map(|key| key.for_control(name, &id));
    Ok((id, BodyFields::from_body(body)?, idempotency))
}

fn take_reason(fields: &mut BodyFields) -> Result<String, ApiError> {
    Ok(fields.take_checked_text(&REASON)?.unwrap_or_else(|| NO_REASON.to_owned()))
}

/// Sends a message to the current run. The shard replies when the turn that consumed or refused it is durable.
async fn send_message<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    id: InstanceId,
    idempotency: Option<RequestIdempotency>,
    message: Message,
) -> Result<Response, ApiError> {
    let shard_request = ShardRequest::SendMessage { instance_id: id.clone(), message };
    let until = match app.request(with_idempotency(idempotency, shard_request)).await? {
        ShardReply::Accepted => None,
        ShardReply::Idempotent(IdempotentReply::Accepted, until) => Some(until),
        ShardReply::Refused(refused) => return Err(refused.into()),
        other => return Err(ApiError::internal(&format!("unexpected reply to a message: {other:?}"))),
    };
    Ok(request.data_response(StatusCode::ACCEPTED, app.now(), &InstanceRefJson::new(&id, until)))
}
