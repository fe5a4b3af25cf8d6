//! `/api/entities`: shows entities and their events, and runs operations on them. The operations themselves are in the
//! runtime. Only operations that change an entity go to its shard; everything else reads stored rows.

mod list;
pub(crate) mod query;

use abide_runtime::entity::{
    EntityId, EntityOperation, EntityReader, EntityView, OperationReply, OperationRequest, ParsedOperation,
    RecordedEvent,
};
use abide_runtime::{RequestIdempotency, ShardReply, ShardRequest};
use abide_store::Store;
use abide_store::tables::idempotency::SCOPE_ENTITY_OPERATION;
use abide_workflow::{Timestamp, json};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::idempotency::{self, ClientIdempotencyKey};
use super::page::{LIMIT, PageJson, TOKEN, invalid_token};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{BodyShape, BodySpec, Field, FieldKind, JSON, OperationSpec, ResponseSpec};
use crate::response::Text;

pub(super) use list::{LIST, list};

pub(super) const TYPE: Field = Field::required(
    "type",
    FieldKind::Pattern { pattern: "^[A-Za-z0-9._-]{1,100}$", chars_max: EntityId::TYPE_BYTES_MAX },
    "The entity's type, case-insensitive.",
);
const KEY: Field = Field::required(
    "key",
    FieldKind::Text { chars_min: 1, chars_max: EntityId::KEY_CHARS_MAX },
    "The entity's key.",
);
const OPERATION: Field = Field::required(
    "operation",
    FieldKind::Text { chars_min: 1, chars_max: 128 },
    "RecordEvent, GetEvents, Clear, GetState, or an operation of the entity's kind.",
);
const FROM: Field = Field::optional(
    "from",
    FieldKind::Integer { min: 0, max: u64::MAX, default: Some(0) },
    "The first position.",
);
const EVENTS_QUERY: [Field; 3] = [FROM, LIMIT, TOKEN];

pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showEntity",
    tag: "Entities",
    about: "Shows an entity that has had at least one operation.",
    path: &[TYPE, KEY],
    responses: &[ResponseSpec::enveloped::<EntityJson<'static>>(200, "The entity.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

pub(super) const EVENTS: OperationSpec = OperationSpec {
    id: "listEntityEvents",
    tag: "Entities",
    about: "Lists the events of an entity that are not cleared, in the order of recording.",
    path: &[TYPE, KEY],
    query: &EVENTS_QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<EntityEventJson>>(200, "A page of events.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

pub(super) const OPERATE: OperationSpec = OperationSpec {
    id: "operateEntity",
    tag: "Entities",
    about: "Runs an operation on an entity. With an Idempotency-Key it takes effect only once.",
    path: &[TYPE, KEY, OPERATION],
    headers: &[idempotency::IDEMPOTENCY_KEY],
    body: Some(BodySpec {
        required: false,
        about: "The operation's input.",
        content: &[(JSON, BodyShape::Any)],
    }),
    responses: &[ResponseSpec::enveloped::<OperationResultJson>(200, "The operation is done and durable.")],
    error_statuses: &[404, 409],
    ..OperationSpec::EMPTY
};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entity")]
#[serde(rename_all = "camelCase")]
struct EntityJson<'a> {
    entity_type: &'a str,
    entity_key: &'a str,
    /// The state, if the entity's kind has one.
    state: Option<Value>,
    event_count: u64,
    first_position: u64,
    next_position: u64,
    operations: u64,
    last_updated_at_utc: Text<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EntityEvent")]
#[serde(rename_all = "camelCase")]
struct EntityEventJson {
    position: u64,
    recorded_at_utc: Text<Timestamp>,
    #[schemars(with = "Value")]
    event: Box<RawValue>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Operated")]
#[serde(rename_all = "camelCase")]
struct OperationResultJson {
    output: Value,
    /// When the operation was done; absent for operations that only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    done_at_utc: Option<Text<Timestamp>>,
    /// Until when a repeated request is recognised, if the request had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let entity = entity_from_path(request).await?;
    let [] = request.raw_query([])?;
    let (_, view) = load_view(app, &entity).await?;
    Ok(request.data_response(StatusCode::OK, app.now(), &entity_json(&entity, &view)))
}

pub(super) async fn events<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let entity = entity_from_path(request).await?;
    let [from, limit, token] = request.checked_query(&EVENTS_QUERY)?;
    let from = match token {
        Some(_) if from.is_some() => {
            return Err(ApiError::invalid("from", "cannot be combined with a continuation token"));
        }
        Some(token) => token.parse().map_err(|_| invalid_token())?,
        None => FROM.parse_integer(from.as_deref())?,
    };
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let page = events_page(app, &entity, from, limit).await?;
    Ok(request.data_response(StatusCode::OK, app.now(), &page))
}

/// Runs an operation. One that only reads is done here, from stored rows, and ignores the idempotency key.
pub(super) async fn operate<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let entity = entity_from_path(request).await?;
    let [] = request.raw_query([])?;
    let name = request.checked_path_param(&OPERATION).await?;
    let body = request.json_body(app.limits().body_bytes_max).await?;
    let key = ClientIdempotencyKey::from_request(request.headers(), body.as_ref())?;
    let input = body.unwrap_or(Value::Null);
    let bytes = json::size(&input);
    let limit = app.limits().payload_bytes_max;
    if bytes > limit {
        let message = format!("the input has {bytes} bytes; the limit is {limit}");
        return Err(ApiError::rejected(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let operation = ParsedOperation::parse(&name, input.into());
    let operation = operation.map_err(|error| ApiError::invalid("", error.to_string()))?;
    match operation {
        ParsedOperation::GetState => {
            let (_, view) = load_view(app, &entity).await?;
            let output = serde_json::to_value(entity_json(&entity, &view));
            operation_response(app, request, output.map_err(|error| ApiError::internal(&error))?, None)
        }
        ParsedOperation::GetEvents { from, limit } => {
            let limit = limit.map(|limit| limit.to_string());
            let limit = LIMIT.parse_count(limit.as_deref()).map_err(|error| error.with_target("/limit"))?;
            let output = serde_json::to_value(events_page(app, &entity, from, limit).await?);
            operation_response(app, request, output.map_err(|error| ApiError::internal(&error))?, None)
        }
        ParsedOperation::Change(operation) => {
            let idempotency = key.map(|key| key.for_operation(&name, &entity.to_string()));
            let operated = operate_entity(app, entity, operation, idempotency).await?;
            let output =
                serde_json::from_str(&operated.output).map_err(|error| ApiError::internal(&error))?;
            operation_response(app, request, output, Some(&operated))
        }
    }
}

fn operation_response<S: Store>(
    app: &App<S>,
    request: &ApiRequest,
    output: Value,
    operated: Option<&OperationReply>,
) -> Result<Response, ApiError> {
    let result = OperationResultJson {
        output,
        done_at_utc: operated.map(|operated| Text(operated.done_at)),
        idempotency_key_expires_at_utc: operated.and_then(|operated| operated.idempotent_until).map(Text),
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &result))
}

/// Sends an operation that changes the entity to its shard and waits for the reply, which comes when the operation is
/// durable. Signals of Durable Functions use it too.
pub(crate) async fn operate_entity<S: Store>(
    app: &App<S>,
    entity: EntityId,
    operation: EntityOperation,
    idempotency: Option<RequestIdempotency>,
) -> Result<OperationReply, ApiError> {
    let operate = OperationRequest {
        entity,
        operation,
        idempotency,
        idempotency_scope: SCOPE_ENTITY_OPERATION,
        session_event: None,
    };
    match app.request(ShardRequest::Operate(Box::new(operate))).await? {
        ShardReply::Operated(operated) => Ok(*operated),
        ShardReply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("unexpected reply to an operation: {other:?}"))),
    }
}

async fn entity_from_path(request: &mut ApiRequest) -> Result<EntityId, ApiError> {
    let entity_type = request.path_param(TYPE.name).await?;
    let key = request.checked_path_param(&KEY).await?;
    EntityId::new(&entity_type, key).map_err(|error| ApiError::invalid("entityId", error.to_string()))
}

/// The stored entity, and a reader for its events; not found if it has never had an operation.
async fn load_view<'a, S: Store>(
    app: &'a App<S>,
    entity: &EntityId,
) -> Result<(EntityReader<'a, S>, EntityView), ApiError> {
    let none = || ApiError::not_found(format!("entity {entity} not found: it has never had an operation"));
    let reader = app.node().entity_reader_for(entity).ok_or_else(none)?;
    let view = reader.view(entity).await?.ok_or_else(none)?;
    Ok((reader, view))
}

async fn events_page<S: Store>(
    app: &App<S>,
    entity: &EntityId,
    from: u64,
    limit: usize,
) -> Result<PageJson<EntityEventJson>, ApiError> {
    let (reader, view) = load_view(app, entity).await?;
    let found = reader.events(&view, from, limit).await?;
    let json = |event: RecordedEvent| EntityEventJson {
        position: event.position,
        recorded_at_utc: Text(event.recorded_at),
        event: event.event,
    };
    let items = found.events.into_iter().map(json).collect();
    Ok(PageJson { items, continuation_token: found.next.map(|next| next.to_string()) })
}

fn entity_json<'a>(entity: &'a EntityId, view: &EntityView) -> EntityJson<'a> {
    EntityJson {
        entity_type: entity.entity_type(),
        entity_key: entity.key(),
        state: view.state.as_deref().and_then(|state| serde_json::from_str(state).ok()),
        event_count: view.event_count,
        first_position: view.first_position,
        next_position: view.next_position,
        operations: view.operations,
        last_updated_at_utc: Text(view.updated_at),
    }
}
