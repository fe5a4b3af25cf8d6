//! `DELETE /instances/{id}` and `DELETE /instances`: forgetting what has ended, one by name or many by time and status.

use abide_runtime::hands::Store;
use abide_runtime::{Refused, Reply, Request};
use abide_workflow::{InstanceId, RunNumber, Status};
use axum::http::StatusCode;
use serde::Serialize;

use super::answer::{self, Answered, Otherwise};
use super::list::Filter;
use super::parameters::Parameters;
use super::status::instance;
use super::status_json::{goes_on, status_of};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;

/// Rows looked at in one go, and how often.
const BATCH: usize = 32;
const BATCHES_MAX: usize = 320;
/// How an instance can have ended.
const ENDED: [Status; 4] = [Status::Completed, Status::Failed, Status::Canceled, Status::Terminated];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PurgedJson {
    instances_deleted: usize,
}

/// Forgets an instance that has ended.
pub(super) async fn one<S: Store>(app: &App<S>, asked: &mut Asked, id: &str) -> Answered {
    match purge(app, instance(id)?, None).await? {
        Ok(()) => Ok(answer::json(StatusCode::OK, asked.correlation(), &PurgedJson { instances_deleted: 1 })),
        Err(refused @ Refused::Live { .. }) => {
            Err(Otherwise::Said(StatusCode::PRECONDITION_FAILED, refused.to_string()))
        }
        Err(refused) => Err(refused.into()),
    }
}

/// Forgets the instances that have ended and fit. `createdTimeFrom` must be there: nothing at all is not a filter.
pub(super) async fn matching<S: Store>(app: &App<S>, asked: &mut Asked) -> Answered {
    let filter = Filter::of(&Parameters::of(asked))?;
    if filter.from.is_none() {
        let message = "createdTimeFrom must be there".to_owned();
        return Err(Otherwise::Said(StatusCode::BAD_REQUEST, message));
    }
    let mut instances_deleted = 0;
    // Status by status, so that runs that live are not in the way.
    let wanted = |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
    for status in ENDED.into_iter().filter(wanted) {
        instances_deleted += forget(app, &filter.only(status)).await?;
    }
    match instances_deleted {
        0 => Err(Otherwise::Bare(StatusCode::NOT_FOUND)),
        _ => Ok(answer::json(StatusCode::OK, asked.correlation(), &PurgedJson { instances_deleted })),
    }
}

/// Forgets the ended instances that fit; how many.
async fn forget<S: Store>(app: &App<S>, filter: &Filter) -> Result<usize, Otherwise> {
    let (mut instances_deleted, mut next) = (0, None);
    for _ in 0..BATCHES_MAX {
        let found = filter.find(app, next, BATCH).await?;
        for view in found.views.into_iter().filter(|view| !goes_on(status_of(view))) {
            match purge(app, view.instance_id, Some(view.run)).await? {
                Ok(()) => instances_deleted += 1,
                // It lives again, or somebody else was faster.
                Err(Refused::Live { .. } | Refused::NotFound { .. }) => {}
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

async fn purge<S: Store>(
    app: &App<S>,
    instance_id: InstanceId,
    run: Option<RunNumber>,
) -> Result<Result<(), Refused>, Otherwise> {
    match app.ask(Request::Purge { instance_id, run }).await? {
        Reply::Purged => Ok(Ok(())),
        Reply::Refused(refused) => Ok(Err(refused)),
        other => Err(ApiError::internal(&format!("a purge was answered by {other:?}")).into()),
    }
}
