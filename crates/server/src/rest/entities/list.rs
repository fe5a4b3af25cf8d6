//! `GET /api/entities`: lists entities.

use abide_runtime::entity::{EntityId, ListedEntity};
use abide_store::Store;
use abide_workflow::Timestamp;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::{TYPE, query};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, OperationSpec, ResponseSpec};
use crate::response::Text;
use crate::rest::page::{LIMIT, PageJson, TOKEN};

const LIST_QUERY: [Field; 3] =
    [Field::optional("type", TYPE.kind, "Only entities of this type."), LIMIT, TOKEN];

pub(in crate::rest) const LIST: OperationSpec = OperationSpec {
    id: "listEntities",
    tag: "Entities",
    about: "Lists entities, shard by shard.",
    query: &LIST_QUERY,
    responses: &[ResponseSpec::enveloped::<PageJson<EntityItemJson>>(200, "A page of entities.")],
    ..OperationSpec::EMPTY
};

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListedEntity")]
#[serde(rename_all = "camelCase")]
struct EntityItemJson {
    entity_type: String,
    entity_key: String,
    event_count: u64,
    last_updated_at_utc: Text<Timestamp>,
}

pub(in crate::rest) async fn list<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let [entity_type, limit, token] = request.checked_query(&LIST_QUERY)?;
    let entity_type = entity_type.map(|entity_type| {
        EntityId::new(&entity_type, "key").map_err(|error| ApiError::invalid("type", error.to_string()))
    });
    let entity_type = entity_type.transpose()?;
    let entity_type = entity_type.as_ref().map(EntityId::entity_type);
    let limit = LIMIT.parse_count(limit.as_deref())?;
    let after = token.map(|token| query::decode_cursor(&*token, entity_type)).transpose()?;
    let mut found = query::next_entities(app, entity_type, after.as_ref(), limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let continuation_token = found.last().filter(|_| more).map(|last| query::encode_cursor(&last.entity));
    let items = found.into_iter().map(EntityItemJson::of).collect();
    Ok(request.data_response(StatusCode::OK, app.now(), &PageJson { items, continuation_token }))
}

impl EntityItemJson {
    fn of(ListedEntity { entity, view }: ListedEntity) -> Self {
        Self {
            entity_type: entity.entity_type().to_owned(),
            entity_key: entity.key().to_owned(),
            event_count: view.event_count,
            last_updated_at_utc: Text(view.updated_at),
        }
    }
}
