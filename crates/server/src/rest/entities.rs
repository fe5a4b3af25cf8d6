//! `/api/entities`: keyed durable objects, their events and their operations.

mod list;
pub(crate) mod walk;

use abide_runtime::entity::{
    Asked as AskedOperation, EntityId, EntityReader, EntityView, Operate, Operated, Operation, RecordedEvent,
};
use abide_runtime::hands::Store;
use abide_runtime::{Repeat, Reply, Request};
use abide_store::tables::dedupe::ENTITY_OPERATION;
use abide_workflow::{Timestamp, json};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::page::{LIMIT, PageJson, TOKEN, not_a_token};
use super::repeat::{self, RepeatKey};
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Body, Field, JSON, Kind, Operation as Described, Shape};

pub(super) use list::{LIST, list};

pub(super) const TYPE: Field = Field::required(
    "type",
    Kind::Pattern { pattern: "^[A-Za-z0-9._-]{1,100}$", chars_max: EntityId::KIND_BYTES_MAX },
    "The entity's type, without regard to case.",
);
const KEY: Field = Field::required(
    "key",
    Kind::Text { chars_min: 1, chars_max: EntityId::KEY_CHARS_MAX },
    "The entity's key.",
);
const OPERATION: Field = Field::required(
    "operation",
    Kind::Text { chars_min: 1, chars_max: 128 },
    "RecordEvent, GetEvents, Clear, GetState, or one of the entity's kind.",
);
const FROM: Field =
    Field::optional("from", Kind::Whole { min: 0, max: u64::MAX, default: Some(0) }, "The first position.");
const EVENTS_QUERY: [Field; 3] = [FROM, LIMIT, TOKEN];

pub(super) const SHOW: Described = Described {
    id: "showEntity",
    tag: "Entities",
    about: "Shows an entity that has taken an operation.",
    path: &[TYPE, KEY],
    answers: &[Answer::data::<EntityJson<'static>>(200, "The entity.")],
    refuses: &[404],
    ..Described::NONE
};

pub(super) const EVENTS: Described = Described {
    id: "listEntityEvents",
    tag: "Entities",
    about: "Lists the events of an entity that are not cleared, in the order they were recorded.",
    path: &[TYPE, KEY],
    query: &EVENTS_QUERY,
    answers: &[Answer::data::<PageJson<EventJson>>(200, "A page of events.")],
    refuses: &[404],
    ..Described::NONE
};

pub(super) const OPERATE: Described = Described {
    id: "operateEntity",
    tag: "Entities",
    about: "Does an operation; with an Idempotency-Key it has its effect once.",
    path: &[TYPE, KEY, OPERATION],
    headers: &[repeat::KEY],
    body: Some(Body { required: false, about: "The operation's input.", kinds: &[(JSON, Shape::Any)] }),
    answers: &[Answer::data::<OperatedJson>(200, "It is done, and durable.")],
    refuses: &[404, 409],
    ..Described::NONE
};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Entity")]
#[serde(rename_all = "camelCase")]
struct EntityJson<'a> {
    entity_type: &'a str,
    entity_key: &'a str,
    /// The state of its kind, if that has one.
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
struct EventJson {
    position: u64,
    recorded_at_utc: Text<Timestamp>,
    #[schemars(with = "Value")]
    event: Box<RawValue>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Operated")]
#[serde(rename_all = "camelCase")]
struct OperatedJson {
    output: Value,
    /// When it was done, if it may have changed something.
    #[serde(skip_serializing_if = "Option::is_none")]
    done_at_utc: Option<Text<Timestamp>>,
    /// Until when it is recognised when it comes again, if it had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

/// Shows an entity.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let entity = entity_of(asked).await?;
    let [] = asked.query([])?;
    let (_, view) = view_of(app, &entity).await?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &entity_json(&entity, &view)))
}

/// A page of an entity's events.
pub(super) async fn events<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let entity = entity_of(asked).await?;
    let [from, limit, token] = asked.parameters(&EVENTS_QUERY)?;
    let from = match token {
        Some(_) if from.is_some() => {
            return Err(ApiError::invalid("from", "a continuation token says it already"));
        }
        Some(token) => token.parse().map_err(|_| not_a_token())?,
        None => FROM.whole(from.as_deref())?,
    };
    let limit = LIMIT.count(limit.as_deref())?;
    let page = events_page(app, &entity, from, limit).await?;
    Ok(asked.succeed(StatusCode::OK, app.now(), &page))
}

