//! `GET /api/instances/{id}/history`: the events of an instance's current run, page by page.

use abide_runtime::hands::Store;
use abide_runtime::run::HistoryPlace;
use abide_workflow::RunNumber;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;

use super::instances::unknown;
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 100;
/// The form of continuation tokens this code makes. Others are refused.
const TOKEN_FORM: u8 = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PageJson {
    items: Vec<Box<RawValue>>,
    continuation_token: Option<String>,
}

/// Shows a page.
pub(super) async fn page<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let id = asked.instance_id().await?;
    let [limit, token] = asked.query(["limit", "continuationToken"])?;
    let limit = limit.map_or(Ok(LIMIT_DEFAULT), |text| limit_of(&text))?;
    let from = token.map(|text| open(&text)).transpose()?;
    let page = app.in_time(app.node().history(&id, from, limit)).await??.ok_or_else(|| unknown(&id))?;
    let data = PageJson { items: page.events, continuation_token: page.next.map(seal) };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

fn limit_of(text: &str) -> Result<usize, ApiError> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| ApiError::invalid("limit", format!("it must be a number from 1 to {LIMIT_MAX}")))
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
    place.ok_or_else(|| ApiError::invalid("continuationToken", "it is not a token of this server"))
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
