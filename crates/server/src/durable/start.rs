//! `POST /orchestrators/{functionName}/{instanceId?}` and `POST /instances/{id}/restart`: 202 with the addresses to go on with.

use std::sync::Arc;
use std::time::Duration;

use abide_runtime::hands::Store;
use abide_runtime::{Refused, Reply, Request, RunView, Start, ViewStatus};
use abide_workflow::{InstanceId, Status};
use axum::http::header::{LOCATION, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use semver::VersionReq;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::answer::{self, Answered, Otherwise};
use super::links::Management;
use super::parameters::Parameters;
use super::status::{ended_or_not, instance};
use super::status_json::StatusJson;
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::rest::orders::check_restart;
use crate::rest::start::{WAIT_MAX, fitting, named, started};

/// When to ask for a run that has just begun.
const RETRY_AFTER_SECONDS: u16 = 10;

/// Begins a run of the definition that has the function's name. The body is its input. With `timeout` its end is waited for.
pub(super) async fn start<S: Store>(
    app: &App<S>,
    asked: &mut Asked,
    name: &str,
    id: Option<&str>,
) -> Answered {
    let parameters = Parameters::of(asked);
    let wait = parameters.seconds_ms("timeout", WAIT_MAX.0)?.map(Duration::from_millis);
    let version = parameters.text("version").map(VersionReq::parse).transpose();
    let version = version.map_err(|error| Otherwise::invalid("version", error))?;
    let id = match id {
        Some(id) => named(id).map_err(|error| Otherwise::invalid("instanceId", error))?,
        None => fresh().map_err(|error| ApiError::internal(&error))?,
    };
    let input = if asked.has_body() { asked.json(app.limits().body_bytes_max).await? } else { None };
    let input = input.unwrap_or_else(|| Value::Object(Map::new()));
    let plan = fitting(app, name, version.as_ref(), &input).await.map_err(no_such_function)?;
    let correlation = asked.correlation();
    let correlation_id = if correlation.is_given() { correlation.as_str() } else { id.as_str() }.to_owned();
    let start = Start {
        instance_id: id,
        plan,
        input: Arc::new(input),
        event: None,
        correlation_id,
        entity_id: None,
        repeat: None,
        await_end: None,
    };
    let Some(wait) = wait else {
        let reply = app.ask(Request::Start(Box::new(start))).await?;
        return accepted(asked, &parameters, reply);
    };
    let begun = app.in_time(app.node().begin(start)).await?.map_err(ApiError::from)?;
    let going_on = accepted(asked, &parameters, begun.reply)?;
    let ended = tokio::select! {
        biased;
        ended = tokio::time::timeout(wait, begun.end) => ended.ok(),
        () = app.stopping() => None,
    };
    match ended {
        Some(Ok(Reply::Ended(view))) => Ok(ended_while_waited(asked, &view)),
        _ => Ok(going_on),
    }
}

/// Begins a new run with the input and the version of the last one: of a new instance, or of the same if the client likes.
pub(super) async fn restart<S: Store>(app: &App<S>, asked: &mut Asked, id: &str) -> Answered {
    let parameters = Parameters::of(asked);
    let instance_id = instance(id)?;
    check_restart(app, &instance_id).await?;
    if !parameters.flag("restartWithNewInstanceId", true)? {
        let reply = app.ask(Request::Restart { instance_id }).await?;
        return accepted(asked, &parameters, reply);
    }
    let view =
        app.in_time(app.node().show(&instance_id)).await??.ok_or(Otherwise::Bare(StatusCode::NOT_FOUND))?;
    if let ViewStatus::Parked(reason) = view.status {
        // What cannot be read has no input to begin with.
        return Err(Refused::Parked { instance_id, reason }.into());
    }
    let version = VersionReq::parse(&format!("={}", view.version));
    let version = version.map_err(|error| ApiError::internal(&error))?;
    let plan = fitting(app, &view.workflow, Some(&version), &view.input).await?;
    let instance_id = fresh().map_err(|error| ApiError::internal(&error))?;
    let start = Start {
        correlation_id: instance_id.as_str().to_owned(),
        instance_id,
        plan,
        input: view.input,
        event: None,
        entity_id: view.entity_id,
        repeat: None,
        await_end: None,
    };
    let reply = app.ask(Request::Start(Box::new(start))).await?;
    accepted(asked, &parameters, reply)
}

fn accepted(asked: &Asked, parameters: &Parameters, reply: Reply) -> Answered {
    if let Reply::Refused(refused @ Refused::NotFound { .. }) = reply {
        return Err(refused.into());
    }
    let started = started(reply)?;
    let management = Management::of(asked, parameters, started.instance_id.as_str());
    let mut response = answer::json(StatusCode::ACCEPTED, asked.correlation(), &management);
    response.headers_mut().insert(LOCATION, management.location()?);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    Ok(response)
}

/// A run that ended well is answered by what it ended with, any other by how it stands.
fn ended_while_waited(asked: &Asked, view: &RunView) -> axum::response::Response {
    match (&view.status, &view.output) {
        (ViewStatus::Run(Status::Completed), output) => {
            answer::json(StatusCode::OK, asked.correlation(), output.as_deref().unwrap_or(&Value::Null))
        }
        _ => ended_or_not(asked, view, &StatusJson::of(view, true, None), false),
    }
}

/// An id as theirs are: 32 hexadecimal digits.
fn fresh() -> Result<InstanceId, abide_workflow::ids::InvalidInstanceId> {
    InstanceId::new(Uuid::now_v7().simple().to_string())
}

/// To them a name that leads nowhere is a mistake in the request.
fn no_such_function(error: ApiError) -> Otherwise {
    match error.status() {
        StatusCode::NOT_FOUND => Otherwise::invalid("functionName", error.in_words()),
        _ => error.into(),
    }
}
