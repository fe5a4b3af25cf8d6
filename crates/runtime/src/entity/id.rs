//! Names of entities, and which shard they lead to.

use std::borrow::Cow;
use std::fmt;

use abide_workflow::InstanceId;
use abide_workflow::ids::InvalidInstanceId;
use sha2::{Digest, Sha256};

/// A name that no entity can have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidEntityId {
    /// The type.
    #[error(
        "an entity type has 1 to {} of a-z 0-9 . _ - (capitals are taken as small letters)",
        EntityId::KIND_BYTES_MAX
    )]
    Kind,
    /// The key.
    #[error("an entity key has 1 to {} characters and no control characters", EntityId::KEY_CHARS_MAX)]
    Key,
}

/// The type and the key of an entity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntityId {
    kind: String,
    key: String,
}

impl EntityId {
    /// Bytes of a type.
    pub const KIND_BYTES_MAX: usize = 100;
    /// Characters of a key.
    pub const KEY_CHARS_MAX: usize = 256;

    /// Checks both. Types are without regard to case.
    pub fn new(kind: &str, key: impl Into<String>) -> Result<Self, InvalidEntityId> {
        let kind = kind.to_ascii_lowercase();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if kind.is_empty() || kind.len() > Self::KIND_BYTES_MAX || !kind.bytes().all(allowed) {
            return Err(InvalidEntityId::Kind);
        }
        let key = key.into();
        let chars = key.chars().count();
        if chars == 0 || chars > Self::KEY_CHARS_MAX || key.chars().any(char::is_control) {
            return Err(InvalidEntityId::Key);
        }
        Ok(Self { kind, key })
    }

    /// The type, in small letters.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What decides the shard: the key alone, so that entities of a session and its runs live together.
    pub fn placement_key(&self) -> Cow<'_, str> {
        session_key(&self.key)
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}@{}", self.kind, self.key)
    }
}

/// The run that a session's events start and reach: beside the session's entity.
pub fn session_instance(session: &str, workflow: &str) -> Result<InstanceId, InvalidInstanceId> {
    InstanceId::new(format!("{}~{workflow}", session_key(session)))
}

/// Bytes of a session that is used as it is.
const PLAIN_BYTES_MAX: usize = 100;
/// What a session that cannot be used as it is begins with then.
const DIGESTED: &str = "x-";

/// A session as the beginning of an instance id. One that has other characters, is long, or looks like a digest, is digested.
pub fn session_key(session: &str) -> Cow<'_, str> {
    let plain = session.len() <= PLAIN_BYTES_MAX
        && !session.contains('~')
        && !session.starts_with(DIGESTED)
        && InstanceId::new(session).is_ok();
    if plain {
        return Cow::Borrowed(session);
    }
    let digest = Sha256::digest(session.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Cow::Owned(format!("{DIGESTED}{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::ShardCount;
    use proptest::prelude::*;

    #[test]
    fn a_plain_session_is_the_beginning_of_its_runs_id() {
        assert_eq!(session_instance("dev-1", "onboarding").unwrap().as_str(), "dev-1~onboarding");
        let odd = session_instance("/blobs/ä", "onboarding").unwrap();
        assert!(odd.as_str().starts_with("x-") && odd.as_str().ends_with("~onboarding"), "{odd}");
    }

    #[test]
    fn nobody_can_name_a_session_so_that_it_meets_anothers_run() {
        let odd = session_instance("a/b", "w").unwrap();
        let forged = odd.as_str().split('~').next().unwrap().to_owned();
        assert_ne!(session_instance(&forged, "w").unwrap(), odd);
    }

    #[test]
    fn types_are_without_regard_to_case_and_names_are_checked() {
        assert_eq!(EntityId::new("Device", "K").unwrap(), EntityId::new("dEVICE", "K").unwrap());
        assert_eq!(EntityId::new("", "k"), Err(InvalidEntityId::Kind));
        assert_eq!(EntityId::new("a b", "k"), Err(InvalidEntityId::Kind));
        assert_eq!(EntityId::new("a", ""), Err(InvalidEntityId::Key));
        assert_eq!(EntityId::new("a", "x\u{0}"), Err(InvalidEntityId::Key));
        assert_eq!(EntityId::new("a", "x".repeat(257)), Err(InvalidEntityId::Key));
    }

    proptest! {
        #[test]
        fn an_entity_and_the_runs_of_its_session_share_a_shard(session in "\\PC{1,120}", shards in 1..64u32) {
            let shards = ShardCount::new(shards).unwrap();
            let entity = EntityId::new("device", session.clone()).unwrap();
            let run = session_instance(&session, "a-workflow").unwrap();
            prop_assert_eq!(shards.shard_of(&entity.placement_key()), shards.shard_of_instance(&run));
        }
    }
}
