//! `/entities`: an entity's state, signals to it, and which there are.
//!
//! A signal is done when it is answered, not some time later: what the entity refuses is told.

use std::sync::Arc;

use abide_runtime::entity::{
    self, EntityId, EntityReadError, EntityView, InvalidEntityId, ListedEntity, Operate, OperationError,
};
use abide_runtime::hands::Store;
use abide_runtime::{Refused, Reply, Request};
use abide_store::tables::dedupe::ENTITY_OPERATION;
use abide_workflow::Timestamp;
use axum::http::{HeaderValue, StatusCode};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::{self, Answered, Otherwise, bare};
use super::list::CONTINUATION;
use super::parameters::Parameters;
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;

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
    let operate = Operate { entity, operation, repeat: None, scope: ENTITY_OPERATION, route: None };
    match app.ask(Request::Operate(Box::new(operate))).await? {
        Reply::Operated(_) => Ok(bare(StatusCode::ACCEPTED, asked.correlation())),
        Reply::Refused(refused) => Err(refused.into()),
        other => Err(ApiError::internal(&format!("an operation was answered by {other:?}")).into()),
    }
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
    let mut place = token.map_or(Ok(Place::default()), Place::open)?;
    if let (Some(kind), Some(after)) = (&kind, &place.after)
        && kind != after.kind()
    {
        return Err(Otherwise::invalid(CONTINUATION.as_str(), "it belongs to a list of another type"));
    }
    let (mut items, mut bytes, mut examined) = (Vec::new(), 0, 0);
    let mut more = true;
    while more && items.len() < top && bytes < PAGE_BYTES_MAX && examined < EXAMINED_MAX {
        let most = BATCH.min(top - items.len());
        let found = place.advance(app, kind.as_deref(), most).await?;
        more = found.is_some();
        for ListedEntity { entity, view } in found.unwrap_or_default() {
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
    if more {
        let token = HeaderValue::try_from(place.seal()).map_err(|error| ApiError::internal(&error))?;
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

/// Where a list goes on: in which shard, after which entity.
#[derive(Clone, PartialEq, Debug, Default)]
struct Place {
    shard: usize,
    after: Option<EntityId>,
}

impl Place {
    /// The next entities, at most so many; none when there are no more.
    async fn advance<S: Store>(
        &mut self,
        app: &App<S>,
        kind: Option<&str>,
        most: usize,
    ) -> Result<Option<Vec<ListedEntity>>, Otherwise> {
        while let Some(shard) = app.node().shards().nth(self.shard) {
            let found = match app.node().entities_of(shard) {
                Some(reader) => reader.list(kind, self.after.as_ref(), most).await?,
                None => Vec::new(),
            };
            if let Some(last) = found.last() {
                self.after = Some(last.entity.clone());
                return Ok(Some(found));
            }
            *self = Self { shard: self.shard + 1, after: None };
        }
        Ok(None)
    }

    /// As a token. It is nobody's secret: whoever may list entities may list all of them.
    fn seal(&self) -> String {
        let after = self.after.as_ref().map(|entity| format!("\n{}\n{}", entity.kind(), entity.key()));
        BASE64_URL_SAFE_NO_PAD.encode(format!("{}{}", self.shard, after.unwrap_or_default()))
    }

    fn open(token: &[u8]) -> Result<Self, Otherwise> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        let text = String::from_utf8(bytes).unwrap_or_default();
        // Neither a type nor a key has a line break.
        let mut lines = text.splitn(3, '\n');
        let shard = lines.next().and_then(|shard| shard.parse().ok());
        let after = match (lines.next(), lines.next()) {
            (None, _) => Some(None),
            (Some(kind), Some(key)) => EntityId::new(kind, key).ok().map(Some),
            (Some(_), None) => None,
        };
        let place = shard.zip(after).map(|(shard, after)| Self { shard, after });
        place.ok_or_else(|| Otherwise::invalid(CONTINUATION.as_str(), "it is not a token of this server"))
    }
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
        match error {
            EntityReadError::Store(error) => ApiError::from(error).into(),
            EntityReadError::Damaged(_) => ApiError::internal(&error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_place_and_anything_else_is_refused() {
        let entity = EntityId::new("device", "a/b ä").unwrap();
        for place in [Place::default(), Place { shard: 7, after: Some(entity) }] {
            assert_eq!(Place::open(place.seal().as_bytes()).unwrap(), place);
        }
        for text in ["", "x", "1\n", "1\ndevice", "1\na b\nkey", "-1"] {
            assert!(Place::open(BASE64_URL_SAFE_NO_PAD.encode(text).as_bytes()).is_err(), "{text:?}");
        }
        assert!(Place::open(b"???").is_err());
    }
}
