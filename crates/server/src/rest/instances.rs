//! `GET` and `DELETE /api/instances/{id}`: an instance as it is, and forgetting one that has ended.

use abide_runtime::hands::Store;
use abide_runtime::{Done, Refused, Reply, Request};
use abide_workflow::{InstanceId, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::instance_json::InstanceJson;
use super::repeat::{KEY, RepeatKey, once};
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Kind, Operation};

/// The instance in a path.
pub(super) const INSTANCE_ID: Field = Field::required(
    "id",
    Kind::Pattern { pattern: "^[A-Za-z0-9._:~-][A-Za-z0-9._:~@-]*$", chars_max: InstanceId::BYTES_MAX },
    "The instance.",
);

pub(super) const SHOW: Operation = Operation {
    id: "showInstance",
    tag: "Instances",
    about: "Shows an instance and its current run: how it stands, and what it waits for.",
    path: &[INSTANCE_ID],
    answers: &[Answer::data::<InstanceJson<'static>>(200, "The instance.")],
    refuses: &[404],
    ..Operation::NONE
};

pub(super) const PURGE: Operation = Operation {
    id: "purgeInstance",
    tag: "Instances",
    about: "Forgets an instance whose last run has ended.",
    path: &[INSTANCE_ID],
    headers: &[KEY],
    answers: &[Answer::data::<Named<'static>>(200, "It is forgotten.")],
    refuses: &[404, 409],
    ..Operation::NONE
};

/// The instance that something was done to.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NamedInstance")]
#[serde(rename_all = "camelCase")]
pub(super) struct Named<'a> {
    pub(super) instance_id: &'a str,
    /// Until when the request is recognised when it comes again, if it had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

impl<'a> Named<'a> {
    pub(super) fn new(id: &'a InstanceId, repeat_until: Option<Timestamp>) -> Self {
        Self { instance_id: id.as_str(), idempotency_key_expires_at_utc: repeat_until.map(Text) }
    }
}

/// Shows an instance.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [] = asked.query([])?;
    let view = app.in_time(app.node().show(&id)).await??;
    let view = view.ok_or_else(|| unknown(&id))?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &InstanceJson::of(&view)))
}

/// Forgets an instance whose last run has ended.
pub(super) async fn purge<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [] = asked.query([])?;
    let key = RepeatKey::of(asked.headers(), None)?;
    let request = once(
        key.map(|key| key.of_order("purge", &id)),
        Request::Purge { instance_id: id.clone(), run: None },
    );
    let until = match app.ask(request).await? {
        Reply::Purged => None,
        Reply::Once(Done::Purged, until) => Some(until),
        Reply::Refused(refused) => return Err(refused.into()),
        other => return Err(ApiError::internal(&format!("a purge was answered by {other:?}"))),
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &Named::new(&id, until)))
}

/// There is no such instance.
pub(super) fn unknown(id: &InstanceId) -> ApiError {
    Refused::NotFound { instance_id: id.clone() }.into()
}
