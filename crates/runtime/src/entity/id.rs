//! Entity ids and session ids, and the placement keys and instance ids derived from them.
//!
//! Nothing here reads or knows stored entities. An entity and the runs of its session always have the same placement
//! key.

use std::borrow::Cow;
use std::fmt;

use abide_workflow::InstanceId;
use abide_workflow::ids::InvalidInstanceId;
use sha2::{Digest, Sha256};

/// The reason why a type and a key are not an entity id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidEntityId {
    #[error(
        "an entity type has 1 to {} characters of a-z 0-9 . _ - (case-insensitive)",
        EntityId::TYPE_BYTES_MAX
    )]
    Type,
    #[error("an entity key has 1 to {} characters and no control characters", EntityId::KEY_CHARS_MAX)]
    Key,
}

/// The type and the key of an entity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntityId {
    entity_type: String,
    key: String,
}

impl EntityId {
    /// The most bytes of a type.
    pub const TYPE_BYTES_MAX: usize = 100;
    /// The most characters of a key.
    pub const KEY_CHARS_MAX: usize = 256;

    /// Checks both. Types are case-insensitive and kept in lower case.
    pub fn new(entity_type: &str, key: impl Into<String>) -> Result<Self, InvalidEntityId> {
        let entity_type = entity_type.to_ascii_lowercase();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if entity_type.is_empty()
            || entity_type.len() > Self::TYPE_BYTES_MAX
            || !entity_type.bytes().all(allowed)
        {
            return Err(InvalidEntityId::Type);
        }
        let key = key.into();
        let chars = key.chars().count();
        if chars == 0 || chars > Self::KEY_CHARS_MAX || key.chars().any(char::is_control) {
            return Err(InvalidEntityId::Key);
        }
        Ok(Self { entity_type, key })
    }

    /// In lower case.
    pub fn entity_type(&self) -> &str {
        &self.entity_type
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Derived from the key alone, so that the entities of a session and its runs share a shard.
    pub fn placement_key(&self) -> Cow<'_, str> {
        session_placement_key(&self.key)
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}@{}", self.entity_type, self.key)
    }
}

/// The id of the instance that a session's events start and reach. It has the placement key of the session's entity, so
/// that one commit records an event and its run message.
pub fn session_instance_id(session: &str, workflow: &str) -> Result<InstanceId, InvalidInstanceId> {
    InstanceId::new(format!("{}~{workflow}", session_placement_key(session)))
}

/// The most bytes of a session that is used unchanged.
const PLAIN_BYTES_MAX: usize = 100;
/// The first characters of the digest that replaces a session.
const DIGEST_PREFIX: &str = "x-";

/// A session as the first part of an instance id. A session is replaced by its digest if it is long, looks like such a
/// digest, or has characters that the first part of an instance id cannot have.
pub fn session_placement_key(session: &str) -> Cow<'_, str> {
    let plain = session.len() <= PLAIN_BYTES_MAX
        && !session.contains('~')
        && !session.starts_with(DIGEST_PREFIX)
        && InstanceId::new(session).is_ok();
    if plain {
        return Cow::Borrowed(session);
    }
    let digest = Sha256::digest(session.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(format!("{DIGEST_PREFIX}{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::ShardCount;
    use proptest::prelude::*;

    #[test]
    fn a_plain_session_is_the_first_part_of_the_instance_id() {
        assert_eq!(session_instance_id("dev-1", "onboarding").unwrap().as_str(), "dev-1~onboarding");
        let odd = session_instance_id("/blobs/ä", "onboarding").unwrap();
        assert!(odd.as_str().starts_with("x-") && odd.as_str().ends_with("~onboarding"), "{odd}");
    }

    #[test]
    fn no_session_can_be_named_so_that_it_reaches_the_run_of_another() {
        let odd = session_instance_id("a/b", "w").unwrap();
        let forged = odd.as_str().split('~').next().unwrap().to_owned();
        assert_ne!(session_instance_id(&forged, "w").unwrap(), odd);
    }

    #[test]
    fn types_are_case_insensitive_and_both_parts_are_checked() {
        assert_eq!(EntityId::new("Device", "K").unwrap(), EntityId::new("dEVICE", "K").unwrap());
        assert_eq!(EntityId::new("", "k"), Err(InvalidEntityId::Type));
        assert_eq!(EntityId::new("a b", "k"), Err(InvalidEntityId::Type));
        assert_eq!(EntityId::new("a", ""), Err(InvalidEntityId::Key));
        assert_eq!(EntityId::new("a", "x\u{0}"), Err(InvalidEntityId::Key));
        assert_eq!(EntityId::new("a", "x".repeat(257)), Err(InvalidEntityId::Key));
    }

    proptest! {
        #[test]
        fn an_entity_and_the_runs_of_its_session_share_a_shard(session in "\\PC{1,120}", shards in 1..64u32) {
            let shards = ShardCount::new(shards).unwrap();
            let entity = EntityId::new("device", session.clone()).unwrap();
            let run = session_instance_id(&session, "a-workflow").unwrap();
            prop_assert_eq!(shards.shard_of(&entity.placement_key()), shards.shard_of_instance(&run));
        }
    }
}
