//! `GET /api/instances/{id}/history`: the history events of an instance's current run, or of a retained earlier run, in
//! pages.

use std::borrow::Cow;

use abide_ids::PageNumber;
use abide_runtime::run::HistoryCursor;
use abide_store::Store;
use abide_workflow::RunNumber;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::RawValue;

use super::instances::{INSTANCE_ID, instance_not_found};
use super::page::{LIMIT, PageJson, TOKEN, invalid_token};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind, OperationSpec, ResponseSpec};

const RUN: Field = Field::optional(
    "run",
    FieldKind::RUN_NUMBER,
    "The number of one of the instance's retained runs; by default, the current run.",
);
const QUERY: [Field; 3] = [RUN, LIMIT, TOKEN];

pub(super) const PAGE: OperationSpec = OperationSpec {
    id: "showHistory",
    tag: "Instances",
    about: "Shows the history of an instance's current run, or of an earlier one, in order. Pages continue in the run they started with.",
    path: &[INSTANCE_ID],
    query: &QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<HistoryEventJson>>(200, "A page of events.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

/// The format of continuation tokens. Tokens of other versions are rejected.
const TOKEN_VERSION: u8 = 2;

/// An event in its stored form, which is also the form of the API.
#[derive(Serialize)]
#[serde(transparent)]
struct HistoryEventJson(Box<RawValue>);

impl JsonSchema for HistoryEventJson {
    fn schema_name() -> Cow<'static, str> {
        "HistoryEvent".into()
    }

    fn json_schema(_schemas: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "A history event; further fields depend on its type.",
            "properties": {
                "sequence": {"type": "integer", "minimum": 1},
                "timestamp": {"type": "string", "format": "date-time"},
                "eventType": {"type": "string"},
            },
            "required": ["sequence", "timestamp", "eventType"],
        })
    }
}

pub(super) async fn page<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let id = request.instance_id().await?;
    let [run, limit, token] = request.checked_query(&QUERY)?;
    let run = run.map(|run| RUN.parse_run_number(&run)).transpose()?;
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let from = token.map(|text| decode_cursor(&text)).transpose()?;
    if from.zip(run).is_some_and(|(from, run)| from.run_number != run) {
        return Err(invalid_token());
    }
    let from = from.or(run.map(HistoryCursor::start_of));
    let page = app.with_timeout(app.node().history(&id, from, limit)).await??;
    let page = page.ok_or_else(|| match from {
        Some(HistoryCursor { run_number: run, .. }) => {
            ApiError::not_found(format!("instance {id} has no run {run}, or it is no longer retained"))
        }
        None => instance_not_found(&id),
    })?;
    let items = page.events.into_iter().map(HistoryEventJson).collect();
    let data = PageJson { items, continuation_token: page.next_cursor.map(encode_cursor) };
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

/// The token to continue at this position. It needs no protection: a client that may read a run may read all of it.
fn encode_cursor(cursor: HistoryCursor) -> String {
    let mut bytes = vec![TOKEN_VERSION];
    bytes.extend(cursor.run_number.0.to_be_bytes());
    bytes.extend(cursor.page.0.to_be_bytes());
    bytes.extend(cursor.event_offset.to_be_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn decode_cursor(token: &str) -> Result<HistoryCursor, ApiError> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let cursor = match bytes.split_first() {
        Some((&TOKEN_VERSION, position)) => parse_position(position),
        _ => None,
    };
    cursor.ok_or_else(invalid_token)
}

fn parse_position(bytes: &[u8]) -> Option<HistoryCursor> {
    let (run, rest) = bytes.split_first_chunk()?;
    let (page, rest) = rest.split_first_chunk()?;
    Some(HistoryCursor {
        run_number: RunNumber(u32::from_be_bytes(*run)),
        page: PageNumber(u64::from_be_bytes(*page)),
        event_offset: u32::from_be_bytes(rest.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_position_and_anything_else_is_rejected() {
        for (run, page, event) in [(1, 1, 0), (7, 51, 3), (u32::MAX, u64::MAX, u32::MAX)] {
            let cursor =
                HistoryCursor { run_number: RunNumber(run), page: PageNumber(page), event_offset: event };
            assert_eq!(decode_cursor(&encode_cursor(cursor)), Ok(cursor));
        }
        for token in ["", "x", "Ag", "51", "////////////", "AQAAAAAAAAAB", "AgAAAAAAAAABAA"] {
            assert!(decode_cursor(token).is_err(), "{token}");
        }
    }
}
