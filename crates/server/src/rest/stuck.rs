//! `GET /api/stuck`: live runs that have lived for longer than their definition says is usual, and what they wait for.
//!
//! Definition by definition, oldest run first: the public table is asked for live runs that began before the definition's shortest
//! `stuckAfter` ago, so that runs which are not late are hardly looked at, however many there are. Whatever it names is then looked at
//! where the truth is. So nothing is listed that has ended, and nothing is missing but runs whose public row is still on its way, which takes
//! milliseconds where `stuckAfter` takes hours. Nothing of it is kept in memory: it is the same after a restart.

use abide_runtime::hands::Store;
use abide_runtime::node::ShowError;
use abide_runtime::{RunView, ViewStatus};
use abide_store::public::Query;
use abide_store::tables::public_instances::{PublicInstance, SCHEMA};
use abide_workflow::{Duration, InstanceId, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;

use super::instance_json::{LIVE, StandingJson, status_schema};
use super::page::{LIMIT, PageJson, TOKEN, not_a_token};
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Operation};

const QUERY: [Field; 2] = [LIMIT, TOKEN];

pub(super) const LIST: Operation = Operation {
    id: "listStuck",
    tag: "Instances",
    about: "Lists live runs that are older than their definition's stuckAfter, by definition, the oldest first.",
    query: &QUERY,
    answers: &[Answer::data::<PageJson<StuckJson>>(200, "A page of runs.")],
    ..Operation::NONE
};

/// A run that has lived for too long.
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
    /// How long it has been too old.
    stuck_for_seconds: u64,
    /// What its branches wait for.
    waiting_for: Vec<StandingJson>,
}

/// Definitions looked at in one call.
const DEFINITIONS_MAX: usize = 200;
/// Runs looked at in one call.
const RUNS_MAX: usize = 1_000;

/// Where a list goes on: in a definition, in a status, at a place of the table's.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Place {
    workflow: String,
    status: usize,
    /// What was asked for there, and where the table said to go on.
    inner: Option<(i64, String)>,
}

/// Lists them.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [limit, token] = asked.parameters(&QUERY)?;
    let limit = LIMIT.count(limit.as_deref())?;
    let from = token.map_or(Ok(Place::default()), |token| Place::open(&token))?;
    let (items, next) = page(app, from, limit).await?;
    let data = PageJson { items, continuation_token: next.map(|next| next.seal()) };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

async fn page<S: Store>(
    app: &App<S>,
    from: Place,
    limit: usize,
) -> Result<(Vec<StuckJson>, Option<Place>), ApiError> {
    let now = app.now();
    let (mut items, mut looked) = (Vec::new(), 0);
    let definitions = app.node().definitions();
    let ids = definitions.ids(&from.workflow, DEFINITIONS_MAX + 1).await?;
    let mut from = Some(from);
    for (count, workflow) in ids.into_iter().enumerate() {
        let mut place = match from.take() {
            Some(from) if from.workflow == workflow => from,
            _ => Place { workflow, ..Place::default() },
        };
        if count == DEFINITIONS_MAX {
            return Ok((items, Some(place)));
        }
        let Some(shortest) = shortest(app, &place.workflow).await? else { continue };
        while let Some(status) = LIVE.get(place.status) {
            if items.len() >= limit || looked >= RUNS_MAX {
                return Ok((items, Some(place)));
            }
            let (until, token) = match place.inner.take() {
                Some((until, token)) => (until, Some(token)),
                None => (now.0.saturating_sub_unsigned(shortest.0), None),
            };
            let query = Query { until: Some(until), oldest_first: true, ..Query::default() };
            let query = query.equal("Workflow", &place.workflow).equal("Status", status);
            let query = query.limit(limit - items.len()).after(token);
            let found = app.node().store().query(&SCHEMA, &query).await?;
            looked += found.rows.len();
            for row in &found.rows {
                let run = PublicInstance::from_row(row).map_err(|error| ApiError::internal(&error))?;
                items.extend(stuck(app, run, now).await?);
            }
            match found.continuation {
                Some(token) => place.inner = Some((until, token)),
                None => place.status += 1,
            }
        }
    }
    Ok((items, None))
}

/// The shortest `stuckAfter` of a definition's versions; none if all of them may wait for ever.
async fn shortest<S: Store>(app: &App<S>, workflow: &str) -> Result<Option<Duration>, ApiError> {
    let definitions = app.node().definitions();
    let mut shortest: Option<Duration> = None;
    for (version, _) in definitions.versions(workflow).await? {
        let after = definitions.plan(workflow, &version).await?.stuck_after();
        shortest = match (shortest, after) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    Ok(shortest)
}

/// A run as it is listed, if it is as old as its own version says and still lives.
async fn stuck<S: Store>(
    app: &App<S>,
    run: PublicInstance,
    now: Timestamp,
) -> Result<Option<StuckJson>, ApiError> {
    let version = Version::parse(&run.version).map_err(|error| ApiError::internal(&error))?;
    let plan = app.node().definitions().plan(&run.workflow, &version).await?;
    let created_at = Timestamp(run.created_at);
    let Some(after) = plan.stuck_after() else { return Ok(None) };
    let due = created_at.plus(after);
    if due >= now {
        return Ok(None);
    }
    let id = InstanceId::new(run.instance_id.as_str()).map_err(|error| ApiError::internal(&error))?;
    let waiting_for = match app.node().show(&id).await {
        Ok(Some(view)) if view.run.0 == run.run_number && lives(&view) => {
            view.current_states.iter().map(StandingJson::of).collect()
        }
        Ok(_) => return Ok(None),
        // It cannot be said what it waits for; that it is stuck is the more worth saying.
        Err(ShowError::Unreadable(_)) => Vec::new(),
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

fn lives(view: &RunView) -> bool {
    match view.status {
        ViewStatus::Run(status) => !status.is_terminal(),
        ViewStatus::Parked(_) => true,
    }
}

impl Place {
    /// What the table said is signed together with the question, so a token that was changed is refused there.
    fn seal(&self) -> String {
        let workflow = BASE64_URL_SAFE_NO_PAD.encode(&self.workflow);
        let (until, inner) = self.inner.as_ref().map_or((0, ""), |(until, inner)| (*until, inner));
        format!("{}.{until}.{workflow}.{inner}", self.status)
    }

    fn open(token: &str) -> Result<Self, ApiError> {
        let read = || {
            let mut parts = token.splitn(4, '.');
            let (status, until) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let workflow = BASE64_URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
            let inner = Some(parts.next()?.to_owned()).filter(|inner| !inner.is_empty());
            let workflow = String::from_utf8(workflow).ok()?;
            Some(Self { workflow, status, inner: inner.map(|inner| (until, inner)) })
        };
        read().ok_or_else(not_a_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place_and_anything_else_is_refused() {
        for inner in [None, Some((-5, "abc".to_owned()))] {
            let place = Place { workflow: "a.b ä".to_owned(), status: 2, inner };
            assert_eq!(Place::open(&place.seal()), Ok(place));
        }
        for wrong in ["", "1", "1.2", "1.2.!", "x.2.YQ.", "1.2.YQ", "-1.2.YQ.", "1.2._w."] {
            assert!(Place::open(wrong).is_err(), "{wrong}");
        }
    }
}
