//! A walk through the entities there are: shard by shard, in the order of type and key within each; and where it goes on, as a token.
//!
//! Knows nothing of how entities are shown, so that every list of them goes the same way.

use abide_runtime::entity::{EntityId, EntityReadError, ListedEntity};
use abide_runtime::hands::Store;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::app::App;
use crate::error::ApiError;
use crate::rest::page::{TOKEN, not_a_token};

/// The next entities, of one type or of all, after one: at most so many, and fewer only if there are no more.
pub(crate) async fn next<S: Store>(
    app: &App<S>,
    kind: Option<&str>,
    after: Option<&EntityId>,
    most: usize,
) -> Result<Vec<ListedEntity>, EntityReadError> {
    let node = app.node();
    let begin = after.map(|after| node.shard_of_entity(after));
    let mut found = Vec::new();
    for shard in node.shards().filter(|shard| begin.is_none_or(|begin| *shard >= begin)) {
        if found.len() >= most {
            break;
        }
        let Some(reader) = node.entities_of(shard) else { continue };
        let after = after.filter(|_| begin == Some(shard));
        found.extend(reader.list(kind, after, most - found.len()).await?);
    }
    Ok(found)
}

/// A token that goes on after this entity, whose key says on which shard. It is nobody's secret: whoever may list entities may list all of them.
pub(crate) fn seal(entity: &EntityId) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{} {}", entity.kind(), entity.key()))
}

/// The entity after which a list of one type, or of all, goes on.
pub(crate) fn open(token: impl AsRef<[u8]>, kind: Option<&str>) -> Result<EntityId, ApiError> {
    let text = BASE64_URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    // A type has no blank.
    let entity = text.as_deref().and_then(|text| text.split_once(' '));
    let entity = entity.and_then(|(kind, key)| EntityId::new(kind, key).ok()).ok_or_else(not_a_token)?;
    if kind.is_some_and(|kind| kind != entity.kind()) {
        return Err(ApiError::invalid(TOKEN.name, "it belongs to a list of another type"));
    }
    Ok(entity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_entity_and_anything_else_is_refused() {
        let entity = EntityId::new("device", "a b/ä").unwrap();
        for kind in [None, Some("device")] {
            assert_eq!(open(seal(&entity), kind).as_ref(), Ok(&entity));
        }
        assert!(open(seal(&entity), Some("sensor")).is_err());
        for text in ["", "device", "device ", "a\nb key"] {
            assert!(open(BASE64_URL_SAFE_NO_PAD.encode(text), None).is_err(), "{text:?}");
        }
        for token in ["", "x", "////", "???"] {
            assert!(open(token, None).is_err(), "{token}");
        }
    }
}
