//! `GET /api/instances`: runs by what they are, newest first, from the public table: milliseconds behind the truth, and never in its way.

use abide_runtime::hands::Store;
use abide_store::public::Query;
use abide_store::tables::public_instances::{PublicInstance, SCHEMA};
use abide_workflow::Timestamp;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::instance_json::{STATUSES, status_schema};
use super::page::{self, LIMIT, PageJson, TOKEN};
use super::versions::VERSION_TEXT;
use crate::app::App;
use crate::asked::Asked;
use crate::correlation;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Kind, Operation};

const QUERY: [Field; 9] = [
    Field::optional("status", Kind::Word(STATUSES), "Only runs that stand so."),
    WORKFLOW,
    Field::optional("version", VERSION_TEXT, "Only runs of this version."),
    Field::optional(
        "correlationId",
        Kind::Text { chars_min: 1, chars_max: correlation::CHARS_MAX },
        "Only runs of this trace.",
    ),
    Field::optional("entityId", Kind::Text { chars_min: 1, chars_max: 256 }, "Only runs for this entity."),
    CREATED_FROM,
    CREATED_TO,
    LIMIT,
    TOKEN,
];

pub(super) const WORKFLOW: Field = Field::optional(
    "workflow",
    Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
    "Only runs of this definition.",
);
pub(super) const CREATED_FROM: Field =
    Field::optional("createdFrom", Kind::Time, "Only runs accepted at this moment or later.");
pub(super) const CREATED_TO: Field =
    Field::optional("createdTo", Kind::Time, "Only runs accepted before this moment.");

pub(super) const LIST: Operation = Operation {
    id: "listInstances",
    tag: "Instances",
    about: "Lists runs, newest first. Every run of an instance is one item; all filters must hold.",
    query: &QUERY,
    answers: &[Answer::data::<PageJson<ItemJson>>(200, "A page of runs.")],
    ..Operation::NONE
};

/// A run in the list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "InstanceItem")]
#[serde(rename_all = "camelCase")]
struct ItemJson {
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
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// Lists runs.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [status, workflow, version, correlation_id, entity_id, from, to, limit, token] =
        asked.parameters(&QUERY)?;
    let mut query = Query {
        from: CREATED_FROM.time(from.as_deref())?.map(|from| from.0),
        until: CREATED_TO.time(to.as_deref())?.map(|to| to.0),
        limit: LIMIT.count(limit.as_deref())?,
        continuation: token.map(|token| token.into_owned()),
        ..Query::default()
    };
    for (column, value) in [
        ("Status", status),
        ("Workflow", workflow),
        ("Version", version),
        ("CorrelationId", correlation_id),
        ("EntityId", entity_id),
    ] {
        if let Some(value) = value {
            query = query.equal(column, &value);
        }
    }
    let (rows, continuation_token) = page::rows(app, &SCHEMA, query).await?;
    let items = rows.iter().map(ItemJson::of).collect::<Result<_, _>>()?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

impl ItemJson {
    fn of(row: &abide_store::public::PublicRow) -> Result<Self, ApiError> {
        let run = PublicInstance::from_row(row).map_err(|error| ApiError::internal(&error))?;
        Ok(Self {
            instance_id: run.instance_id,
            execution_id: run.execution_id,
            workflow: run.workflow,
            version: run.version,
            status: run.status,
            correlation_id: run.correlation_id,
            entity_id: run.entity_id,
            created_at_utc: Text(Timestamp(run.created_at)),
            last_updated_at_utc: Text(Timestamp(run.updated_at)),
            error: run.error.and_then(|text| serde_json::from_str(&text).ok()),
        })
    }
}
