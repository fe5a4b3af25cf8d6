//! `GET /instances/{id}`: how an instance stands; 202 with the way to ask again while it goes on.

use abide_runtime::RunView;
use abide_runtime::hands::Store;
use abide_workflow::{InstanceId, Status};
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use super::answer::{self, Answered, Otherwise};
use super::history::{self, Shown};
use super::links;
use super::parameters::Parameters;
use super::status_json::{StatusJson, goes_on, status_of};
use crate::app::App;
use crate::asked::Asked;

/// When to ask again.
const RETRY_AFTER_SECONDS: u16 = 5;

/// Shows an instance.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked, id: &str) -> Answered {
    let parameters = Parameters::of(asked);
    let shown = Shown {
        input: parameters.flag("showInput", true)?,
        output: parameters.flag("showHistoryOutput", false)?,
    };
    let id = instance(id)?;
    let view = app.in_time(app.node().show(&id)).await??.ok_or(Otherwise::Bare(StatusCode::NOT_FOUND))?;
    let history = match parameters.flag("showHistory", false)? {
        true => history::of(app, &id, shown).await?,
        false => None,
    };
    let failure_is_500 = parameters.flag("returnInternalServerErrorOnFailure", false)?;
    let mut response =
        ended_or_not(asked, &view, &StatusJson::of(&view, shown.input, history), failure_is_500);
    if response.status() == StatusCode::ACCEPTED {
        response.headers_mut().insert(LOCATION, links::again(asked)?);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
    Ok(response)
}

/// A run as it stands, under the status that says whether it has ended.
pub(super) fn ended_or_not(
    asked: &Asked,
    view: &RunView,
    json: &StatusJson<'_>,
    failure_is_500: bool,
) -> Response {
    let status = match status_of(view) {
        status if goes_on(status) => StatusCode::ACCEPTED,
        Status::Failed if failure_is_500 => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    answer::json(status, asked.correlation(), json)
}

/// The instance a path names. There can be none by a name that none can have.
pub(super) fn instance(id: &str) -> Result<InstanceId, Otherwise> {
    InstanceId::new(id).map_err(|_| Otherwise::Bare(StatusCode::NOT_FOUND))
}
