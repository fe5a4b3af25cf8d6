//! `GET /api/stuck`: live runs that are older than their definition's `stuckAfter`, and what they wait for.
//!
//! Runs are listed by definition, oldest first. The public table is queried for live runs that started longer ago than
//! the definition's shortest `stuckAfter`, so runs that are not late are hardly examined, however many there are. Each
//! match is then checked against its shard's rows in the store, without asking the shard. So no ended run is listed,
//! and only runs whose public row is not written yet are missing: that takes milliseconds, whereas `stuckAfter` is
//! hours. Nothing is kept in memory, so a restart changes nothing.

use abide_runtime::node::RunReadError;
use abide_runtime::{RunView, ViewStatus};
use abide_store::Store;
use abide_store::public::PublicQuery;
use abide_store::tables::public_instances::{PublicInstanceRow, SCHEMA};
use abide_workflow::{Duration, InstanceId, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;

use super::instance_json::{BranchWaitJson, LIVE_STATUSES, status_schema};
use super::page::{LIMIT, PageJson, TOKEN, invalid_token};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, OperationSpec, ResponseSpec};
use crate::response::Text;

const QUERY: [Field; 2] = [LIMIT, TOKEN];

pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listStuck",
    tag: "Instances",
    about: "Lists live runs that are older than their definition's stuckAfter, by definition, oldest first.",
    query: &QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<StuckJson>>(200, "A page of runs.")],
    ..OperationSpec::EMPTY
};

/// A live run that is older than its definition's stuckAfter.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StuckInstance")]
#[serde(rename_all = "camelCase")]
struct StuckJson {
    instance_id: String,
    execution_id: String,
    workflow: String,
    version: String,
    #[schemars(schema_with = "status_schema")]
    status: String,
    correlation_id: String,
    entity_id: Option<String>,
    created_at_utc: Text<Timestamp>,
    /// How long ago the run's stuckAfter passed.
    stuck_for_seconds: u64,
    /// The waits of the run's branches.
    waiting_for: Vec<BranchWaitJson>,
}

/// Definitions examined per request.
const DEFINITIONS_MAX: usize = 200;
/// Runs examined per request.
const RUNS_MAX: usize = 1_000;

/// The position where a list continues: a definition, a status and a position in the public table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct StuckCursor {
    workflow: String,
    status: usize,
    /// The upper time bound of the query, and the table's continuation token.
    table_position: Option<(Timestamp, String)>,
}

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [limit, token] = request.checked_query(&QUERY)?;
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let from = token.map_or(Ok(StuckCursor::default()), |token| StuckCursor::decode(&token))?;
    let (items, next) = page(app, from, limit).await?;
    let data = PageJson { items, continuation_token: next.map(|next| next.encode()) };
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

async fn page<S: Store>(
    app: &App<S>,
    from: StuckCursor,
    limit: usize,
) -> Result<(Vec<StuckJson>, Option<StuckCursor>), ApiError> {
    let now = app.now();
    let mut items = Vec::new();
    let mut examined = 0;
    let definitions = app.node().definitions();
    let ids = definitions.ids(&from.workflow, DEFINITIONS_MAX + 1).await?;
    let mut from = Some(from);
    for (count, workflow) in ids.into_iter().enumerate() {
        let mut cursor = match from.take() {
            Some(from) if from.workflow == workflow => from,
            _ => StuckCursor { workflow, ..StuckCursor::default() },
        };
        if count == DEFINITIONS_MAX {
            return Ok((items, Some(cursor)));
        }
        let Some(shortest) = shortest_stuck_after(app, &cursor.workflow).await? else { continue };
        while let Some(status) = LIVE_STATUSES.get(cursor.status) {
            if items.len() >= limit || examined >= RUNS_MAX {
                return Ok((items, Some(cursor)));
            }
            let (until, token) = match cursor.table_position.take() {
                Some((until, token)) => (until, Some(token)),
                None => (now.minus(shortest), None),
            };
            let query = PublicQuery { until: Some(until), oldest_first: true, ..PublicQuery::default() };
            let query = query.filter("Workflow", &cursor.workflow).filter("Status", status);
            let query = query.limit(limit - items.len()).continue_from(token);
            let found = app.node().store().query(&SCHEMA, &query).await?;
            examined += found.rows.len();
            for row in &found.rows {
                let run =
                    PublicInstanceRow::from_public_row(row).map_err(|error| ApiError::internal(&error))?;
                items.extend(stuck_item(app, run, now).await?);
            }
            match found.continuation {
                Some(token) => cursor.table_position = Some((until, token)),
                None => cursor.status += 1,
            }
        }
    }
    Ok((items, None))
}

