//! `GET /api/dlq`, `GET /api/dlq/{engine}/{rowKey}`: messages that were given up, from the public table `engineDlq`.

use abide_runtime::hands::Store;
use abide_store::public::{PublicKey, PublicRow, Query};
use abide_store::tables::engine_dlq::{self, DeadLetter, SCHEMA};
use abide_workflow::Timestamp;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::page::{self, LIMIT, PageJson, TOKEN};
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Kind, Operation};

const STATUSES: &[&str] = &["Pending", "Resolved", "Expired"];
const KEY: Kind = Kind::Text { chars_min: 1, chars_max: PublicKey::BYTES_MAX };
const FROM: Field =
    Field::optional("fromDate", Kind::Time, "Only messages that failed last at this moment or later.");
const TO: Field = Field::optional("toDate", Kind::Time, "Only messages that failed last before this moment.");

const ENGINE: Field = Field::required("engine", KEY, "The engine that gave it up.");
const ROW_KEY: Field = Field::required("rowKey", KEY, "Its key within the engine.");

const QUERY: [Field; 7] = [
    Field::optional("engine", KEY, "Only messages of this engine."),
    Field::optional("status", Kind::Word(STATUSES), "Only messages of which this became."),
    Field::optional("instanceId", KEY, "Only messages for this instance."),
    FROM,
    TO,
    LIMIT,
    TOKEN,
];

pub(super) const LIST: Operation = Operation {
    id: "listDeadLetters",
    tag: "Dead letters",
    about: "Lists messages that were given up, the last to fail first. All filters must hold.",
    query: &QUERY,
    answers: &[Answer::data::<PageJson<ItemJson>>(200, "A page of messages.")],
    ..Operation::NONE
};

pub(super) const SHOW: Operation = Operation {
    id: "showDeadLetter",
    tag: "Dead letters",
    about: "Shows a message that was given up, with all that is known of it.",
    path: &[ENGINE, ROW_KEY],
    answers: &[Answer::data::<LetterJson>(200, "The message.")],
    refuses: &[404],
    ..Operation::NONE
};

/// A message that was given up.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterItem")]
#[serde(rename_all = "camelCase")]
struct ItemJson {
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

/// A message that was given up, with all that is known of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeadLetter")]
#[serde(rename_all = "camelCase")]
struct LetterJson {
    #[serde(flatten)]
    item: ItemJson,
    /// The message as it came, JSON in a string.
    original_message: String,
    resolution_notes: Option<String>,
    resolved_at_utc: Option<Text<Timestamp>>,
    resolved_by: Option<String>,
}

/// Lists messages.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [engine, status, instance_id, from, to, limit, token] = asked.parameters(&QUERY)?;
    let mut query = Query {
        from: FROM.time(from.as_deref())?.map(|from| from.0),
        until: TO.time(to.as_deref())?.map(|to| to.0),
        limit: LIMIT.count(limit.as_deref())?,
        continuation: token.map(|token| token.into_owned()),
        ..Query::default()
    };
    for (column, value) in [("Engine", engine), ("Status", status), ("InstanceId", instance_id)] {
        if let Some(value) = value {
            query = query.equal(column, &value);
        }
    }
    let (rows, continuation_token) = page::rows(app, &SCHEMA, query).await?;
    let items =
        rows.iter().map(|row| letter(row).map(|letter| ItemJson::of(&letter))).collect::<Result<_, _>>()?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

/// Shows one.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let (engine, row_key) = (asked.part(&ENGINE).await?, asked.part(&ROW_KEY).await?);
    let row = app.node().store().get(&SCHEMA, &engine_dlq::key(&engine, &row_key)).await?;
    let row = row.ok_or_else(|| ApiError::not_found("there is no such message"))?;
    let letter = letter(&row)?;
    let data = LetterJson {
        item: ItemJson::of(&letter),
        original_message: letter.original_message,
        resolution_notes: letter.resolution_notes,
        resolved_at_utc: letter.resolved_at.map(Timestamp).map(Text),
        resolved_by: letter.resolved_by,
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

fn letter(row: &PublicRow) -> Result<DeadLetter, ApiError> {
    DeadLetter::from_row(row).map_err(|error| ApiError::internal(&error))
}

impl ItemJson {
    fn of(letter: &DeadLetter) -> Self {
        Self {
            engine: letter.engine.clone(),
            row_key: letter.row_key.clone(),
            instance_id: letter.instance_id.clone(),
            original_queue: letter.original_queue.clone(),
            error_message: letter.error_message.clone(),
            dequeue_count: letter.dequeue_count,
            status: letter.status.as_str(),
            first_failure_at_utc: Text(Timestamp(letter.first_failure_at)),
            last_failure_at_utc: Text(Timestamp(letter.last_failure_at)),
            correlation_id: letter.correlation_id.clone(),
        }
    }
}
