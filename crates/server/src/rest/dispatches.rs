//! `/api/dispatches`: lists activity calls, open or settled, and shows one, from their stored rows. Asks no shard.
//!
//! Parses the request and builds the response. `query` scans the calls; `cursor` is the continuation token; `show`
//! shows one call.

mod cursor;
mod item;
mod query;
mod show;

use abide_store::Store;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{Duration, InstanceId, RunNumber};
use axum::http::StatusCode;
use axum::response::Response;

use self::cursor::CallCursor;
use self::item::{CallItemJson, STATES};
use self::query::{CallFilter, CallQuery};
pub(super) use self::show::{SHOW, show};
use super::page::{LIMIT, PageJson, TOKEN};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind, OperationSpec, ResponseSpec};

const EXECUTION: Field = Field::optional(
    "executionId",
    FieldKind::Pattern {
        pattern: "^[A-Za-z0-9._:~-][A-Za-z0-9._:~@-]*(/[1-9][0-9]*)?$",
        chars_max: InstanceId::BYTES_MAX + 11,
    },
    "Only calls of this run: an instance id, a slash and the number of one of its runs, or the instance id alone for its current run.",
);
const OLDER_THAN: Field =
    Field::optional("olderThan", FieldKind::Duration, "Only calls created at least this long ago.");

const QUERY: [Field; 6] = [
    EXECUTION,
    Field::optional(
        "state",
        FieldKind::OneOf(STATES),
        "Only calls in this state. By default, all calls of the run; without a run, all open calls.",
    ),
    Field::optional(
        "activity",
        FieldKind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
        "Only calls of this activity.",
    ),
    OLDER_THAN,
    LIMIT,
    TOKEN,
];

pub(super) const LIST: OperationSpec = OperationSpec {
    id: "listDispatches",
    tag: "Dispatches",
    about: "Lists activity calls. A page examines a bounded number of calls and runs, so a page with a token may be short or empty.",
    query: &QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<CallItemJson>>(200, "A page of calls.")],
    ..OperationSpec::EMPTY
};

pub(super) async fn list<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [execution, state, activity, older_than, limit, token] = request.checked_query(&QUERY)?;
    let older_than = older_than.map(|text| Duration::parse(&text)).transpose();
    let older_than = older_than.map_err(|error| ApiError::invalid(OLDER_THAN.name, error.to_string()))?;
    let filter = CallFilter {
        execution: execution.as_deref().map(parse_execution).transpose()?,
        state: state.as_deref().and_then(item::parse_state),
        activity: activity.map(|activity| activity.into_owned()),
        older_than,
    };
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let from = token.map(|token| CallCursor::decode(&token, &filter)).transpose()?;
    let query = CallQuery::new(app, &filter, limit);
    let (calls, next) = app.with_timeout(query.page(from)).await??;
    let items = calls.iter().map(CallItemJson::of).collect();
    let continuation_token = next.map(|next| next.encode(&filter));
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

/// An instance id with an optional run number; without one, the current run is meant.
fn parse_execution(text: &str) -> Result<(InstanceId, Option<RunNumber>), ApiError> {
    let (id, run) = match text.split_once('/') {
        Some((id, run)) => (id, Some(run)),
        None => (text, None),
    };
    let id = InstanceId::new(id).map_err(|error| ApiError::invalid(EXECUTION.name, error.to_string()))?;
    Ok((id, run.map(parse_run_number).transpose()?))
}

fn parse_run_number(text: &str) -> Result<RunNumber, ApiError> {
    // `parse` accepts a sign and leading zeros too, but there is only one way to write a number.
    let number = text.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == text);
    number.map(RunNumber).ok_or_else(|| {
        let message = "the part after the slash must be a run number from 1";
        ApiError::invalid(EXECUTION.name, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_an_instance_id_with_or_without_a_run_number() {
        let parse =
            |text: &str| parse_execution(text).ok().map(|(id, run)| (id.to_string(), run.map(|run| run.0)));
        assert_eq!(parse("a~b"), Some(("a~b".to_owned(), None)));
        assert_eq!(parse("a/12"), Some(("a".to_owned(), Some(12))));
        for wrong in
            ["", "/", "a/", "/1", "a/0", "a/01", "a/+1", "a/-1", "a/1/2", "a/x", "a b", "a/4294967296"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
