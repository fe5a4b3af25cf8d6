//! `POST /api/instances`: starts a run, and waits for its end if the client requests it. The busiest path of the
//! server.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use abide_runtime::entity::EntityId;
use abide_runtime::{RequestError, RequestIdempotency, ShardReply, ShardRequest, StartRequest, StartedRun};
use abide_store::Store;
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

use super::body_fields::BodyFields;
use super::entities;
use super::idempotency::{self, ClientIdempotencyKey};
use super::instance_json::InstanceJson;
use super::instances::INSTANCE_ID;
use super::purge;
use super::workflow_versions::VERSION_TEXT;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::correlation;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};
use crate::response::Text;

/// The longest wait for a run's end.
pub(crate) const WAIT_MAX: Duration = Duration::seconds(5 * 60);

// Definitions with longer ids cannot be published.
const WORKFLOW: Field = Field::required(
    "workflow",
    FieldKind::Text { chars_min: 1, chars_max: NAME_CHARS_MAX },
    "The id of the definition.",
);
const VERSION: Field = Field::optional(
    "version",
    VERSION_TEXT,
    "A version or version range. If omitted, the default version is used.",
);
const ENTITY: Field = Field::optional(
    "entityId",
    FieldKind::Text { chars_min: 1, chars_max: 256 },
    "The key of the entity that the run acts for.",
);
const ENTITY_TYPE: Field = Field::optional(
    "entityType",
    entities::TYPE.kind,
    "The type of that entity; the run finds it without naming the type.",
);

const QUERY: [Field; 1] =
    [Field::optional("wait", FieldKind::Duration, "How long to wait for the run's end, at most PT5M.")];

pub(super) const STARTED_RESPONSES: &[ResponseSpec] = &[STARTED_RESPONSE];
const STARTED_RESPONSE: ResponseSpec = ResponseSpec::enveloped::<StartedJson<'static>>(
    202,
    "The run is started, or was started by an earlier identical request.",
)
.with_headers(&[("Location", "The path of the instance.")]);

pub(super) const START: OperationSpec = OperationSpec {
    id: "startInstance",
    tag: "Instances",
    about: "Starts a run.",
    query: &QUERY,
    headers: &[idempotency::IDEMPOTENCY_KEY],
    body: Some(BodySpec {
        required: true,
        about: "The definition and its input.",
        content: &[(
            JSON,
            BodyShape::Fields(&[
                WORKFLOW,
                VERSION,
                Field::optional(
                    "instanceId",
                    INSTANCE_ID.kind,
                    "The instance id; by default, it is generated.",
                ),
                Field::optional("input", FieldKind::Any, "The run's input; by default, an empty object."),
                Field::optional(
                    "correlationId",
                    FieldKind::Pattern { pattern: "^[!-~]*$", chars_max: correlation::CHARS_MAX },
                    "The correlation id of the run; by default, that of the request.",
                ),
                ENTITY,
                ENTITY_TYPE,
            ]),
        )],
    }),
    responses: &[
        ResponseSpec::enveloped::<InstanceJson<'static>>(200, "The run ended within the wait."),
        STARTED_RESPONSE,
    ],
    error_statuses: &[404, 409],
    ..OperationSpec::EMPTY
};

/// A started run.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Started")]
#[serde(rename_all = "camelCase")]
struct StartedJson<'a> {
    instance_id: &'a str,
    execution_id: Text<ExecutionId>,
    created_at_utc: Text<Timestamp>,
    /// Until when a repeated request is recognised, if the request had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

