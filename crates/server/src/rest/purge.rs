//! `POST /api/instances/purge`: purges ended runs by their properties, a bounded number per request.
//!
//! The public table only provides the candidates. The shard of each run decides: it purges a run only if the run has
//! ended.

use abide_runtime::{RequestError, ShardReply, ShardRequest};
use abide_store::Store;
use abide_store::public::{PublicQuery, PublicQueryError};
use abide_store::tables::public_instances::{PublicInstanceRow, SCHEMA};
use abide_workflow::{InstanceId, RunNumber};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::body_fields::BodyFields;
use super::instance_list::{CREATED_FROM, CREATED_TO, WORKFLOW};
use super::page::{self, TOKEN};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};

/// The path segment of this route, where other paths have an instance id: no instance can have this id.
pub(super) const RESERVED_INSTANCE_ID: &str = "purge";
/// Runs matched per request.
const MATCHED_MAX: usize = 1_000;
/// Runs purged at the same time: enough for their shards to commit them together.
const CONCURRENT_PURGES_MAX: usize = 64;
const ENDED_STATUSES: &[&str] = &["Completed", "Failed", "Terminated"];

const STATUS: Field = Field::optional(
    "status",
    FieldKind::List { of: &FieldKind::OneOf(ENDED_STATUSES), items_min: 1, items_max: ENDED_STATUSES.len() },
    "Only runs with one of these statuses; by default, with any of them.",
);
/// The token is in the body, not in the query as elsewhere.
const TOKEN_POINTER: &str = "/continuationToken";
const DRY_RUN: Field = Field::optional("dryRun", FieldKind::Bool, "Only counts; purges nothing.");

pub(super) const PURGE: OperationSpec = OperationSpec {
    id: "purgeInstances",
    tag: "Instances",
    about: "Purges ended runs that match all filters, at most 1,000 per request. Repeat the request with the token until it is null.",
    body: Some(BodySpec {
        required: true,
        about: "The filters; at least one of `status`, `workflow`, `createdFrom` and `createdTo` is required.",
        content: &[(JSON, BodyShape::Fields(&[STATUS, WORKFLOW, CREATED_FROM, CREATED_TO, DRY_RUN, TOKEN]))],
    }),
    responses: &[ResponseSpec::enveloped::<PurgedJson>(200, "The result of the purge.")],
    ..OperationSpec::EMPTY
};

/// The result of a purge request.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Purge")]
#[serde(rename_all = "camelCase")]
struct PurgedJson {
    /// The number of ended runs that matched the filters.
    matched: usize,
    /// How many of them were purged. Runs that are live again, or no longer exist, were not.
    purged: usize,
    /// The token to continue with; null at the end.
    continuation_token: Option<String>,
}

/// Finds a page of candidates and has their shards purge them, many at a time. If one fails, others may be purged
/// already.
pub(super) async fn purge<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    // Filters are in the body; a query parameter would be ignored, and everything purged.
    let [] = request.raw_query([])?;
    let mut fields = BodyFields::from_body(request.json_body(app.limits().body_bytes_max).await?)?;
    let statuses = fields.take_checked(&STATUS)?;
    let workflow = fields.take_checked_text(&WORKFLOW)?;
    let created_from = CREATED_FROM.parse_time(fields.take_checked_text(&CREATED_FROM)?.as_deref())?;
    let created_to = CREATED_TO.parse_time(fields.take_checked_text(&CREATED_TO)?.as_deref())?;
    let dry_run = fields.take_checked(&DRY_RUN)?.is_some_and(|value| value == Value::Bool(true));
    let token = fields.take_checked_text(&TOKEN)?;
    fields.reject_unknown()?;
    if statuses.is_none() && workflow.is_none() && created_from.is_none() && created_to.is_none() {
        return Err(ApiError::invalid(
            "",
            "at least one filter is required: without one, all ended runs would be purged",
        ));
    }
    let mut query =
        PublicQuery { from: created_from, until: created_to, oldest_first: true, ..PublicQuery::default() };
    if let Some(workflow) = workflow {
        query = query.filter("Workflow", &workflow);
    }
    let statuses = statuses.map_or_else(|| ENDED_STATUSES.to_vec(), |given| requested_statuses(&given));
    let candidates = find_candidates(app, &query, &statuses, token.as_deref()).await?;
    let mut data = PurgedJson {
        matched: candidates.runs.len(),
        purged: 0,
        continuation_token: candidates.continuation_token,
    };
    if !dry_run {
        data.purged = purge_runs(app, candidates.runs).await?;
    }
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

/// The requested statuses, each once, in the order of [`ENDED_STATUSES`].
fn requested_statuses(given: &Value) -> Vec<&'static str> {
    let given: Vec<&str> = given.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ENDED_STATUSES.iter().copied().filter(|status| given.contains(status)).collect()
}

struct PurgeCandidates {
    runs: Vec<(InstanceId, RunNumber)>,
    continuation_token: Option<String>,
}

