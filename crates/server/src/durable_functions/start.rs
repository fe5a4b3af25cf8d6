//! `POST /orchestrators/{functionName}/{instanceId?}` and `POST /instances/{id}/restart`: start a run and return 202
//! with its management URLs.

use std::sync::Arc;
use std::time::Duration;

use abide_runtime::{RequestError, RunView, ShardReply, ShardRequest, StartRequest, ViewStatus};
use abide_store::Store;
use abide_workflow::{InstanceId, Status};
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use semver::VersionReq;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::links::ManagementLinks;
use super::query_parameters::QueryParameters;
use super::response::{self, DurableError, DurableResult};
use super::status::{parse_instance_id, status_response};
use super::status_json::StatusJson;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::control::check_version_not_retired;
use crate::rest::start::{WAIT_MAX, client_instance_id, expect_started, resolve_plan};

/// The `Retry-After` of a run that has just started.
const RETRY_AFTER_SECONDS: u16 = 10;

/// Starts a run of the definition with the function's name. The body is its input. With `timeout`, waits for its end,
/// but not while the server stops; a run that has not ended by then gets the 202. There is no idempotency key: a
/// repeated request with an id is refused while the run is live, and one without an id starts another instance.
pub(super) async fn start<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    name: &str,
    id: Option<&str>,
) -> DurableResult {
    let parameters = QueryParameters::from_request(request);
    let wait = parameters.seconds_as_ms("timeout", WAIT_MAX.0)?.map(Duration::from_millis);
    let version = parameters.text("version").map(VersionReq::parse).transpose();
    let version = version.map_err(|error| DurableError::invalid("version", error))?;
    let id = match id {
        Some(id) => client_instance_id(id).map_err(|error| DurableError::invalid("instanceId", error))?,
        None => new_instance_id().map_err(|error| ApiError::internal(&error))?,
    };
    let input = if request.has_body() { request.json_body(app.limits().body_bytes_max).await? } else { None };
    let input = input.unwrap_or_else(|| Value::Object(Map::new()));
    let plan = resolve_plan(app, name, version.as_ref(), &input).await.map_err(unknown_function_error)?;
    let correlation = request.correlation();
    let correlation_id =
        if correlation.is_from_caller() { correlation.as_str() } else { id.as_str() }.to_owned();
    let start = StartRequest {
        instance_id: id,
        plan,
        input: Arc::new(input),
        event: None,
        correlation_id,
        entity_id: None,
        entity_type: None,
        idempotency: None,
        await_end: None,
    };
    let Some(wait) = wait else {
        let reply = app.request(ShardRequest::Start(Box::new(start))).await?;
        return accepted_response(request, &parameters, reply);
    };
    let starting = app.with_timeout(app.node().start_run(start)).await?.map_err(ApiError::from)?;
    let accepted = accepted_response(request, &parameters, starting.reply)?;
    let ended = tokio::select! {
        biased;
        ended = tokio::time::timeout(wait, starting.end) => ended.ok(),
        () = app.wait_for_stop() => None,
    };
    match ended {
        Some(Ok(ShardReply::Ended(view))) => Ok(end_response(request, &view)),
        _ => Ok(accepted),
    }
}

/// Starts a new run with the input and version of the last one, for a new instance or, if the client requests it, for
/// the same instance. Only the latter requires that the last run has ended; only the former gets a new correlation id.
pub(super) async fn restart<S: Store>(app: &App<S>, request: &mut ApiRequest, id: &str) -> DurableResult {
    let parameters = QueryParameters::from_request(request);
    let instance_id = parse_instance_id(id)?;
    check_version_not_retired(app, &instance_id).await?;
    if !parameters.flag("restartWithNewInstanceId", true)? {
        let reply = app.request(ShardRequest::Restart { instance_id }).await?;
        return accepted_response(request, &parameters, reply);
    }
    let view = app
        .with_timeout(app.node().view_instance(&instance_id))
        .await??
        .ok_or(DurableError::StatusOnly(StatusCode::NOT_FOUND))?;
    if let ViewStatus::Parked(reason) = view.status {
        // An unreadable run has no input to start with.
        return Err(RequestError::Parked { instance_id, reason }.into());
    }
    let version = VersionReq::parse(&format!("={}", view.version));
    let version = version.map_err(|error| ApiError::internal(&error))?;
    let plan = resolve_plan(app, &view.workflow, Some(&version), &view.input).await?;
    let instance_id = new_instance_id().map_err(|error| ApiError::internal(&error))?;
    let start = StartRequest {
        correlation_id: instance_id.as_str().to_owned(),
        instance_id,
        plan,
        input: view.input,
        event: None,
        entity_id: view.entity_id,
        entity_type: view.entity_type,
        idempotency: None,
        await_end: None,
    };
    let reply = app.request(ShardRequest::Start(Box::new(start))).await?;
    accepted_response(request, &parameters, reply)
}

/// The 202 for a start or restart, or the error if the shard refused it.
fn accepted_response(request: &ApiRequest, parameters: &QueryParameters, reply: ShardReply) -> DurableResult {
    if let ShardReply::Refused(refused @ RequestError::NotFound { .. }) = reply {
        return Err(refused.into());
    }
    let started = expect_started(reply)?;
    let links = ManagementLinks::new(request, parameters, started.instance_id.as_str());
    let mut response = response::json(StatusCode::ACCEPTED, request.correlation(), &links);
    response.headers_mut().insert(LOCATION, links.location()?);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    Ok(response)
}

/// The output of a completed run, or the status of any other run.
fn end_response(request: &ApiRequest, view: &RunView) -> axum::response::Response {
    match (&view.status, &view.output) {
        (ViewStatus::Run(Status::Completed), output) => {
            response::json(StatusCode::OK, request.correlation(), output.as_deref().unwrap_or(&Value::Null))
        }
        _ => status_response(request, view, &StatusJson::of(view, true, None), false),
    }
}

/// A new id in the form of Durable Functions: 32 hexadecimal digits.
fn new_instance_id() -> Result<InstanceId, abide_workflow::ids::InvalidInstanceId> {
    InstanceId::new(Uuid::now_v7().simple().to_string())
}

/// Durable Functions treats an unknown function name as an invalid request.
fn unknown_function_error(error: ApiError) -> DurableError {
    match error.status() {
        StatusCode::NOT_FOUND => DurableError::invalid("functionName", error.full_message()),
        _ => error.into(),
    }
}