/// The shortest `stuckAfter` of a definition's versions, retired ones included: runs of them may be live. None if all
/// versions may wait forever.
async fn shortest_stuck_after<S: Store>(app: &App<S>, workflow: &str) -> Result<Option<Duration>, ApiError> {
    let definitions = app.node().definitions();
    let mut shortest: Option<Duration> = None;
    for (version, _) in definitions.versions(workflow).await? {
        let after = definitions.load_plan(workflow, &version).await?.stuck_after();
        shortest = match (shortest, after) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    Ok(shortest)
}

/// The list item of a run, if it is older than its own version's `stuckAfter` and still live.
async fn stuck_item<S: Store>(
    app: &App<S>,
    run: PublicInstanceRow,
    now: Timestamp,
) -> Result<Option<StuckJson>, ApiError> {
    let version = Version::parse(&run.version).map_err(|error| ApiError::internal(&error))?;
    let plan = app.node().definitions().load_plan(&run.workflow, &version).await?;
    let created_at = run.created_at;
    let Some(after) = plan.stuck_after() else { return Ok(None) };
    let due = created_at.plus(after);
    if due >= now {
        return Ok(None);
    }
    let id = InstanceId::new(run.instance_id.as_str()).map_err(|error| ApiError::internal(&error))?;
    let waiting_for = match app.node().view_instance(&id).await {
        Ok(Some(view)) if view.run_number == run.run_number && is_live(&view) => {
            view.current_states.iter().map(BranchWaitJson::of).collect()
        }
        Ok(_) => return Ok(None),
        // Its waits are unknown, but an unreadable run that is stuck must be listed all the more.
        Err(RunReadError::Unreadable(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(StuckJson {
        instance_id: run.instance_id,
        execution_id: run.execution_id,
        workflow: run.workflow,
        version: run.version,
        status: run.status,
        correlation_id: run.correlation_id,
        entity_id: run.entity_id,
        created_at_utc: Text(created_at),
        stuck_for_seconds: now.since(due).0 / 1_000,
        waiting_for,
    }))
}

fn is_live(view: &RunView) -> bool {
    match view.status {
        ViewStatus::Run(status) => !status.is_terminal(),
        ViewStatus::Parked(_) => true,
    }
}

impl StuckCursor {
    /// The table's token is signed together with the query, so the table rejects a modified token.
    fn encode(&self) -> String {
        let workflow = BASE64_URL_SAFE_NO_PAD.encode(&self.workflow);
        let (until, inner) = self.table_position.as_ref().map_or((0, ""), |(until, inner)| (until.0, inner));
        format!("{}.{until}.{workflow}.{inner}", self.status)
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let read = || {
            let mut parts = token.splitn(4, '.');
            let status = parts.next()?.parse().ok()?;
            let until = parts.next()?.parse().ok()?;
            let workflow = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
            let inner = Some(parts.next()?.to_owned()).filter(|inner| !inner.is_empty());
            let workflow = String::from_utf8(workflow).ok()?;
            Some(Self { workflow, status, table_position: inner.map(|inner| (Timestamp(until), inner)) })
        };
        read().ok_or_else(invalid_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_position_and_anything_else_is_rejected() {
        for inner in [None, Some((Timestamp(-5), "abc".to_owned()))] {
            let cursor = StuckCursor { workflow: "a.b ä".to_owned(), status: 2, table_position: inner };
            assert_eq!(StuckCursor::decode(&cursor.encode()), Ok(cursor));
        }
        for wrong in ["", "1", "1.2", "1.2.!", "x.2.YQ.", "1.2.YQ", "-1.2.YQ.", "1.2._w."] {
            assert!(StuckCursor::decode(wrong).is_err(), "{wrong}");
        }
    }
}