pub(super) async fn start<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let wait = parse_wait(request)?;
    let body = request.json_body(app.limits().body_bytes_max).await?;
    let key = ClientIdempotencyKey::from_request(request.headers(), body.as_ref())?;
    let mut fields = BodyFields::from_body(body)?;
    let workflow = fields.take_checked_text(&WORKFLOW)?.unwrap_or_default();
    let version = parse_version_range(fields.take_checked_text(&VERSION)?.as_deref())?;
    let given = fields.take_text("instanceId")?;
    let (given, id) = (given.is_some(), resolve_instance_id(given, key.as_ref(), &workflow, request)?);
    let input = fields.take_value("input").unwrap_or_else(|| Value::Object(Map::new()));
    let correlation_id = resolve_correlation_id(fields.take_text("correlationId")?, request, &id)?;
    let entity_id = fields.take_checked_text(&ENTITY)?;
    let entity_type = fields.take_checked_text(&ENTITY_TYPE)?;
    fields.reject_unknown()?;
    let entity_type = check_entity_type(entity_type, entity_id.as_deref())?;

    let idempotency = key.map(|key| key.for_start(&workflow, &id, !given));
    let plan = match resolve_plan(app, &workflow, version.as_ref(), &input).await {
        Ok(plan) => plan,
        Err(error) => return replay_stored_reply(app, request, id, idempotency, wait).await?.ok_or(error),
    };
    let start = StartRequest {
        instance_id: id,
        plan,
        input: Arc::new(input),
        event: None,
        correlation_id,
        entity_id,
        entity_type,
        idempotency,
        await_end: None,
    };
    let Some(wait) = wait else {
        let reply = app.request(ShardRequest::Start(Box::new(start))).await?;
        return accepted_response(app, request, &expect_started(reply)?);
    };
    let starting = app.with_timeout(app.node().start_run(start)).await??;
    let started = expect_started(starting.reply)?;
    wait_for_end(app, request, &started, wait, starting.end).await
}

/// The type of the entity with this key, in lower case. Both together must be an entity id.
fn check_entity_type(entity_type: Option<String>, key: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(entity_type) = entity_type else { return Ok(None) };
    let Some(key) = key else {
        return Err(ApiError::invalid("/entityType", "entityId is required with entityType"));
    };
    let entity = EntityId::new(&entity_type, key);
    let entity = entity.map_err(|error| ApiError::invalid("/entityType", error.to_string()))?;
    Ok(Some(entity.entity_type().to_owned()))
}

/// The stored reply of an earlier identical start or restart, for one that would be rejected now; none if there is no
/// key, or no reply under it. The earlier request was checked against the definitions of its time, and its reply
/// remains valid. Starts nothing.
pub(super) async fn replay_stored_reply<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    instance_id: InstanceId,
    idempotency: Option<RequestIdempotency>,
    wait: Option<StdDuration>,
) -> Result<Option<Response>, ApiError> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let started = match app
        .request(ShardRequest::GetStoredReply { instance_id: instance_id.clone(), idempotency })
        .await?
    {
        ShardReply::Refused(RequestError::NotFound { .. }) => return Ok(None),
        reply => expect_started(reply)?,
    };
    let Some(wait) = wait else { return accepted_response(app, request, &started).map(Some) };
    let end =
        app.node().request(ShardRequest::AwaitEnd { instance_id, run_number: Some(started.run_number) });
    wait_for_end(app, request, &started, wait, end).await.map(Some)
}

/// The response with the run if it ends in time and before the server stops; otherwise the response of a started run.
async fn wait_for_end<S: Store, E>(
    app: &App<S>,
    request: &mut ApiRequest,
    started: &StartedRun,
    wait: StdDuration,
    end: impl Future<Output = Result<ShardReply, E>>,
) -> Result<Response, ApiError> {
    let ended = tokio::select! {
        biased;
        ended = tokio::time::timeout(wait, end) => ended.ok(),
        () = app.wait_for_stop() => None,
    };
    match ended {
        Some(Ok(ShardReply::Ended(view))) => {
            let mut instance = InstanceJson::of(&view);
            instance.idempotency_key_expires_at_utc = started.idempotent_until.map(Text);
            Ok(request.data_response(StatusCode::OK, app.now(), &instance))
        }
        // The run continues, or its state is unknown here: it is started, and the client can query it.
        _ => accepted_response(app, request, started),
    }
}

/// The plan for a new run: resolves the version of the definition and checks the input against it. Starts of both APIs
/// call it before they ask the shard, which checks neither.
pub(crate) async fn resolve_plan<S: Store>(
    app: &App<S>,
    workflow: &str,
    version: Option<&VersionReq>,
    input: &Value,
) -> Result<Arc<Plan>, ApiError> {
    let found = app.with_timeout(app.node().definitions().resolve(workflow, version)).await?;
    let plan = found.map_err(|error| ApiError::from(error).with_target("/workflow"))?;
    let bytes = json::size(input);
    let limit = app.limits().payload_bytes_max;
    if bytes > limit {
        let message = format!("the input has {bytes} bytes; the limit is {limit}");
        return Err(ApiError::rejected(StatusCode::PAYLOAD_TOO_LARGE, message).with_target("/input"));
    }
    plan.check_input(input).map_err(|mismatches| ApiError::schema_mismatch("/input", mismatches))?;
    Ok(plan)
}

