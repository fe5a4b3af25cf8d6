//! `POST /api/instances/purge`: forgets ended runs by what they are, a bounded number at a time.
//!
//! The public table says which runs may be meant; whether one is forgotten is for its shard to say, which forgets it only if it is still
//! the instance's last run and has ended.

use abide_runtime::hands::Store;
use abide_runtime::{Refused, Reply, Request};
use abide_store::public::{Query, QueryError};
use abide_store::tables::public_instances::{PublicInstance, SCHEMA};
use abide_workflow::{InstanceId, RunNumber};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::body::Fields;
use super::list::{CREATED_FROM, CREATED_TO, WORKFLOW};
use super::page::{self, TOKEN};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

/// What stands in its path where other paths have an instance: no instance can have this id.
pub(super) const PATH_SEGMENT: &str = "purge";
/// Runs looked at in one call.
const MATCHED_MAX: usize = 1_000;
/// Runs being forgotten at the same time: enough for their shards to commit them together.
const AT_ONCE: usize = 64;
/// How a run can have ended.
const ENDED: &[&str] = &["Completed", "Failed", "Terminated"];

const STATUS: Field = Field::optional(
    "status",
    Kind::List { of: &Kind::Word(ENDED), items_min: 1, items_max: ENDED.len() },
    "Only runs that ended so; without it, however they ended.",
);
/// Where the token is.
const TOKEN_PLACE: &str = "/continuationToken";
const DRY_RUN: Field = Field::optional("dryRun", Kind::Flag, "Counts and forgets nothing.");

pub(super) const PURGE: Operation = Operation {
    id: "purgeInstances",
    tag: "Instances",
    about: "Forgets ended runs that pass all filters, at most 1,000 in one call; ask again with the token until it is null.",
    body: Some(Body {
        required: true,
        about: "Which; at least one of `status`, `workflow`, `createdFrom` and `createdTo` must be there.",
        kinds: &[(JSON, Shape::Fields(&[STATUS, WORKFLOW, CREATED_FROM, CREATED_TO, DRY_RUN, TOKEN]))],
    }),
    answers: &[Answer::data::<PurgedJson>(200, "What was done.")],
    ..Operation::NONE
};

/// What a call came to.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Purge")]
#[serde(rename_all = "camelCase")]
struct PurgedJson {
    /// Ended runs that passed the filters.
    matched: usize,
    /// Of these, how many were forgotten now. Those that live again, or are not there any more, were not.
    purged: usize,
    /// Asks for the rest; null at the end.
    continuation_token: Option<String>,
}

/// Forgets runs.
pub(super) async fn purge<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let mut fields = Fields::of(asked.json(app.limits().body_bytes_max).await?)?;
    let statuses = fields.checked(&STATUS)?;
    let workflow = fields.checked_text(&WORKFLOW)?;
    let from = CREATED_FROM.time(fields.checked_text(&CREATED_FROM)?.as_deref())?;
    let until = CREATED_TO.time(fields.checked_text(&CREATED_TO)?.as_deref())?;
    let dry_run = fields.checked(&DRY_RUN)?.is_some_and(|value| value == Value::Bool(true));
    let token = fields.checked_text(&TOKEN)?;
    fields.end()?;
    if statuses.is_none() && workflow.is_none() && from.is_none() && until.is_none() {
        return Err(ApiError::invalid("", "at least one filter must be there: this would forget everything"));
    }
    let mut query = Query {
        from: from.map(|at| at.0),
        until: until.map(|at| at.0),
        oldest_first: true,
        ..Query::default()
    };
    if let Some(workflow) = workflow {
        query = query.equal("Workflow", &workflow);
    }
    let statuses = statuses.map_or_else(|| ENDED.to_vec(), |given| chosen(&given));
    let found = find(app, &query, &statuses, token.as_deref()).await?;
    let mut data =
        PurgedJson { matched: found.runs.len(), purged: 0, continuation_token: found.continuation_token };
    if !dry_run {
        data.purged = forget(app, found.runs).await?;
    }
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

/// The statuses that were asked for, each once, in the order of the list.
fn chosen(given: &Value) -> Vec<&'static str> {
    let given: Vec<&str> = given.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ENDED.iter().copied().filter(|status| given.contains(status)).collect()
}

struct Found {
    runs: Vec<(InstanceId, RunNumber)>,
    continuation_token: Option<String>,
}

