//! `/entities`: an entity's state, signals to it, and which there are.
//!
//! A signal is done when it is answered, not some time later: what the entity refuses is told.

use std::sync::Arc;

use abide_runtime::Refused;
use abide_runtime::entity::{
    self, EntityId, EntityReadError, EntityView, InvalidEntityId, ListedEntity, OperationError,
};
use abide_runtime::hands::Store;
use abide_workflow::Timestamp;
use axum::http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::{self, Answered, Otherwise, bare};
use super::list::CONTINUATION;
use super::parameters::Parameters;
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::rest::entities::{ask, walk};

/// Entities in a page.
const PAGE_MAX: usize = 100;
/// Bytes of states after which a page is full.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entities read at once, and in all for one page, however few fit.
const BATCH: usize = 8;
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

/// What an entity shows that has no state of its own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventsJson {
    event_count: u64,
    first_position: u64,
    next_position: u64,
}

/// Shows an entity's state.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked, name: &str, key: &str) -> Answered {
    let entity = EntityId::new(name, key)?;
    let view = match app.node().entities_with(&entity) {
        Some(reader) => reader.view(&entity).await?,
        None => None,
    };
    let view = view.ok_or(Otherwise::Bare(StatusCode::NOT_FOUND))?;
    Ok(answer::json(StatusCode::OK, asked.correlation(), &state_of(&view)?))
}

/// Asks an entity to do something. The body is the operation's input.
pub(super) async fn signal<S: Store>(
    app: &App<S>,
    asked: &mut Asked,
    name: &str,
    key: &str,
    operation: &str,
) -> Answered {
    let entity = EntityId::new(name, key)?;
    let input = if asked.has_body() { asked.json(app.limits().body_bytes_max).await? } else { None };
    let wanted = entity::Asked::of(operation, Arc::new(input.unwrap_or_default()));
    let entity::Asked::Operation(operation) = wanted? else {
        // What only reads has nothing to leave behind.
        return Ok(bare(StatusCode::ACCEPTED, asked.correlation()));
    };
    ask(app, entity, operation, None).await?;
    Ok(bare(StatusCode::ACCEPTED, asked.correlation()))
}

/// Shows a page of the entities there are: of one type, or of all.
pub(super) async fn page<S: Store>(app: &App<S>, asked: &mut Asked, name: Option<&str>) -> Answered {
    let parameters = Parameters::of(asked);
    let kind = name.map(str::to_ascii_lowercase);
    let from = parameters.moment("lastOperationTimeFrom")?;
    let to = parameters.moment("lastOperationTimeTo")?;
    let fetch_state = parameters.flag("fetchState", false)?;
    let top = parameters.count("top")?.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let token =
        asked.headers().get(CONTINUATION).map(HeaderValue::as_bytes).filter(|token| !token.is_empty());
    let after = token.map(|token| walk::open(token, kind.as_deref())).transpose();
    let mut after = after.map_err(|error| Otherwise::invalid(CONTINUATION.as_str(), error.in_words()))?;
    let (mut items, mut bytes, mut examined) = (Vec::new(), 0, 0);
    let mut more = true;
    while more && items.len() < top && bytes < PAGE_BYTES_MAX && examined < EXAMINED_MAX {
        let most = BATCH.min(top - items.len());
        let found = walk::next(app, kind.as_deref(), after.as_ref(), most).await?;
        more = found.len() == most;
        after = found.last().map(|last| last.entity.clone()).or(after);
        for ListedEntity { entity, view } in found {
            examined += 1;
            let at = view.updated_at;
            if from.is_some_and(|from| at < from) || to.is_some_and(|to| at > to) {
                continue;
            }
            let state = if fetch_state { Some(state_of(&view)?) } else { None };
            bytes += state.as_ref().map_or(0, |state| state.get().len());
            let entity_id = EntityIdJson { name: entity.kind().to_owned(), key: entity.key().to_owned() };
            items.push(EntityJson { entity_id, last_operation_time: Text(at), state });
        }
    }
    let mut response = answer::json(StatusCode::OK, asked.correlation(), &items);
    if let Some(last) = after.filter(|_| more) {
        let token = HeaderValue::try_from(walk::seal(&last)).map_err(|error| ApiError::internal(&error))?;
        response.headers_mut().insert(CONTINUATION, token);
    }
    Ok(response)
}

/// Its own state, or what is known of its events.
fn state_of(view: &EntityView) -> Result<Box<RawValue>, Otherwise> {
    let state = match &view.state {
        Some(state) => RawValue::from_string(state.clone()),
        None => serde_json::value::to_raw_value(&EventsJson {
            event_count: view.event_count,
            first_position: view.first_position,
            next_position: view.next_position,
        }),
    };
    state.map_err(|error| ApiError::internal(&error).into())
}

impl From<InvalidEntityId> for Otherwise {
    fn from(error: InvalidEntityId) -> Self {
        Self::Failed(ApiError::invalid("", error.to_string()))
    }
}

impl From<OperationError> for Otherwise {
    fn from(error: OperationError) -> Self {
        Refused::Operation(error).into()
    }
}

impl From<EntityReadError> for Otherwise {
    fn from(error: EntityReadError) -> Self {
        Self::Failed(error.into())
    }
}
