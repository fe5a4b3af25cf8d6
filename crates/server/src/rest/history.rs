//! `GET /api/instances/{id}/history`: the events of an instance's current run, or of an earlier one that is kept, page by page.

use std::borrow::Cow;

use abide_runtime::hands::Store;
use abide_runtime::run::HistoryPlace;
use abide_workflow::RunNumber;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::value::RawValue;

use super::instances::{INSTANCE_ID, unknown};
use super::page::{LIMIT, PageJson, TOKEN, not_a_token};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Kind, Operation};

const RUN: Field = Field::optional(
    "run",
    Kind::RUN_NUMBER,
    "The number of one of its runs that is still kept; without it, the current one.",
);
const QUERY: [Field; 3] = [RUN, LIMIT, TOKEN];

pub(super) const PAGE: Operation = Operation {
    id: "showHistory",
    tag: "Instances",
    about: "Shows what has happened to an instance's current run, or to an earlier one, in order. Pages go on in the run they began with.",
    path: &[INSTANCE_ID],
    query: &QUERY,
    answers: &[Answer::data::<PageJson<EventJson>>(200, "A page of events.")],
    refuses: &[404],
    ..Operation::NONE
};

/// The form of continuation tokens this code makes. Others are refused.
const TOKEN_FORM: u8 = 2;

/// An event as it is stored, which is as it is shown.
#[derive(Serialize)]
#[serde(transparent)]
struct EventJson(Box<RawValue>);

impl JsonSchema for EventJson {
    fn schema_name() -> Cow<'static, str> {
        "HistoryEvent".into()
    }

    fn json_schema(_schemas: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "A fact; what else it has depends on its type.",
            "properties": {
                "sequence": {"type": "integer", "minimum": 1},
                "timestamp": {"type": "string", "format": "date-time"},
                "eventType": {"type": "string"},
            },
            "required": ["sequence", "timestamp", "eventType"],
        })
    }
}

/// Shows a page.
pub(super) async fn page<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [run, limit, token] = asked.parameters(&QUERY)?;
    let run = run.map(|run| RUN.run_number(&run)).transpose()?;
    let limit = LIMIT.count(limit.as_deref())?;
    let from = token.map(|text| open(&text)).transpose()?;
    if from.zip(run).is_some_and(|(from, run)| from.run != run) {
        return Err(not_a_token());
    }
    let from = from.or(run.map(HistoryPlace::first));
    let page = app.in_time(app.node().history(&id, from, limit)).await??;
    let page = page.ok_or_else(|| match from {
        Some(HistoryPlace { run, .. }) => {
            ApiError::not_found(format!("instance {id} has no run {}, or none that is still kept", run.0))
        }
        None => unknown(&id),
    })?;
    let items = page.events.into_iter().map(EventJson).collect();
    let data = PageJson { items, continuation_token: page.next.map(seal) };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

/// A token that goes on at this place. It is nobody's secret: whoever may read a run may read all of it.
fn seal(place: HistoryPlace) -> String {
    let mut bytes = vec![TOKEN_FORM];
    bytes.extend(place.run.0.to_be_bytes());
    bytes.extend(place.page.to_be_bytes());
    bytes.extend(place.event.to_be_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn open(token: &str) -> Result<HistoryPlace, ApiError> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let place = match bytes.split_first() {
        Some((&TOKEN_FORM, place)) => read(place),
        _ => None,
    };
    place.ok_or_else(not_a_token)
}

fn read(bytes: &[u8]) -> Option<HistoryPlace> {
    let (run, rest) = bytes.split_first_chunk()?;
    let (page, rest) = rest.split_first_chunk()?;
    Some(HistoryPlace {
        run: RunNumber(u32::from_be_bytes(*run)),
        page: u64::from_be_bytes(*page),
        event: u32::from_be_bytes(rest.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place_and_anything_else_is_refused() {
        for (run, page, event) in [(1, 1, 0), (7, 51, 3), (u32::MAX, u64::MAX, u32::MAX)] {
            let place = HistoryPlace { run: RunNumber(run), page, event };
            assert_eq!(open(&seal(place)), Ok(place));
        }
        for token in ["", "x", "Ag", "51", "////////////", "AQAAAAAAAAAB", "AgAAAAAAAAABAA"] {
            assert!(open(token).is_err(), "{token}");
        }
    }
}