/// Runs that match, status by status. The token has the status to continue with and the position within it.
async fn find_candidates<S: Store>(
    app: &App<S>,
    query: &PublicQuery,
    statuses: &[&str],
    token: Option<&str>,
) -> Result<PurgeCandidates, ApiError> {
    let (mut index, mut inner) = token.map_or(Ok((0, None)), decode_cursor)?;
    let mut runs = Vec::new();
    while let Some(status) = statuses.get(index) {
        let query =
            query.clone().filter("Status", status).limit(MATCHED_MAX - runs.len()).continue_from(inner);
        let (rows, next) = page::query_rows(app, &SCHEMA, query).await.map_err(query_error)?;
        for row in &rows {
            let run = PublicInstanceRow::from_public_row(row).map_err(|error| ApiError::internal(&error))?;
            let id = InstanceId::new(run.instance_id).map_err(|error| ApiError::internal(&error))?;
            runs.push((id, run.run_number));
        }
        let stops = next.is_some();
        (index, inner) = if stops { (index, next) } else { (index + 1, None) };
        if stops || runs.len() >= MATCHED_MAX {
            break;
        }
    }
    let continuation_token = (index < statuses.len()).then(|| encode_cursor(index, inner.as_deref()));
    Ok(PurgeCandidates { runs, continuation_token })
}

/// Purges these runs, unless they are live again; returns the number of purged runs.
async fn purge_runs<S: Store>(app: &App<S>, runs: Vec<(InstanceId, RunNumber)>) -> Result<usize, ApiError> {
    let mut purged = 0;
    let mut tasks = JoinSet::new();
    let mut runs = runs.into_iter();
    loop {
        while tasks.len() < CONCURRENT_PURGES_MAX
            && let Some((instance_id, run)) = runs.next()
        {
            let app = app.clone();
            tasks.spawn(async move { purge_run(&app, instance_id, run).await });
        }
        let Some(result) = tasks.join_next().await else { return Ok(purged) };
        purged += usize::from(result.map_err(|error| ApiError::internal(&error))??);
    }
}

/// Purges a run, the instance's last one or an earlier one; false if it is live again or no longer exists.
async fn purge_run<S: Store>(app: &App<S>, id: InstanceId, run: RunNumber) -> Result<bool, ApiError> {
    let reply = app.request(ShardRequest::Purge { instance_id: id.clone(), run_number: Some(run) }).await?;
    if !matches!(reply, ShardReply::Refused(RequestError::NotFound { .. })) {
        return was_purged(reply);
    }
    let node = app.node();
    let Some(reader) = node.call_reader(node.shard_of_instance(&id)) else { return Ok(false) };
    let Some(earlier) = reader.find_run(&id, Some(run)).await? else { return Ok(false) };
    let shard_request =
        ShardRequest::PurgeEarlierRun { instance_id: id, run_number: run, run_id: earlier.run_id };
    was_purged(app.request(shard_request).await?)
}

fn was_purged(reply: ShardReply) -> Result<bool, ApiError> {
    match reply {
        ShardReply::Purged => Ok(true),
        ShardReply::Refused(RequestError::NotFound { .. } | RequestError::AlreadyRunning { .. }) => Ok(false),
        ShardReply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("unexpected reply to a purge: {other:?}"))),
    }
}

/// The error of a query on the public table. An invalid token is reported at its place in the body.
fn query_error(error: PublicQueryError) -> ApiError {
    let token = matches!(error, PublicQueryError::InvalidContinuation);
    let error = ApiError::from(error);
    if token { error.with_target(TOKEN_POINTER) } else { error }
}

/// The index of the status is not signed; the rest is, together with the status.
fn encode_cursor(index: usize, inner: Option<&str>) -> String {
    format!("{index}.{}", inner.unwrap_or_default())
}

fn decode_cursor(token: &str) -> Result<(usize, Option<String>), ApiError> {
    let parts = token.split_once('.').and_then(|(index, inner)| Some((index.parse().ok()?, inner)));
    let (index, inner) = parts
        .filter(|(index, _)| *index < ENDED_STATUSES.len())
        .ok_or_else(|| page::invalid_token().with_target(TOKEN_POINTER))?;
    Ok((index, Some(inner.to_owned()).filter(|inner| !inner.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_position_and_anything_else_is_rejected() {
        assert_eq!(decode_cursor(&encode_cursor(0, None)), Ok((0, None)));
        assert_eq!(decode_cursor(&encode_cursor(2, Some("abc"))), Ok((2, Some("abc".to_owned()))));
        for wrong in ["", "abc", "3.", "x.abc", "-1.", "99999999999999999999."] {
            assert!(decode_cursor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_status_is_used_once_and_in_a_fixed_order() {
        let given = serde_json::json!(["Failed", "Completed", "Failed"]);
        assert_eq!(requested_statuses(&given), ["Completed", "Failed"]);
    }
}
