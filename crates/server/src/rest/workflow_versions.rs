//! `/api/workflows` beyond publishing: lists definitions and their versions, sets the default version, retires a
//! version and validates a definition.

use abide_runtime::definitions::{DefinitionError, RetireOutcome};
use abide_store::Store;
use abide_store::public::PublicQuery;
use abide_store::tables::public_instances::SCHEMA;
use abide_workflow::{Finding, ParsedDefinition, PlanHash, Registry, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;

use super::body_fields::BodyFields;
use super::instance_json::LIVE_STATUSES;
use super::page::{self, COUNT_MAX, LIMIT, PageJson, TOKEN};
use super::workflows::{ID, check_id_not_reserved, parse_version};
use crate::api_request::{self, ApiRequest};
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};
use crate::response::Text;

/// A version or a version range; only the length is checked.
pub(super) const VERSION_TEXT: FieldKind = FieldKind::Text { chars_min: 1, chars_max: 256 };
const VERSION: Field = Field::required("version", VERSION_TEXT, "The version.");
const LIST_QUERY: [Field; 2] = [LIMIT, TOKEN];

pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listWorkflows",
    tag: "Workflows",
    about: "Lists definitions in the order of their ids.",
    query: &LIST_QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<WorkflowItemJson>>(200, "A page of definitions.")],
    ..OperationSpec::EMPTY
};
pub(super) const VERSIONS: OperationSpec = OperationSpec {
    id: "listWorkflowVersions",
    tag: "Workflows",
    about: "Lists the versions of a definition, newest first, each with the number of its live runs.",
    path: &[ID],
    query: &LIST_QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<VersionItemJson>>(200, "A page of versions.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};
pub(super) const SET_DEFAULT: OperationSpec = OperationSpec {
    id: "setDefaultVersion",
    tag: "Workflows",
    about: "Makes a version the default: new runs use it unless they request another one.",
    path: &[ID],
    body: Some(BodySpec {
        required: true,
        about: "The version.",
        content: &[(JSON, BodyShape::Fields(&[VERSION]))],
    }),
    responses: &[ResponseSpec::enveloped::<VersionRefJson<'static>>(200, "The version is the default.")],
    error_statuses: &[404, 409],
    ..OperationSpec::EMPTY
};
pub(super) const RETIRE: OperationSpec = OperationSpec {
    id: "retireWorkflowVersion",
    tag: "Workflows",
    about: "Retires a version: no new run can use it. Rejected while it is the default or has live runs.",
    path: &[ID, VERSION],
    responses: &[ResponseSpec::enveloped::<VersionRefJson<'static>>(200, "The version is retired.")],
    error_statuses: &[404, 409],
    ..OperationSpec::EMPTY
};
pub(super) const VALIDATE: OperationSpec = OperationSpec {
    id: "validateWorkflow",
    tag: "Workflows",
    about: "Validates a definition as publishing would, but publishes nothing.",
    body: Some(BodySpec {
        required: true,
        about: "The definition. Any text is accepted: its errors are the result.",
        content: &[(JSON, BodyShape::Schema("{}"))],
    }),
    responses: &[ResponseSpec::enveloped::<ValidationJson>(200, "The findings.")],
    ..OperationSpec::EMPTY
};

/// A definition in the list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkflowItem")]
#[serde(rename_all = "camelCase")]
struct WorkflowItemJson {
    id: String,
    default_version: Text<Version>,
}

/// A version in the list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WorkflowVersionItem")]
#[serde(rename_all = "camelCase")]
struct VersionItemJson {
    version: Text<Version>,
    hash: Text<PlanHash>,
    default: bool,
    retired: bool,
    /// The number of live runs, from the public table, counted up to 10,000.
    live: usize,
    published_at_utc: Text<Timestamp>,
}

/// A version that was changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChangedVersion")]
struct VersionRefJson<'a> {
    id: &'a str,
    version: Text<&'a Version>,
}

/// The result of a validation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Validation")]
struct ValidationJson {
    valid: bool,
    findings: Vec<FindingJson>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
struct FindingJson {
    code: String,
    severity: String,
    pointer: String,
    message: String,
    hint: String,
}

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [limit, token] = request.checked_query(&LIST_QUERY)?;
    let limit = LIMIT.parse_count(limit.as_deref())?;
    // The token is the id that the next page starts with; ids need no protection.
    let definitions = app.node().definitions();
    let from = token.as_deref().unwrap_or_default();
    let mut ids = app.with_timeout(definitions.ids(from, limit + 1)).await??;
    let next = if ids.len() > limit { ids.pop() } else { None };
    let mut items = Vec::with_capacity(ids.len());
    for id in ids {
        let plan = app.with_timeout(definitions.resolve(&id, None)).await??;
        items.push(WorkflowItemJson { default_version: Text(plan.version().clone()), id });
    }
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token: next }))
}

