//! `POST /api/instances`: begins a run, and waits for its end if the client likes. The busiest path of the server.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use abide_runtime::hands::Store;
use abide_runtime::{Refused, Repeat, Reply, Request, Start, Started};
use abide_workflow::ids::InvalidInstanceId;
use abide_workflow::limits::definition::NAME_CHARS_MAX;
use abide_workflow::{Duration, ExecutionId, InstanceId, Plan, Timestamp, json};
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use semver::VersionReq;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::body::Fields;
use super::instance_json::InstanceJson;
use super::instances::INSTANCE_ID;
use super::purge;
use super::repeat::{self, RepeatKey};
use super::versions::VERSION_TEXT;
use crate::app::App;
use crate::asked::Asked;
use crate::correlation;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation, Shape};

/// The longest wait for a run's end.
pub(crate) const WAIT_MAX: Duration = Duration::seconds(5 * 60);

// Longer ids of definitions cannot be published.
const WORKFLOW: Field =
    Field::required("workflow", Kind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX }, "The definition.");
const VERSION: Field =
    Field::optional("version", VERSION_TEXT, "A range of versions; without it, the default.");
const ENTITY: Field =
    Field::optional("entityId", Kind::Text { chars_min: 1, chars_max: 256 }, "The entity it acts for.");

const QUERY: [Field; 1] =
    [Field::optional("wait", Kind::Span, "Wait so long for the run's end, at most PT5M.")];

/// How a run that has begun is answered.
pub(super) const ACCEPTED: &[Answer] = &[BEGUN];
const BEGUN: Answer =
    Answer::data::<StartedJson<'static>>(202, "The run has begun, or had begun by an earlier copy.")
        .with(&[("Location", "Where to ask for it.")]);

pub(super) const START: Operation = Operation {
    id: "startInstance",
    tag: "Instances",
    about: "Begins a run.",
    query: &QUERY,
    headers: &[repeat::KEY],
    body: Some(Body {
        required: true,
        about: "What to run, and with what.",
        kinds: &[(
            JSON,
            Shape::Fields(&[
                WORKFLOW,
                VERSION,
                Field::optional("instanceId", INSTANCE_ID.kind, "Its name; without it, one is made."),
                Field::optional(
                    "input",
                    Kind::Any,
                    "What it begins with; without it, an object without fields.",
                ),
                Field::optional(
                    "correlationId",
                    Kind::Pattern { pattern: "^[!-~]*$", chars_max: correlation::CHARS_MAX },
                    "The trace it belongs to; without it, the request's.",
                ),
                ENTITY,
            ]),
        )],
    }),
    answers: &[Answer::data::<InstanceJson<'static>>(200, "The run has ended within the wait."), BEGUN],
    refuses: &[404, 409],
    ..Operation::NONE
};

/// A run that has begun, as it is told.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
#[serde(rename_all = "camelCase")]
struct StartedJson<'a> {
    instance_id: &'a str,
    execution_id: Text<ExecutionId>,
    created_at_utc: Text<Timestamp>,
    /// Until when the request is recognised when it comes again, if it had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

/// Begins a run.
pub(super) async fn start<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let wait = wait_of(asked)?;
    let body = asked.json(app.limits().body_bytes_max).await?;
    let key = RepeatKey::of(asked.headers(), body.as_ref())?;
    let mut fields = Fields::of(body)?;
    let workflow = fields.checked_text(&WORKFLOW)?.unwrap_or_default();
    let version = version_of(fields.checked_text(&VERSION)?.as_deref())?;
    let given = fields.text("instanceId")?;
    let (given, id) = (given.is_some(), instance_id(given, key.as_ref(), &workflow, asked)?);
    let input = fields.value("input").unwrap_or_else(|| Value::Object(Map::new()));
    let correlation_id = correlation_of(fields.text("correlationId")?, asked, &id)?;
    let entity_id = fields.checked_text(&ENTITY)?;
    fields.end()?;

    let repeat = key.map(|key| key.of_start(&workflow, &id, !given));
    let plan = match fitting(app, &workflow, version.as_ref(), &input).await {
        Ok(plan) => plan,
        Err(error) => return recalled(app, asked, id, repeat, wait).await?.ok_or(error),
    };
    let start = Start {
        instance_id: id,
        plan,
        input: Arc::new(input),
        event: None,
        correlation_id,
        entity_id,
        repeat,
        await_end: None,
    };
    let Some(wait) = wait else {
        let reply = app.ask(Request::Start(Box::new(start))).await?;
        return accepted(app, asked, &started(reply)?);
    };
    let begun = app.in_time(app.node().begin(start)).await??;
    let begin = started(begun.reply)?;
    ended(app, asked, &begin, wait, begun.end).await
}

/// The answer to an earlier copy of a request that would be refused today: it was judged by the definitions of its day, and stands.
pub(super) async fn recalled<S: Store>(
    app: &App<S>,
    asked: &mut Asked,
    instance_id: InstanceId,
    repeat: Option<Repeat>,
    wait: Option<StdDuration>,
) -> Result<Option<Response>, ApiError> {
    let Some(repeat) = repeat else { return Ok(None) };
    let begin = match app.ask(Request::Recall { instance_id: instance_id.clone(), repeat }).await? {
        Reply::Refused(Refused::NotFound { .. }) => return Ok(None),
        reply => started(reply)?,
    };
    let Some(wait) = wait else { return accepted(app, asked, &begin).map(Some) };
    let end = app.node().ask(Request::AwaitEnd { instance_id, run: Some(begin.run) });
    ended(app, asked, &begin, wait, end).await.map(Some)
}