/// The response for a started run, with its location.
pub(super) fn accepted_response<S: Store>(
    app: &App<S>,
    request: &ApiRequest,
    started: &StartedRun,
) -> Result<Response, ApiError> {
    let id = &started.instance_id;
    let data = StartedJson {
        instance_id: id.as_str(),
        execution_id: Text(ExecutionId { instance: id.clone(), run: started.run_number }),
        created_at_utc: Text(started.created_at),
        idempotency_key_expires_at_utc: started.idempotent_until.map(Text),
    };
    let mut response = request.data_response(StatusCode::ACCEPTED, app.now(), &data);
    let location = HeaderValue::try_from(format!("/api/instances/{id}"));
    let location = location.map_err(|error| ApiError::internal(&error))?;
    response.headers_mut().insert(LOCATION, location);
    Ok(response)
}

/// The started run, or the error of the reply to a start, a restart or a query for the stored reply of one.
pub(crate) fn expect_started(reply: ShardReply) -> Result<StartedRun, ApiError> {
    match reply {
        ShardReply::Started(started) => Ok(started),
        ShardReply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("unexpected reply to a start: {other:?}"))),
    }
}

fn parse_wait(request: &ApiRequest) -> Result<Option<StdDuration>, ApiError> {
    let [wait] = request.checked_query(&QUERY)?;
    let Some(wait) = wait else { return Ok(None) };
    match Duration::parse(&wait) {
        Ok(wait) if wait <= WAIT_MAX => Ok(Some(StdDuration::from_millis(wait.0))),
        Ok(_) => Err(ApiError::invalid("wait", format!("the longest wait is {WAIT_MAX}"))),
        Err(error) => Err(ApiError::invalid("wait", error.to_string())),
    }
}

fn parse_version_range(text: Option<&str>) -> Result<Option<VersionReq>, ApiError> {
    let range = text.map(VersionReq::parse).transpose();
    range.map_err(|error| ApiError::invalid("/version", format!("invalid version range: {error}")))
}

/// Checks an instance id chosen by the client of either API for a new instance.
pub(crate) fn client_instance_id(given: impl Into<String>) -> Result<InstanceId, String> {
    let given = given.into();
    // The path of this id is another route.
    if given == purge::RESERVED_INSTANCE_ID {
        return Err("this instance id is reserved".to_owned());
    }
    InstanceId::new(given).map_err(|error| error.to_string())
}

/// The client's instance id, else the id derived from its idempotency key, else a new one.
fn resolve_instance_id(
    given: Option<String>,
    key: Option<&ClientIdempotencyKey<'_>>,
    workflow: &str,
    request: &ApiRequest,
) -> Result<InstanceId, ApiError> {
    let invalid = |error: InvalidInstanceId| ApiError::invalid("/instanceId", error.to_string());
    match (given, key) {
        (Some(given), _) => {
            client_instance_id(given).map_err(|error| ApiError::invalid("/instanceId", error))
        }
        (None, Some(key)) => key.instance_id(workflow),
        // A correlation id generated for this request is unique, so it also serves as the instance id.
        (None, None) if !request.correlation().is_from_caller() => {
            InstanceId::new(request.correlation().as_str()).map_err(invalid)
        }
        (None, None) => InstanceId::new(Uuid::now_v7().to_string()).map_err(invalid),
    }
}

/// The correlation id of a run: that of the body, else the client's of the request, else the instance id. It is checked
/// because it will be sent in headers.
fn resolve_correlation_id(
    given: Option<String>,
    request: &ApiRequest,
    id: &InstanceId,
) -> Result<String, ApiError> {
    match given {
        Some(given) if correlation::is_valid(given.as_bytes()) => Ok(given),
        Some(_) => {
            let message = format!("must have 1 to {} visible ASCII characters", correlation::CHARS_MAX);
            Err(ApiError::invalid("/correlationId", message))
        }
        None if request.correlation().is_from_caller() => Ok(request.correlation().as_str().to_owned()),
        None => Ok(id.as_str().to_owned()),
    }
}
