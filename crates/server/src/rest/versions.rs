//! `/api/workflows` beyond publishing: which definitions and versions there are, which one is the default, and taking one out of use.

use abide_runtime::definitions::{DefinitionError, Retirement};
use abide_runtime::hands::Store;
use abide_store::public::Query;
use abide_store::tables::public_instances::SCHEMA;
use abide_workflow::{Authored, Finding, PlanHash, Registry, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;

use super::body::Fields;
use super::instance_json::LIVE;
use super::page::{self, COUNTED_MAX, LIMIT, PageJson, TOKEN};
use super::workflows::{ID, check_id, version_of};
use crate::app::App;
use crate::asked::{self, Asked};
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

/// A version, or a range of them, as far as its length goes.
pub(super) const VERSION_TEXT: Kind = Kind::Text { chars_min: 1, chars_max: 256 };
const VERSION: Field = Field::required("version", VERSION_TEXT, "The version.");
const LIST_QUERY: [Field; 2] = [LIMIT, TOKEN];

pub(super) const LIST: Operation = Operation {
    id: "listWorkflows",
    tag: "Workflows",
    about: "Lists definitions in the order of their ids.",
    query: &LIST_QUERY,
    answers: &[Answer::data::<PageJson<WorkflowItem>>(200, "A page of definitions.")],
    ..Operation::NONE
};
pub(super) const VERSIONS: Operation = Operation {
    id: "listWorkflowVersions",
    tag: "Workflows",
    about: "Lists the versions of a definition, newest first, each with how many runs of it live.",
    path: &[ID],
    query: &LIST_QUERY,
    answers: &[Answer::data::<PageJson<VersionItem>>(200, "A page of versions.")],
    refuses: &[404],
    ..Operation::NONE
};
pub(super) const SET_DEFAULT: Operation = Operation {
    id: "setDefaultVersion",
    tag: "Workflows",
    about: "Makes a version the one that new runs have unless they ask for another.",
    path: &[ID],
    body: Some(Body { required: true, about: "Which version.", kinds: &[(JSON, Shape::Fields(&[VERSION]))] }),
    answers: &[Answer::data::<ChangedJson<'static>>(200, "It is the default.")],
    refuses: &[404, 409],
    ..Operation::NONE
};
pub(super) const RETIRE: Operation = Operation {
    id: "retireWorkflowVersion",
    tag: "Workflows",
    about: "Takes a version out of use: no new run can have it. Refused while it is the default or runs of it live.",
    path: &[ID, VERSION],
    answers: &[Answer::data::<ChangedJson<'static>>(200, "It is retired.")],
    refuses: &[404, 409],
    ..Operation::NONE
};
pub(super) const VALIDATE: Operation = Operation {
    id: "validateWorkflow",
    tag: "Workflows",
    about: "Says what publishing a definition would say, and publishes nothing.",
    body: Some(Body {
        required: true,
        about: "The definition. Anything is taken: what is wrong with it is the answer.",
        kinds: &[(JSON, Shape::Schema("{}"))],
    }),
    answers: &[Answer::data::<ValidationJson>(200, "What was found.")],
    ..Operation::NONE
};

/// A definition in the list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkflowItem")]
#[serde(rename_all = "camelCase")]
struct WorkflowItem {
    id: String,
    default_version: Text<Version>,
}

/// A version in the list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkflowVersionItem")]
#[serde(rename_all = "camelCase")]
struct VersionItem {
    version: Text<Version>,
    hash: Text<PlanHash>,
    default: bool,
    retired: bool,
    /// Runs of it that have not ended, from the public table, counted up to 10,000.
    live: usize,
    published_at_utc: Text<Timestamp>,
}

/// A version that was changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChangedVersion")]
struct ChangedJson<'a> {
    id: &'a str,
    version: Text<&'a Version>,
}

/// What validation has to say.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Validation")]
struct ValidationJson {
    valid: bool,
    findings: Vec<FindingJson>,
}

/// One finding.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
struct FindingJson {
    code: String,
    severity: String,
    pointer: String,
    message: String,
    hint: String,
}

/// Lists definitions.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [limit, token] = asked.parameters(&LIST_QUERY)?;
    let limit = LIMIT.count(limit.as_deref())?;
    // A token is the id that the next page begins with; ids are nobody's secret.
    let definitions = app.node().definitions();
    let from = token.as_deref().unwrap_or_default();
    let mut ids = app.in_time(definitions.ids(from, limit + 1)).await??;
    let next = if ids.len() > limit { ids.pop() } else { None };
    let mut items = Vec::with_capacity(ids.len());
    for id in ids {
        let plan = app.in_time(definitions.pick(&id, None)).await??;
        items.push(WorkflowItem { default_version: Text(plan.version().clone()), id });
    }
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token: next }))
}

