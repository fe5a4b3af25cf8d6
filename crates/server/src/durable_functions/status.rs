//! `GET /instances/{id}`: the status of an instance; 202 with a location to poll while it is live.

use abide_runtime::RunView;
use abide_store::Store;
use abide_workflow::{InstanceId, Status};
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use super::history::{self, HistoryOptions};
use super::links;
use super::query_parameters::QueryParameters;
use super::response::{self, DurableError, DurableResult};
use super::status_json::{StatusJson, durable_status, is_live};
use crate::api_request::ApiRequest;
use crate::app::App;

/// The `Retry-After` of a live instance.
const RETRY_AFTER_SECONDS: u16 = 5;

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest, id: &str) -> DurableResult {
    let parameters = QueryParameters::from_request(request);
    let options = HistoryOptions {
        show_input: parameters.flag("showInput", true)?,
        show_output: parameters.flag("showHistoryOutput", false)?,
    };
    let id = parse_instance_id(id)?;
    let view = app
        .with_timeout(app.node().view_instance(&id))
        .await??
        .ok_or(DurableError::StatusOnly(StatusCode::NOT_FOUND))?;
    let history = match parameters.flag("showHistory", false)? {
        true => history::load(app, &id, options).await?,
        false => None,
    };
    let failure_is_500 = parameters.flag("returnInternalServerErrorOnFailure", false)?;
    let mut response =
        status_response(request, &view, &StatusJson::of(&view, options.show_input, history), failure_is_500);
    if response.status() == StatusCode::ACCEPTED {
        response.headers_mut().insert(LOCATION, links::self_location(request)?);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
    Ok(response)
}

/// The response with the instance's status; its HTTP status says whether the run has ended. Also the response to a
/// start that waited for a run which did not complete.
pub(super) fn status_response(
    request: &ApiRequest,
    view: &RunView,
    json: &StatusJson<'_>,
    failure_is_500: bool,
) -> Response {
    let status = match durable_status(view) {
        status if is_live(status) => StatusCode::ACCEPTED,
        Status::Failed if failure_is_500 => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    response::json(status, request.correlation(), json)
}

/// The instance id in the path. An invalid id is reported as not found.
pub(super) fn parse_instance_id(id: &str) -> Result<InstanceId, DurableError> {
    InstanceId::new(id).map_err(|_| DurableError::StatusOnly(StatusCode::NOT_FOUND))
}
