//! `/api/dispatches`: every call of an activity, open or settled, as its journal has it.
//!
//! What there is to ask and how it is answered. How calls are walked through is in `walk`, where a list goes on in `place`.

mod item;
mod place;
mod show;
mod walk;

use abide_runtime::hands::Store;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{Duration, InstanceId, RunNumber};
use axum::http::StatusCode;
use axum::response::Response;

use self::item::{ItemJson, STATES};
use self::place::Place;
pub(super) use self::show::{SHOW, show};
use self::walk::{Question, Walk};
use super::page::{LIMIT, PageJson, TOKEN};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Kind, Operation};

const EXECUTION: Field = Field::optional(
    "executionId",
    Kind::Pattern {
        pattern: "^[A-Za-z0-9._:~-][A-Za-z0-9._:~@-]*(/[1-9][0-9]*)?$",
        chars_max: InstanceId::BYTES_MAX + 11,
    },
    "Only calls of this run: an instance id, a slash and the number of one of its runs, or the instance id alone for its current one.",
);
const OLDER_THAN: Field =
    Field::optional("olderThan", Kind::Span, "Only calls that were promised at least so long ago.");

const QUERY: [Field; 6] = [
    EXECUTION,
    Field::optional(
        "state",
        Kind::Word(STATES),
        "Only calls that stand so. Without it, all calls of the run; without a run, those that are open.",
    ),
    Field::optional(
        "activity",
        Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
        "Only calls of this activity.",
    ),
    OLDER_THAN,
    LIMIT,
    TOKEN,
];

pub(super) const LIST: Operation = Operation {
    id: "listDispatches",
    tag: "Dispatches",
    about: "Lists calls of activities. A page looks at a bounded number of calls and runs, so one with a token may be short or empty.",
    query: &QUERY,
    answers: &[Answer::data::<PageJson<ItemJson>>(200, "A page of calls.")],
    ..Operation::NONE
};

/// Lists calls.
pub(super) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [execution, state, activity, older_than, limit, token] = asked.parameters(&QUERY)?;
    let older_than = older_than.map(|text| Duration::parse(&text)).transpose();
    let older_than = older_than.map_err(|error| ApiError::invalid(OLDER_THAN.name, error.to_string()))?;
    let question = Question {
        execution: execution.as_deref().map(read_execution).transpose()?,
        state: state.as_deref().and_then(item::state),
        activity: activity.map(|activity| activity.into_owned()),
        older_than,
    };
    let limit = LIMIT.count(limit.as_deref())?;
    let from = token.map(|token| Place::open(&token, &question)).transpose()?;
    let walk = Walk::new(app, &question, limit);
    let (calls, next) = app.in_time(walk.page(from)).await??;
    let items = calls.iter().map(ItemJson::of).collect();
    let continuation_token = next.map(|next| next.seal(&question));
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

/// An instance, and one of its runs unless the current one is meant.
fn read_execution(text: &str) -> Result<(InstanceId, Option<RunNumber>), ApiError> {
    let (id, run) = match text.split_once('/') {
        Some((id, run)) => (id, Some(run)),
        None => (text, None),
    };
    let id = InstanceId::new(id).map_err(|error| ApiError::invalid(EXECUTION.name, error.to_string()))?;
    Ok((id, run.map(read_run).transpose()?))
}

fn read_run(text: &str) -> Result<RunNumber, ApiError> {
    // Reading a number takes a sign and zeros before it as well; there is one way to write one.
    let number = text.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == text);
    number.map(RunNumber).ok_or_else(|| {
        let message = "what comes after the slash must be the number of a run, from 1 on";
        ApiError::invalid(EXECUTION.name, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_an_instance_with_or_without_the_number_of_a_run() {
        let read =
            |text: &str| read_execution(text).ok().map(|(id, run)| (id.to_string(), run.map(|run| run.0)));
        assert_eq!(read("a~b"), Some(("a~b".to_owned(), None)));
        assert_eq!(read("a/12"), Some(("a".to_owned(), Some(12))));
        for wrong in
            ["", "/", "a/", "/1", "a/0", "a/01", "a/+1", "a/-1", "a/1/2", "a/x", "a b", "a/4294967296"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