/// Lists the versions of a definition.
pub(super) async fn versions<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [limit, token] = asked.parameters(&LIST_QUERY)?;
    let limit = LIMIT.count(limit.as_deref())?;
    let from = token.map(|token| version_of(&token, TOKEN.name)).transpose()?;
    let id = asked.part(&ID).await?;
    let definitions = app.node().definitions();
    let mut versions = app.in_time(definitions.versions(&id)).await??;
    if versions.is_empty() {
        return Err(DefinitionError::Unknown { id, wanted: "any version".to_owned() }.into());
    }
    versions.retain(|(version, _)| from.as_ref().is_none_or(|from| version <= from));
    versions.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    let next = page::cut(&mut versions, limit, |(version, _)| version.to_string());
    let default = app.in_time(definitions.pick(&id, None)).await??;
    // So that a run that was acknowledged is counted.
    app.in_time(app.node().public_caught_up()).await??;
    let mut items = Vec::with_capacity(versions.len());
    for (version, row) in versions {
        items.push(VersionItem {
            live: live(app, &id, &version).await?,
            default: version == *default.version(),
            version: Text(version),
            hash: Text(PlanHash(row.hash)),
            retired: row.retired_at.is_some(),
            published_at_utc: Text(Timestamp(row.published_at)),
        });
    }
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token: next }))
}

/// Makes a version the default.
pub(super) async fn set_default<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let id = asked.part(&ID).await?;
    let mut fields = Fields::of(asked.json(app.limits().body_bytes_max).await?)?;
    let version = fields.checked_text(&VERSION)?.unwrap_or_default();
    fields.end()?;
    let version = version_of(&version, "/version")?;
    app.in_time(app.node().definitions().set_default(&id, &version, app.now())).await??;
    Ok(asked.succeed(StatusCode::OK, app.now(), &ChangedJson { id: &id, version: Text(&version) }))
}

/// Takes a version out of use.
pub(super) async fn retire<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let id = asked.part(&ID).await?;
    let version = version_of(&asked.part(&VERSION).await?, "version")?;
    let task = tokio::spawn(retire_unless_live(app.clone(), id.clone(), version.clone()));
    task.await.map_err(|error| ApiError::internal(&error))??;
    Ok(asked.succeed(StatusCode::OK, app.now(), &ChangedJson { id: &id, version: Text(&version) }))
}

/// Marks the version, so that no new run picks it, and only then counts, when the public table has every run that was acknowledged before;
/// takes the mark back if one lives. It is a task of its own, because a client that goes away must not leave the mark behind.
///
/// What this does not see: a start that had picked the version before it was marked and was not durable when the public table was asked
/// for. Such a run goes on as any other; it only lives in a version that is retired. And a server that dies in between leaves the mark.
async fn retire_unless_live<S: Store>(app: App<S>, id: String, version: Version) -> Result<(), ApiError> {
    let definitions = app.node().definitions();
    let retirement = app.in_time(definitions.retire(&id, &version, app.now())).await??;
    let counted = async {
        app.in_time(app.node().public_caught_up()).await??;
        app.in_time(live(&app, &id, &version)).await?
    };
    let refused = match counted.await {
        Ok(0) => return Ok(()),
        Ok(live) => {
            let message =
                format!("{live} runs of {id} {version} live: it can be retired when they have ended");
            ApiError::conflict(message)
        }
        Err(error) => error,
    };
    if let Retirement::New(mark) = retirement {
        app.in_time(definitions.take_back(&id, &version, mark)).await??;
    }
    Err(refused)
}

/// Says what publishing would say.
pub(super) async fn validate<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let bytes = asked.bytes(app.limits().body_bytes_max).await?;
    let registry =
        Registry::parse(&app.catalogue().registry()).map_err(|error| ApiError::internal(&error))?;
    let text = asked::text(&bytes)?;
    if text.trim().is_empty() {
        return Err(ApiError::invalid("", "the body must be a definition"));
    }
    check_id(text)?;
    let (valid, findings) = match Authored::parse(text).validate(Some(&registry)) {
        Ok(validated) => (true, validated.findings().to_vec()),
        Err(rejected) => (false, rejected.findings),
    };
    let findings = findings.into_iter().map(finding).collect();
    Ok(asked.succeed(StatusCode::OK, app.now(), &ValidationJson { valid, findings }))
}

fn finding(finding: Finding) -> FindingJson {
    FindingJson {
        code: finding.code.to_string(),
        severity: finding.severity().to_string(),
        pointer: finding.pointer,
        message: finding.message,
        hint: finding.hint,
    }
}

/// Runs of a version that have not ended, counted up to a limit.
async fn live<S: Store>(app: &App<S>, id: &str, version: &Version) -> Result<usize, ApiError> {
    let version = version.to_string();
    let mut live = 0;
    for status in LIVE {
        let query = Query::default().equal("Workflow", id).equal("Version", &version).equal("Status", status);
        live += page::count(app, &SCHEMA, query, COUNTED_MAX - live).await?;
    }
    Ok(live)
}