/// Runs that pass, status by status. A token says at which status to go on, and where in it.
async fn find<S: Store>(
    app: &App<S>,
    query: &Query,
    statuses: &[&str],
    token: Option<&str>,
) -> Result<Found, ApiError> {
    let (mut place, mut inner) = token.map_or(Ok((0, None)), open)?;
    let mut runs = Vec::new();
    while let Some(status) = statuses.get(place) {
        let query = query.clone().equal("Status", status).limit(MATCHED_MAX - runs.len()).after(inner);
        let (rows, next) = page::rows(app, &SCHEMA, query).await.map_err(refused)?;
        for row in &rows {
            let run = PublicInstance::from_row(row).map_err(|error| ApiError::internal(&error))?;
            let id = InstanceId::new(run.instance_id).map_err(|error| ApiError::internal(&error))?;
            runs.push((id, RunNumber(run.run_number)));
        }
        let stops = next.is_some();
        (place, inner) = if stops { (place, next) } else { (place + 1, None) };
        if stops || runs.len() >= MATCHED_MAX {
            break;
        }
    }
    let continuation_token = (place < statuses.len()).then(|| seal(place, inner.as_deref()));
    Ok(Found { runs, continuation_token })
}

/// Forgets these runs, unless they live again; how many were.
async fn forget<S: Store>(app: &App<S>, runs: Vec<(InstanceId, RunNumber)>) -> Result<usize, ApiError> {
    let mut purged = 0;
    let mut under_way = JoinSet::new();
    let mut runs = runs.into_iter();
    loop {
        while under_way.len() < AT_ONCE
            && let Some((instance_id, run)) = runs.next()
        {
            let app = app.clone();
            under_way.spawn(async move { forget_one(&app, instance_id, run).await });
        }
        let Some(answered) = under_way.join_next().await else { return Ok(purged) };
        purged += usize::from(answered.map_err(|error| ApiError::internal(&error))??);
    }
}

/// Forgets a run, its instance's last one or an earlier one; false if it lives again, or is not there any more.
async fn forget_one<S: Store>(app: &App<S>, id: InstanceId, run: RunNumber) -> Result<bool, ApiError> {
    let reply = app.ask(Request::Purge { instance_id: id.clone(), run: Some(run) }).await?;
    if !matches!(reply, Reply::Refused(Refused::NotFound { .. })) {
        return is_purged(reply);
    }
    let node = app.node();
    let Some(reader) = node.calls_of(node.shard_of_instance(&id)) else { return Ok(false) };
    let Some(earlier) = reader.run(&id, Some(run)).await? else { return Ok(false) };
    let request = Request::PurgeEarlier { instance_id: id, run, number: earlier.number };
    is_purged(app.ask(request).await?)
}

fn is_purged(reply: Reply) -> Result<bool, ApiError> {
    match reply {
        Reply::Purged => Ok(true),
        Reply::Refused(Refused::NotFound { .. } | Refused::Live { .. }) => Ok(false),
        Reply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("a purge was answered by {other:?}"))),
    }
}

/// Why the table was not read. The token is in the body, and not, as elsewhere, in the query.
fn refused(error: QueryError) -> ApiError {
    let token = matches!(error, QueryError::Continuation);
    let error = ApiError::from(error);
    if token { error.at(TOKEN_PLACE) } else { error }
}

/// The place in the list of statuses is not signed, the rest is, together with the status.
fn seal(place: usize, inner: Option<&str>) -> String {
    format!("{place}.{}", inner.unwrap_or_default())
}

fn open(token: &str) -> Result<(usize, Option<String>), ApiError> {
    let parts = token.split_once('.').and_then(|(place, inner)| Some((place.parse().ok()?, inner)));
    let (place, inner) =
        parts.filter(|(place, _)| *place < ENDED.len()).ok_or_else(|| page::not_a_token().at(TOKEN_PLACE))?;
    Ok((place, Some(inner.to_owned()).filter(|inner| !inner.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place_and_anything_else_is_refused() {
        assert_eq!(open(&seal(0, None)), Ok((0, None)));
        assert_eq!(open(&seal(2, Some("abc"))), Ok((2, Some("abc".to_owned()))));
        for wrong in ["", "abc", "3.", "x.abc", "-1.", "99999999999999999999."] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn statuses_are_taken_once_and_in_one_order() {
        let given = serde_json::json!(["Failed", "Completed", "Failed"]);
        assert_eq!(chosen(&given), ["Completed", "Failed"]);
    }
}
