//! `/entities`: shows the state of an entity, signals entities and lists them.
//!
//! A signal is executed by the entity's shard before the response, not some time later, so the client learns when the
//! entity rejects it. Everything else reads stored rows and asks no shard.

use std::sync::Arc;

use abide_runtime::RequestError;
use abide_runtime::entity::{
    self, EntityId, EntityReadError, EntityView, InvalidEntityId, ListedEntity, OperationError,
};
use abide_store::Store;
use abide_workflow::Timestamp;
use axum::http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;

use super::list::CONTINUATION_HEADER;
use super::query_parameters::QueryParameters;
use super::response::{self, DurableError, DurableResult, status_only};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::response::Text;
use crate::rest::entities::{operate_entity, query};

/// Entities per page.
const PAGE_MAX: usize = 100;
/// A page is full when the states in it reach this size.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entities read at once, and in total for one page, however few match.
const BATCH_SIZE: usize = 8;
const EXAMINED_MAX: usize = 1_000;

/// An entity in a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EntityJson {
    entity_id: EntityIdJson,
    last_operation_time: Text<Timestamp>,
    state: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct EntityIdJson {
    name: String,
    key: String,
}

/// Shown for an entity that has no state of its own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventSummaryJson {
    event_count: u64,
    first_position: u64,
    next_position: u64,
}

pub(super) async fn show<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    name: &str,
    key: &str,
) -> DurableResult {
    let entity = EntityId::new(name, key)?;
    let view = match app.node().entity_reader_for(&entity) {
        Some(reader) => reader.view(&entity).await?,
        None => None,
    };
    let view = view.ok_or(DurableError::StatusOnly(StatusCode::NOT_FOUND))?;
    Ok(response::json(StatusCode::OK, request.correlation(), &state_json(&view)?))
}

/// Runs an operation on an entity; `DELETE` is the operation `delete`. The body is the operation's input. These clients
/// send no idempotency key, so a repeated signal takes effect again.
pub(super) async fn signal<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    name: &str,
    key: &str,
    operation: &str,
) -> DurableResult {
    let entity = EntityId::new(name, key)?;
    let input = if request.has_body() { request.json_body(app.limits().body_bytes_max).await? } else { None };
    let parsed = entity::ParsedOperation::parse(operation, Arc::new(input.unwrap_or_default()));
    let entity::ParsedOperation::Change(operation) = parsed? else {
        // An operation that only reads has no effect as a signal.
        return Ok(status_only(StatusCode::ACCEPTED, request.correlation()));
    };
    operate_entity(app, entity, operation, None).await?;
    Ok(status_only(StatusCode::ACCEPTED, request.correlation()))
}

/// Shows a page of the entities of one type, or of all types. The time filter is applied to what was read, so a page
/// with a token may be short or empty.
pub(super) async fn page<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
    name: Option<&str>,
) -> DurableResult {
    let parameters = QueryParameters::from_request(request);
    let entity_type = name.map(str::to_ascii_lowercase);
    let from = parameters.timestamp("lastOperationTimeFrom")?;
    let to = parameters.timestamp("lastOperationTimeTo")?;
    let fetch_state = parameters.flag("fetchState", false)?;
    let top = parameters.count("top")?.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let token = request
        .headers()
        .get(CONTINUATION_HEADER)
        .map(HeaderValue::as_bytes)
        .filter(|token| !token.is_empty());
    let after = token.map(|token| query::decode_cursor(token, entity_type.as_deref())).transpose();
    let mut after =
        after.map_err(|error| DurableError::invalid(CONTINUATION_HEADER.as_str(), error.full_message()))?;
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut examined = 0;
    let mut more = true;
    while more && items.len() < top && bytes < PAGE_BYTES_MAX && examined < EXAMINED_MAX {
        let limit = BATCH_SIZE.min(top - items.len());
        let found = query::next_entities(app, entity_type.as_deref(), after.as_ref(), limit).await?;
        more = found.len() == limit;
        after = found.last().map(|last| last.entity.clone()).or(after);
        for ListedEntity { entity, view } in found {
            examined += 1;
            let at = view.updated_at;
            if from.is_some_and(|from| at < from) || to.is_some_and(|to| at > to) {
                continue;
            }
            let state = if fetch_state { Some(state_json(&view)?) } else { None };
            bytes += state.as_ref().map_or(0, |state| state.get().len());
            let entity_id =
                EntityIdJson { name: entity.entity_type().to_owned(), key: entity.key().to_owned() };
            items.push(EntityJson { entity_id, last_operation_time: Text(at), state });
        }
    }
    let mut response = response::json(StatusCode::OK, request.correlation(), &items);
    if let Some(last) = after.filter(|_| more) {
        let token =
            HeaderValue::try_from(query::encode_cursor(&last)).map_err(|error| ApiError::internal(&error))?;
        response.headers_mut().insert(CONTINUATION_HEADER, token);
    }
    Ok(response)
}

/// The entity's own state, or the summary of its events.
fn state_json(view: &EntityView) -> Result<Box<RawValue>, DurableError> {
    let state = match &view.state {
        Some(state) => RawValue::from_string(state.clone()),
        None => serde_json::value::to_raw_value(&EventSummaryJson {
            event_count: view.event_count,
            first_position: view.first_position,
            next_position: view.next_position,
        }),
    };
    state.map_err(|error| ApiError::internal(&error).into())
}

impl From<InvalidEntityId> for DurableError {
    fn from(error: InvalidEntityId) -> Self {
        Self::Api(ApiError::invalid("", error.to_string()))
    }
}

impl From<OperationError> for DurableError {
    fn from(error: OperationError) -> Self {
        RequestError::Operation(error).into()
    }
}

impl From<EntityReadError> for DurableError {
    fn from(error: EntityReadError) -> Self {
        Self::Api(error.into())
    }
}
