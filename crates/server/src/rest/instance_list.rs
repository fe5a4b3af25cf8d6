//! `GET /api/instances`: lists runs by their properties, newest first.
//!
//! Reads the public table only, which is milliseconds behind the shards: a list never slows them down.

use abide_store::Store;
use abide_store::public::PublicQuery;
use abide_store::tables::public_instances::{PublicInstanceRow, SCHEMA};
use abide_workflow::Timestamp;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::instance_json::{STATUSES, status_schema};
use super::page::{self, LIMIT, PageJson, TOKEN};
use super::workflow_versions::VERSION_TEXT;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::correlation;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind, OperationSpec, ResponseSpec};
use crate::response::Text;

const QUERY: [Field; 9] = [
    Field::optional("status", FieldKind::OneOf(STATUSES), "Only runs with this status."),
    WORKFLOW,
    Field::optional("version", VERSION_TEXT, "Only runs of this version."),
    Field::optional(
        "correlationId",
        FieldKind::Text { chars_min: 1, chars_max: correlation::CHARS_MAX },
        "Only runs with this correlation id.",
    ),
    Field::optional(
        "entityId",
        FieldKind::Text { chars_min: 1, chars_max: 256 },
        "Only runs for this entity.",
    ),
    CREATED_FROM,
    CREATED_TO,
    LIMIT,
    TOKEN,
];

pub(super) const WORKFLOW: Field = Field::optional(
    "workflow",
    FieldKind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
    "Only runs of this definition.",
);
pub(super) const CREATED_FROM: Field =
    Field::optional("createdFrom", FieldKind::Timestamp, "Only runs accepted at this time or later.");
pub(super) const CREATED_TO: Field =
    Field::optional("createdTo", FieldKind::Timestamp, "Only runs accepted before this time.");

pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listInstances",
    tag: "Instances",
    about: "Lists runs, newest first. Every run of an instance is one item. All filters must match.",
    query: &QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<RunItemJson>>(200, "A page of runs.")],
    ..OperationSpec::EMPTY
};

/// A run in the list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "InstanceItem")]
#[serde(rename_all = "camelCase")]
struct RunItemJson {
    instance_id: String,
    execution_id: String,
    workflow: String,
    version: String,
    #[schemars(schema_with = "status_schema")]
    status: String,
    correlation_id: String,
    entity_id: Option<String>,
    created_at_utc: Text<Timestamp>,
    last_updated_at_utc: Text<Timestamp>,
    /// Why the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [status, workflow, version, correlation_id, entity_id, from, to, limit, token] =
        request.checked_query(&QUERY)?;
    let mut query = PublicQuery {
        from: CREATED_FROM.parse_time(from.as_deref())?,
        until: CREATED_TO.parse_time(to.as_deref())?,
        limit: LIMIT.parse_count(limit.as_deref())?,
        continuation: token.map(|token| token.into_owned()),
        ..PublicQuery::default()
    };
    for (column, value) in [
        ("Status", status),
        ("Workflow", workflow),
        ("Version", version),
        ("CorrelationId", correlation_id),
        ("EntityId", entity_id),
    ] {
        if let Some(value) = value {
            query = query.filter(column, &value);
        }
    }
    let (rows, continuation_token) = page::query_rows(app, &SCHEMA, query).await?;
    let items = rows.iter().map(RunItemJson::of).collect::<Result<_, _>>()?;
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

impl RunItemJson {
    fn of(row: &abide_store::public::PublicRow) -> Result<Self, ApiError> {
        let run = PublicInstanceRow::from_public_row(row).map_err(|error| ApiError::internal(&error))?;
        Ok(Self {
            instance_id: run.instance_id,
            execution_id: run.execution_id,
            workflow: run.workflow,
            version: run.version,
            status: run.status,
            correlation_id: run.correlation_id,
            entity_id: run.entity_id,
            created_at_utc: Text(run.created_at),
            last_updated_at_utc: Text(run.updated_at),
            error: run.error.and_then(|text| serde_json::from_str(&text).ok()),
        })
    }
}
