//! Scans entities shard by shard, in the order of type and key within each shard, and encodes the continuation token.
//! Reads stored rows and asks no shard.
//!
//! Knows nothing about the JSON of entities, so that every list of entities can use it.

use abide_runtime::entity::{EntityId, EntityReadError, ListedEntity};
use abide_store::Store;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::app::App;
use crate::error::ApiError;
use crate::rest::page::{TOKEN, invalid_token};

/// The next entities of one type, or of all types, after `after`: at most `limit`, and fewer only if there are no more.
pub(crate) async fn next_entities<S: Store>(
    app: &App<S>,
    entity_type: Option<&str>,
    after: Option<&EntityId>,
    limit: usize,
) -> Result<Vec<ListedEntity>, EntityReadError> {
    let node = app.node();
    let begin = after.map(|after| node.shard_of_entity(after));
    let mut found = Vec::new();
    for shard in node.shards().filter(|shard| begin.is_none_or(|begin| *shard >= begin)) {
        if found.len() >= limit {
            break;
        }
        let Some(reader) = node.entity_reader(shard) else { continue };
        let after = after.filter(|_| begin == Some(shard));
        found.extend(reader.list(entity_type, after, limit - found.len()).await?);
    }
    Ok(found)
}

/// A token to continue after this entity, whose key determines the shard. It needs no protection: a client that may
/// list entities may list all of them.
pub(crate) fn encode_cursor(entity: &EntityId) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{} {}", entity.entity_type(), entity.key()))
}

/// The entity after which a list of one type, or of all types, continues.
pub(crate) fn decode_cursor(
    token: impl AsRef<[u8]>,
    entity_type: Option<&str>,
) -> Result<EntityId, ApiError> {
    let text = BASE64_URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    // An entity type contains no space.
    let entity = text.as_deref().and_then(|text| text.split_once(' '));
    let entity =
        entity.and_then(|(found_type, key)| EntityId::new(found_type, key).ok()).ok_or_else(invalid_token)?;
    if entity_type.is_some_and(|entity_type| entity_type != entity.entity_type()) {
        return Err(ApiError::invalid(TOKEN.name, "the token belongs to a list of another type"));
    }
    Ok(entity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_decodes_to_its_entity_and_anything_else_is_rejected() {
        let entity = EntityId::new("device", "a b/ä").unwrap();
        for entity_type in [None, Some("device")] {
            assert_eq!(decode_cursor(encode_cursor(&entity), entity_type).as_ref(), Ok(&entity));
        }
        assert!(decode_cursor(encode_cursor(&entity), Some("sensor")).is_err());
        for text in ["", "device", "device ", "a\nb key"] {
            assert!(decode_cursor(BASE64_URL_SAFE_NO_PAD.encode(text), None).is_err(), "{text:?}");
        }
        for token in ["", "x", "////", "???"] {
            assert!(decode_cursor(token, None).is_err(), "{token}");
        }
    }
}
