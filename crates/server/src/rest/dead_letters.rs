//! `GET /api/dlq`, `GET /api/dlq/{engine}/{rowKey}`: shows dead letters from the public table `engineDlq`. Writes none:
//! the shards do, and `events/receipt.rs`.

use abide_store::Store;
use abide_store::public::{PublicKey, PublicQuery, PublicRow};
use abide_store::tables::dead_letters::{self, DeadLetterRow, SCHEMA};
use abide_workflow::Timestamp;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::page::{self, LIMIT, PageJson, TOKEN};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind, OperationSpec, ResponseSpec};
use crate::response::Text;

const STATUSES: &[&str] = &["Pending", "Resolved", "Expired"];
const KEY: FieldKind = FieldKind::Text { chars_min: 1, chars_max: PublicKey::BYTES_MAX };
const FROM: Field = Field::optional(
    "fromDate",
    FieldKind::Timestamp,
    "Only dead letters whose last failure was at this time or later.",
);
const TO: Field = Field::optional(
    "toDate",
    FieldKind::Timestamp,
    "Only dead letters whose last failure was before this time.",
);

const ENGINE: Field =
    Field::required("engine", KEY, "The source of the dead letter: for a call, the id of the workflow.");
const ROW_KEY: Field = Field::required("rowKey", KEY, "The key of the dead letter within the engine.");

const QUERY: [Field; 7] = [
    Field::optional("engine", KEY, "Only messages of this engine."),
    Field::optional("status", FieldKind::OneOf(STATUSES), "Only messages with this status."),
    Field::optional("instanceId", KEY, "Only messages for this instance."),
    FROM,
    TO,
    LIMIT,
    TOKEN,
];

pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listDeadLetters",
    tag: "Dead letters",
    about: "Lists dead-lettered messages, latest failure first. All filters must match.",
    query: &QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<DeadLetterItemJson>>(200, "A page of messages.")],
    ..OperationSpec::EMPTY
};

pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showDeadLetter",
    tag: "Dead letters",
    about: "Shows a dead-lettered message with all details.",
    path: &[ENGINE, ROW_KEY],
    responses: &[ResponseSpec::enveloped::<DeadLetterJson>(200, "The message.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

/// A dead-lettered message.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterItem")]
#[serde(rename_all = "camelCase")]
struct DeadLetterItemJson {
    engine: String,
    row_key: String,
    instance_id: String,
    original_queue: String,
    error_message: String,
    dequeue_count: u32,
    #[schemars(extend("enum" = STATUSES))]
    status: &'static str,
    first_failure_at_utc: Text<Timestamp>,
    last_failure_at_utc: Text<Timestamp>,
    correlation_id: String,
}

/// A dead-lettered message with all details.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetter")]
#[serde(rename_all = "camelCase")]
struct DeadLetterJson {
    #[serde(flatten)]
    item: DeadLetterItemJson,
    /// The message as it was received: JSON in a string.
    original_message: String,
    resolution_notes: Option<String>,
    resolved_at_utc: Option<Text<Timestamp>>,
    resolved_by: Option<String>,
}

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [engine, status, instance_id, from, to, limit, token] = request.checked_query(&QUERY)?;
    let mut query = PublicQuery {
        from: FROM.parse_time(from.as_deref())?,
        until: TO.parse_time(to.as_deref())?,
        limit: LIMIT.parse_count(limit.as_deref())?,
        continuation: token.map(|token| token.into_owned()),
        ..PublicQuery::default()
    };
    for (column, value) in [("Engine", engine), ("Status", status), ("InstanceId", instance_id)] {
        if let Some(value) = value {
            query = query.filter(column, &value);
        }
    }
    let (rows, continuation_token) = page::query_rows(app, &SCHEMA, query).await?;
    let items = rows
        .iter()
        .map(|row| parse_dead_letter(row).map(|letter| DeadLetterItemJson::of(&letter)))
        .collect::<Result<_, _>>()?;
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let engine = request.checked_path_param(&ENGINE).await?;
    let row_key = request.checked_path_param(&ROW_KEY).await?;
    let row = app.node().store().get(&SCHEMA, &dead_letters::key(&engine, &row_key)).await?;
    let row = row.ok_or_else(|| ApiError::not_found("dead letter not found"))?;
    let letter = parse_dead_letter(&row)?;
    let data = DeadLetterJson {
        item: DeadLetterItemJson::of(&letter),
        original_message: letter.original_message,
        resolution_notes: letter.resolution_notes,
        resolved_at_utc: letter.resolved_at.map(Text),
        resolved_by: letter.resolved_by,
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

fn parse_dead_letter(row: &PublicRow) -> Result<DeadLetterRow, ApiError> {
    DeadLetterRow::from_public_row(row).map_err(|error| ApiError::internal(&error))
}

impl DeadLetterItemJson {
    fn of(letter: &DeadLetterRow) -> Self {
        Self {
            engine: letter.engine.clone(),
            row_key: letter.row_key.clone(),
            instance_id: letter.instance_id.clone(),
            original_queue: letter.original_queue.clone(),
            error_message: letter.error_message.clone(),
            dequeue_count: letter.dequeue_count,
            status: letter.status.as_str(),
            first_failure_at_utc: Text(letter.first_failure_at),
            last_failure_at_utc: Text(letter.last_failure_at),
            correlation_id: letter.correlation_id.clone(),
        }
    }
}