/// One operation.
pub(super) async fn operate<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let entity = entity_of(asked).await?;
    let [] = asked.query([])?;
    let name = asked.part(&OPERATION).await?;
    let body = asked.json(app.limits().body_bytes_max).await?;
    let key = RepeatKey::of(asked.headers(), body.as_ref())?;
    let input = body.unwrap_or(Value::Null);
    let (bytes, limit) = (json::size(&input), app.limits().payload_bytes_max);
    if bytes > limit {
        let message = format!("the input has {bytes} bytes; the limit is {limit}");
        return Err(ApiError::refused(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let operation = AskedOperation::of(&name, input.into());
    let operation = operation.map_err(|error| ApiError::invalid("", error.to_string()))?;
    match operation {
        AskedOperation::GetState => {
            let (_, view) = view_of(app, &entity).await?;
            let output = serde_json::to_value(entity_json(&entity, &view));
            answer(app, asked, output.map_err(|error| ApiError::internal(&error))?, None)
        }
        AskedOperation::GetEvents { from, limit } => {
            let limit = limit.map(|limit| limit.to_string());
            let limit = LIMIT.count(limit.as_deref()).map_err(|error| error.at("/limit"))?;
            let output = serde_json::to_value(events_page(app, &entity, from, limit).await?);
            answer(app, asked, output.map_err(|error| ApiError::internal(&error))?, None)
        }
        AskedOperation::Operation(operation) => {
            let repeat = key.map(|key| key.of_operation(&name, &entity.to_string()));
            let operated = ask(app, entity, operation, repeat).await?;
            let output =
                serde_json::from_str(&operated.output).map_err(|error| ApiError::internal(&error))?;
            answer(app, asked, output, Some(&operated))
        }
    }
}

fn answer<S: Store>(
    app: &App<S>,
    asked: &Asked,
    output: Value,
    operated: Option<&Operated>,
) -> Result<Response, ApiError> {
    let answer = OperatedJson {
        output,
        done_at_utc: operated.map(|operated| Text(operated.done_at)),
        idempotency_key_expires_at_utc: operated.and_then(|operated| operated.repeats_until).map(Text),
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &answer))
}

/// Asks the entity's shard.
pub(crate) async fn ask<S: Store>(
    app: &App<S>,
    entity: EntityId,
    operation: Operation,
    repeat: Option<Repeat>,
) -> Result<Operated, ApiError> {
    let operate = Operate { entity, operation, repeat, scope: ENTITY_OPERATION, route: None };
    match app.ask(Request::Operate(Box::new(operate))).await? {
        Reply::Operated(operated) => Ok(*operated),
        Reply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("an operation was answered by {other:?}"))),
    }
}

async fn entity_of(asked: &mut Asked) -> Result<EntityId, ApiError> {
    let (kind, key) = (asked.param(TYPE.name).await?, asked.part(&KEY).await?);
    EntityId::new(&kind, key).map_err(|error| ApiError::invalid("entityId", error.to_string()))
}

async fn view_of<'a, S: Store>(
    app: &'a App<S>,
    entity: &EntityId,
) -> Result<(EntityReader<'a, S>, EntityView), ApiError> {
    let none = || ApiError::not_found(format!("entity {entity} has never taken an operation"));
    let reader = app.node().entities_with(entity).ok_or_else(none)?;
    let view = reader.view(entity).await?.ok_or_else(none)?;
    Ok((reader, view))
}

async fn events_page<S: Store>(
    app: &App<S>,
    entity: &EntityId,
    from: u64,
    limit: usize,
) -> Result<PageJson<EventJson>, ApiError> {
    let (reader, view) = view_of(app, entity).await?;
    let found = reader.events(&view, from, limit).await?;
    let json = |event: RecordedEvent| EventJson {
        position: event.position,
        recorded_at_utc: Text(event.recorded_at),
        event: event.event,
    };
    let items = found.events.into_iter().map(json).collect();
    Ok(PageJson { items, continuation_token: found.next.map(|next| next.to_string()) })
}

fn entity_json<'a>(entity: &'a EntityId, view: &EntityView) -> EntityJson<'a> {
    EntityJson {
        entity_type: entity.kind(),
        entity_key: entity.key(),
        state: view.state.as_deref().and_then(|state| serde_json::from_str(state).ok()),
        event_count: view.event_count,
        first_position: view.first_position,
        next_position: view.next_position,
        operations: view.operations,
        last_updated_at_utc: Text(view.updated_at),
    }
}
