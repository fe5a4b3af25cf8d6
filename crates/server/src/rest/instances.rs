//! `GET` and `DELETE /api/instances/{id}`: shows an instance, and purges one that has ended, with all its runs. Only
//! the purge goes to the shard; an instance is shown from its stored rows.

use abide_runtime::{IdempotentReply, RequestError, ShardReply, ShardRequest};
use abide_store::Store;
use abide_workflow::{InstanceId, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::idempotency::{ClientIdempotencyKey, IDEMPOTENCY_KEY, with_idempotency};
use super::instance_json::InstanceJson;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind, OperationSpec, ResponseSpec};
use crate::response::Text;

pub(super) const INSTANCE_ID: Field = Field::required(
    "id",
    FieldKind::Pattern { pattern: "^[A-Za-z0-9._:~-][A-Za-z0-9._:~@-]*$", chars_max: InstanceId::BYTES_MAX },
    "The instance id.",
);

pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showInstance",
    tag: "Instances",
    about: "Shows an instance and its current run, with its status and what it waits for.",
    path: &[INSTANCE_ID],
    responses: &[ResponseSpec::enveloped::<InstanceJson<'static>>(200, "The instance.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

pub(super) const PURGE: OperationSpec = OperationSpec {
    id: "purgeInstance",
    tag: "Instances",
    about: "Purges an instance whose last run has ended.",
    path: &[INSTANCE_ID],
    headers: &[IDEMPOTENCY_KEY],
    responses: &[ResponseSpec::enveloped::<InstanceRefJson<'static>>(200, "The instance is purged.")],
    error_statuses: &[404, 409],
    ..OperationSpec::EMPTY
};

/// The instance of an accepted request.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NamedInstance")]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceRefJson<'a> {
    pub(super) instance_id: &'a str,
    /// Until when a repeated request is recognised, if the request had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

impl<'a> InstanceRefJson<'a> {
    pub(super) fn new(id: &'a InstanceId, idempotent_until: Option<Timestamp>) -> Self {
        Self { instance_id: id.as_str(), idempotency_key_expires_at_utc: idempotent_until.map(Text) }
    }
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let id = request.instance_id().await?;
    let [] = request.raw_query([])?;
    let view = app.with_timeout(app.node().view_instance(&id)).await??;
    let view = view.ok_or_else(|| instance_not_found(&id))?;
    Ok(request.data_response(StatusCode::OK, app.now(), &InstanceJson::of(&view)))
}

pub(super) async fn purge<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let id = request.instance_id().await?;
    let [] = request.raw_query([])?;
    let key = ClientIdempotencyKey::from_request(request.headers(), None)?;
    let shard_request = with_idempotency(
        key.map(|key| key.for_control("purge", &id)),
        ShardRequest::Purge { instance_id: id.clone(), run_number: None },
    );
    let until = match app.request(shard_request).await? {
        ShardReply::Purged => None,
        ShardReply::Idempotent(IdempotentReply::Purged, until) => Some(until),
        ShardReply::Refused(refused) => return Err(refused.into()),
        other => return Err(ApiError::internal(&format!("unexpected reply to a purge: {other:?}"))),
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &InstanceRefJson::new(&id, until)))
}

pub(super) fn instance_not_found(id: &InstanceId) -> ApiError {
    RequestError::NotFound { instance_id: id.clone() }.into()
}