pub(super) async fn versions<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [limit, token] = request.checked_query(&LIST_QUERY)?;
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let from = token.map(|token| parse_version(&token, TOKEN.name)).transpose()?;
    let id = request.checked_path_param(&ID).await?;
    let definitions = app.node().definitions();
    let mut versions = app.with_timeout(definitions.versions(&id)).await??;
    if versions.is_empty() {
        return Err(DefinitionError::NotFound { id, wanted: "any version".to_owned() }.into());
    }
    versions.retain(|(version, _)| from.as_ref().is_none_or(|from| version <= from));
    versions.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
    let next = page::truncate_to_page(&mut versions, limit, |(version, _)| version.to_string());
    let default = app.with_timeout(definitions.resolve(&id, None)).await??;
    // So that every acknowledged run is counted.
    app.with_timeout(app.node().await_public_index()).await??;
    let mut items = Vec::with_capacity(versions.len());
    for (version, row) in versions {
        items.push(VersionItemJson {
            live: count_live_runs(app, &id, &version).await?,
            default: version == *default.version(),
            version: Text(version),
            hash: Text(PlanHash(row.content_digest)),
            retired: row.retired_at.is_some(),
            published_at_utc: Text(row.published_at),
        });
    }
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token: next }))
}

pub(super) async fn set_default<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let id = request.checked_path_param(&ID).await?;
    let mut fields = BodyFields::from_body(request.json_body(app.limits().body_bytes_max).await?)?;
    let version = fields.take_checked_text(&VERSION)?.unwrap_or_default();
    fields.reject_unknown()?;
    let version = parse_version(&version, "/version")?;
    app.with_timeout(app.node().definitions().set_default(&id, &version, app.now())).await??;
    Ok(request.data_response(StatusCode::OK, app.now(), &VersionRefJson { id: &id, version: Text(&version) }))
}

pub(super) async fn retire<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let id = request.checked_path_param(&ID).await?;
    let version = parse_version(&request.checked_path_param(&VERSION).await?, "version")?;
    let task = tokio::spawn(retire_unless_live(app.clone(), id.clone(), version.clone()));
    task.await.map_err(|error| ApiError::internal(&error))??;
    Ok(request.data_response(StatusCode::OK, app.now(), &VersionRefJson { id: &id, version: Text(&version) }))
}

/// Marks the version as retired, so that no new run uses it. Only then, when the public table has every run that was
/// acknowledged before, it counts the live runs, and withdraws the mark if there are any or they cannot be counted. It
/// runs as a task of its own, because a client that disconnects must not leave the mark behind.
///
/// It misses a start that had chosen the version before the mark and was not durable when the public table was queried,
/// and a run that is resumed while it counts. Such a run continues normally, on a retired version. The mark stays if
/// the server dies in between, if the mark is set only after a timeout, or if it cannot be withdrawn. A mark that was
/// there before is never withdrawn.
async fn retire_unless_live<S: Store>(app: App<S>, id: String, version: Version) -> Result<(), ApiError> {
    let definitions = app.node().definitions();
    let retirement = app.with_timeout(definitions.retire(&id, &version, app.now())).await??;
    let counted = async {
        app.with_timeout(app.node().await_public_index()).await??;
        app.with_timeout(count_live_runs(&app, &id, &version)).await?
    };
    let rejection = match counted.await {
        Ok(0) => return Ok(()),
        Ok(live) => {
            let message = format!("cannot retire {id} {version} while runs of it are live: {live}");
            ApiError::conflict(message)
        }
        Err(error) => error,
    };
    if let RetireOutcome::New(mark) = retirement {
        app.with_timeout(definitions.revert_retirement(&id, &version, mark)).await??;
    }
    Err(rejection)
}

pub(super) async fn validate<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let bytes = request.json_bytes(app.limits().body_bytes_max).await?;
    let registry =
        Registry::parse(&app.catalogue().registry_json()).map_err(|error| ApiError::internal(&error))?;
    let text = api_request::utf8_text(&bytes)?;
    if text.trim().is_empty() {
        return Err(ApiError::invalid("", "the body must be a definition"));
    }
    check_id_not_reserved(text)?;
    let (valid, findings) = match ParsedDefinition::parse(text).validate(Some(&registry)) {
        Ok(validated) => (true, validated.findings().to_vec()),
        Err(rejected) => (false, rejected.findings),
    };
    let findings = findings.into_iter().map(finding_json).collect();
    Ok(request.data_response(StatusCode::OK, app.now(), &ValidationJson { valid, findings }))
}

fn finding_json(finding: Finding) -> FindingJson {
    FindingJson {
        code: finding.code.to_string(),
        severity: finding.severity().to_string(),
        pointer: finding.pointer,
        message: finding.message,
        hint: finding.hint,
    }
}

/// Runs of a version that have not ended, counted up to a limit in the public table; callers await the public index
/// first.
async fn count_live_runs<S: Store>(app: &App<S>, id: &str, version: &Version) -> Result<usize, ApiError> {
    let version = version.to_string();
    let mut live = 0;
    for status in LIVE_STATUSES {
        let query = PublicQuery::default()
            .filter("Workflow", id)
            .filter("Version", &version)
            .filter("Status", status);
        live += page::count_rows(app, &SCHEMA, query, COUNT_MAX - live).await?;
    }
    Ok(live)
}
