//! `GET /api/entities`: which entities there are.

use abide_runtime::entity::{EntityId, ListedEntity};
use abide_runtime::hands::Store;
use abide_workflow::Timestamp;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Serialize;

use super::TYPE;
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Operation as Described};
use crate::rest::page::{LIMIT, PageJson, TOKEN};

const LIST_QUERY: [Field; 3] =
    [Field::optional("type", TYPE.kind, "Only entities of this type."), LIMIT, TOKEN];

pub(in crate::rest) const LIST: Described = Described {
    id: "listEntities",
    tag: "Entities",
    about: "Lists entities, those of one shard after the other.",
    query: &LIST_QUERY,
    answers: &[Answer::data::<PageJson<ListedJson>>(200, "A page of entities.")],
    ..Described::NONE
};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListedEntity")]
#[serde(rename_all = "camelCase")]
struct ListedJson {
    entity_type: String,
    entity_key: String,
    event_count: u64,
    last_updated_at_utc: Text<Timestamp>,
}

/// Lists entities, shard by shard, in the order of type and key within each.
pub(in crate::rest) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [kind, limit, token] = asked.parameters(&LIST_QUERY)?;
    let kind = kind.map(|kind| {
        EntityId::new(&kind, "key").map_err(|error| ApiError::invalid("type", error.to_string()))
    });
    let kind = kind.transpose()?;
    let limit = LIMIT.count(limit.as_deref())?;
    // The token names the last entity that was shown; its key says which shard it is on.
    let after = token.as_deref().map(read_token).transpose()?;
    if let (Some(kind), Some(after)) = (&kind, &after)
        && kind.kind() != after.kind()
    {
        return Err(ApiError::invalid(TOKEN.name, "it belongs to a list of another type"));
    }
    let shard_of_last = after.as_ref().map(|after| app.node().shard_of_entity(after));
    let mut items: Vec<ListedJson> = Vec::new();
    let mut last = None;
    for shard in app.node().shards().filter(|shard| shard_of_last.is_none_or(|last| *shard >= last)) {
        let Some(reader) = app.node().entities_of(shard) else { continue };
        let after = after.as_ref().filter(|_| shard_of_last == Some(shard));
        let left = limit + 1 - items.len();
        for ListedEntity { entity, view } in
            reader.list(kind.as_ref().map(EntityId::kind), after, left).await?
        {
            if items.len() == limit {
                let token = last.as_ref().map(token_of);
                return Ok(asked.succeed(
                    StatusCode::OK,
                    app.now(),
                    &PageJson { items, continuation_token: token },
                ));
            }
            items.push(ListedJson {
                entity_type: entity.kind().to_owned(),
                entity_key: entity.key().to_owned(),
                event_count: view.event_count,
                last_updated_at_utc: Text(view.updated_at),
            });
            last = Some(entity);
        }
    }
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token: None }))
}

/// A token that goes on after this entity. It is nobody's secret: whoever may list entities may list all of them.
fn token_of(entity: &EntityId) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{} {}", entity.kind(), entity.key()))
}

fn read_token(token: &str) -> Result<EntityId, ApiError> {
    let text = BASE64_URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let entity = text.as_deref().and_then(|text| text.split_once(' '));
    let entity = entity.and_then(|(kind, key)| EntityId::new(kind, key).ok());
    entity.ok_or_else(|| ApiError::invalid(TOKEN.name, "it is not a token of this server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_entity_and_anything_else_is_refused() {
        let entity = EntityId::new("device", "a b/c").unwrap();
        assert_eq!(read_token(&token_of(&entity)), Ok(entity));
        for token in ["", "x", "////", "ZGV2aWNl"] {
            assert!(read_token(token).is_err(), "{token}");
        }
    }
}
