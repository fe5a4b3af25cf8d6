//! `GET` and `DELETE /api/instances/{id}`: an instance as it is, and forgetting one that has ended.

use abide_runtime::hands::Store;
use abide_runtime::{Refused, Reply, Request};
use abide_workflow::InstanceId;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::instance_json::InstanceJson;
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;

/// The instance that something was done to.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named<'a> {
    pub(super) instance_id: &'a str,
}

/// Shows an instance.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [] = asked.query([])?;
    let view = app.node().show(&id).await?;
    let view = view.ok_or_else(|| unknown(&id))?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &InstanceJson::of(&view)))
}

/// Forgets an instance whose last run has ended.
pub(super) async fn purge<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [] = asked.query([])?;
    match app.node().ask(Request::Purge { instance_id: id.clone() }).await? {
        Reply::Purged => Ok(asked.succeed(StatusCode::OK, app.now(), &Named { instance_id: id.as_str() })),
        Reply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("a purge was answered by {other:?}"))),
    }
}

/// There is no such instance.
pub(super) fn unknown(id: &InstanceId) -> ApiError {
    Refused::NotFound { instance_id: id.clone() }.into()
}