/// The run, if it ends in time; else where to ask for it.
async fn ended<S: Store, E>(
    app: &App<S>,
    asked: &mut Asked,
    begin: &Started,
    wait: StdDuration,
    end: impl Future<Output = Result<Reply, E>>,
) -> Result<Response, ApiError> {
    let ended = tokio::select! {
        biased;
        ended = tokio::time::timeout(wait, end) => ended.ok(),
        () = app.stopping() => None,
    };
    match ended {
        Some(Ok(Reply::Ended(view))) => {
            let mut instance = InstanceJson::of(&view);
            instance.idempotency_key_expires_at_utc = begin.repeat_until.map(Text);
            Ok(asked.succeed(StatusCode::OK, app.now(), &instance))
        }
        // It goes on, or nobody here can tell: the run has begun, and can be asked for.
        _ => accepted(app, asked, begin),
    }
}

/// What a run of this definition with this input runs: the definition as it is today, if it takes the input.
pub(crate) async fn fitting<S: Store>(
    app: &App<S>,
    workflow: &str,
    version: Option<&VersionReq>,
    input: &Value,
) -> Result<Arc<Plan>, ApiError> {
    let found = app.in_time(app.node().definitions().pick(workflow, version)).await?;
    let plan = found.map_err(|error| ApiError::from(error).at("/workflow"))?;
    let (bytes, limit) = (json::size(input), app.limits().payload_bytes_max);
    if bytes > limit {
        let message = format!("the input has {bytes} bytes; the limit is {limit}");
        return Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message).at("/input"));
    }
    plan.check_input(input).map_err(|mismatches| ApiError::mismatched("/input", mismatches))?;
    Ok(plan)
}

/// A run that has begun: where to ask for it.
pub(super) fn accepted<S: Store>(
    app: &App<S>,
    asked: &Asked,
    started: &Started,
) -> Result<Response, ApiError> {
    let id = &started.instance_id;
    let data = StartedJson {
        instance_id: id.as_str(),
        execution_id: Text(ExecutionId { instance: id.clone(), run: started.run }),
        created_at_utc: Text(started.created_at),
        idempotency_key_expires_at_utc: started.repeat_until.map(Text),
    };
    let mut response = asked.succeed(StatusCode::ACCEPTED, app.now(), &data);
    let location = HeaderValue::try_from(format!("/api/instances/{id}"));
    let location = location.map_err(|error| ApiError::internal(&error))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// What a request to begin a run is answered.
pub(crate) fn started(reply: Reply) -> Result<Started, ApiError> {
    match reply {
        Reply::Started(started) => Ok(started),
        Reply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("a start was answered by {other:?}"))),
    }
}

fn wait_of(asked: &Asked) -> Result<Option<StdDuration>, ApiError> {
    let [wait] = asked.parameters(&QUERY)?;
    let Some(wait) = wait else { return Ok(None) };
    match Duration::parse(&wait) {
        Ok(wait) if wait <= WAIT_MAX => Ok(Some(StdDuration::from_millis(wait.0))),
        Ok(_) => Err(ApiError::invalid("wait", format!("the longest wait is {WAIT_MAX}"))),
        Err(error) => Err(ApiError::invalid("wait", error.to_string())),
    }
}

fn version_of(text: Option<&str>) -> Result<Option<VersionReq>, ApiError> {
    let range = text.map(VersionReq::parse).transpose();
    range.map_err(|error| ApiError::invalid("/version", format!("it is no range of versions: {error}")))
}

/// The id that a client gives a run, if it can have it; else why not.
pub(crate) fn named(given: impl Into<String>) -> Result<InstanceId, String> {
    let given = given.into();
    // Its path is taken.
    if given == purge::PATH_SEGMENT {
        return Err("this id is reserved".to_owned());
    }
    InstanceId::new(given).map_err(|error| error.to_string())
}

/// The client's id, else the one its key means, else a new one.
fn instance_id(
    given: Option<String>,
    key: Option<&RepeatKey<'_>>,
    workflow: &str,
    asked: &Asked,
) -> Result<InstanceId, ApiError> {
    let invalid = |error: InvalidInstanceId| ApiError::invalid("/instanceId", error.to_string());
    match (given, key) {
        (Some(given), _) => named(given).map_err(|error| ApiError::invalid("/instanceId", error)),
        (None, Some(key)) => key.instance_id(workflow),
        // An id that was made for this request names the run as well.
        (None, None) if !asked.correlation().is_given() => {
            InstanceId::new(asked.correlation().as_str()).map_err(invalid)
        }
        (None, None) => InstanceId::new(Uuid::now_v7().to_string()).map_err(invalid),
    }
}

/// The trace a run belongs to: as the body says, else as the request does, else its own. It will travel in headers.
fn correlation_of(given: Option<String>, asked: &Asked, id: &InstanceId) -> Result<String, ApiError> {
    match given {
        Some(given) if correlation::is_usable(given.as_bytes()) => Ok(given),
        Some(_) => {
            let message = format!("it must have 1 to {} visible ASCII characters", correlation::CHARS_MAX);
            Err(ApiError::invalid("/correlationId", message))
        }
        None if asked.correlation().is_given() => Ok(asked.correlation().as_str().to_owned()),
        None => Ok(id.as_str().to_owned()),
    }
}
