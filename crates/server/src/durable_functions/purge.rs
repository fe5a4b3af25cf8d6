//! `DELETE /instances/{id}` and `DELETE /instances`: purges ended instances, one by id or many by time and status.

use abide_runtime::{RequestError, ShardReply, ShardRequest};
use abide_store::Store;
use abide_workflow::{InstanceId, RunNumber, Status};
use axum::http::StatusCode;
use serde::Serialize;

use super::list::DurableInstanceFilter;
use super::query_parameters::QueryParameters;
use super::response::{self, DurableError, DurableResult};
use super::status::parse_instance_id;
use super::status_json::{durable_status, is_live};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;

/// Rows read at once, and the number of such batches.
const BATCH_SIZE: usize = 32;
const BATCHES_MAX: usize = 320;
const ENDED_STATUSES: [Status; 4] = [Status::Completed, Status::Failed, Status::Canceled, Status::Terminated];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PurgedJson {
    instances_deleted: usize,
}

/// Purges an ended instance with all its runs.
pub(super) async fn purge_instance<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    id: &str,
) -> DurableResult {
    match request_purge(app, parse_instance_id(id)?, None).await? {
        Ok(()) => {
            Ok(response::json(StatusCode::OK, request.correlation(), &PurgedJson { instances_deleted: 1 }))
        }
        Err(refused @ RequestError::AlreadyRunning { .. }) => {
            Err(DurableError::Sentence(StatusCode::PRECONDITION_FAILED, refused.to_string()))
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Purges the last runs of ended instances that match; unlike [`purge_instance`], it leaves their earlier runs. A
/// request examines a bounded number of rows per status. If it fails, what it has purged stays purged.
/// `createdTimeFrom` is required, so that an empty filter cannot purge everything.
pub(super) async fn purge_matching<S: Store>(app: &App<S>, request: &mut ApiRequest) -> DurableResult {
    let filter = DurableInstanceFilter::from_parameters(&QueryParameters::from_request(request))?;
    if filter.from.is_none() {
        let message = "createdTimeFrom is required".to_owned();
        return Err(DurableError::Sentence(StatusCode::BAD_REQUEST, message));
    }
    let mut instances_deleted = 0;
    // Status by status, so that live runs are not scanned.
    let wanted = |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
    for status in ENDED_STATUSES.into_iter().filter(wanted) {
        instances_deleted += purge_filtered(app, &filter.with_status(status)).await?;
    }
    match instances_deleted {
        0 => Err(DurableError::StatusOnly(StatusCode::NOT_FOUND)),
        _ => Ok(response::json(StatusCode::OK, request.correlation(), &PurgedJson { instances_deleted })),
    }
}

/// Purges the last runs of ended instances that match, not their earlier runs; returns their number.
async fn purge_filtered<S: Store>(
    app: &App<S>,
    filter: &DurableInstanceFilter,
) -> Result<usize, DurableError> {
    let mut instances_deleted = 0;
    let mut next = None;
    for _ in 0..BATCHES_MAX {
        let found = filter.find(app, next, BATCH_SIZE).await?;
        for view in found.views.into_iter().filter(|view| !is_live(durable_status(view))) {
            match request_purge(app, view.instance_id, Some(view.run_number)).await? {
                Ok(()) => instances_deleted += 1,
                // It is live again, or another request has purged it.
                Err(RequestError::AlreadyRunning { .. } | RequestError::NotFound { .. }) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        next = found.next;
        if next.is_none() {
            break;
        }
    }
    Ok(instances_deleted)
}

/// Asks the shard to purge an instance with all its runs, or only its last run if that has this number. The inner error
/// is the shard's refusal, which each caller treats in its own way.
async fn request_purge<S: Store>(
    app: &App<S>,
    instance_id: InstanceId,
    run: Option<RunNumber>,
) -> Result<Result<(), RequestError>, DurableError> {
    match app.request(ShardRequest::Purge { instance_id, run_number: run }).await? {
        ShardReply::Purged => Ok(Ok(())),
        ShardReply::Refused(refused) => Ok(Err(refused)),
        other => Err(ApiError::internal(&format!("unexpected reply to a purge: {other:?}")).into()),
    }
}
