//! `GET /api/entities`: which entities there are.

use abide_runtime::entity::{EntityId, ListedEntity};
use abide_runtime::hands::Store;
use abide_workflow::Timestamp;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::{TYPE, walk};
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

/// Lists entities.
pub(in crate::rest) async fn list<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [kind, limit, token] = asked.parameters(&LIST_QUERY)?;
    let kind = kind.map(|kind| {
        EntityId::new(&kind, "key").map_err(|error| ApiError::invalid("type", error.to_string()))
    });
    let kind = kind.transpose()?;
    let kind = kind.as_ref().map(EntityId::kind);
    let limit = LIMIT.count(limit.as_deref())?;
    let after = token.map(|token| walk::open(&*token, kind)).transpose()?;
    let mut found = walk::next(app, kind, after.as_ref(), limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let continuation_token = found.last().filter(|_| more).map(|last| walk::seal(&last.entity));
    let items = found.into_iter().map(ListedJson::of).collect();
    Ok(asked.succeed(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

impl ListedJson {
    fn of(ListedEntity { entity, view }: ListedEntity) -> Self {
        Self {
            entity_type: entity.kind().to_owned(),
            entity_key: entity.key().to_owned(),
            event_count: view.event_count,
            last_updated_at_utc: Text(view.updated_at),
        }
    }
}
