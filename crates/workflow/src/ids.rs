//! Ids and numbers of a run, as newtypes: an id of one kind cannot be passed for another.
//!
//! The caller supplies ids, or the run counts them; nothing here is random.

use std::fmt;

use abide_ids::Digest;
use serde::{Deserialize, Serialize};

pub use abide_ids::{CommandId, RunNumber};

/// An instance id that breaks the rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "invalid instance id {id:?}: use 1 to 256 characters of A-Z a-z 0-9 . _ : ~ @ - and do not start with @"
)]
pub struct InvalidInstanceId {
    /// The given id, truncated to a printable length.
    pub id: String,
}

/// The user-visible name of an instance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(String);

impl InstanceId {
    /// Maximum length of an id.
    pub const BYTES_MAX: usize = 256;

    /// Checks length and alphabet: ids appear in URLs, table keys and headers unescaped.
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidInstanceId> {
        let id = id.into();
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._:~@-".contains(&b);
        if id.is_empty() || id.len() > Self::BYTES_MAX || id.starts_with('@') || !id.bytes().all(allowed) {
            return Err(InvalidInstanceId { id: id.chars().take(64).collect() });
        }
        Ok(Self(id))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part that decides the shard: everything before the first `~`, or the whole id.
    pub fn placement_key(&self) -> &str {
        self.0.split('~').next().unwrap_or(&self.0)
    }
}

impl TryFrom<String> for InstanceId {
    type Error = InvalidInstanceId;
    fn try_from(id: String) -> Result<Self, InvalidInstanceId> {
        Self::new(id)
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> String {
        id.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run of one instance; dispatch calls it the execution id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExecutionId {
    pub instance: InstanceId,
    pub run: RunNumber,
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.instance, self.run)
    }
}

/// The number of a branch within its run. The root branch is 0; a child's number is greater than its parent's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BranchId(pub u32);

impl BranchId {
    /// The branch every run starts with.
    pub const ROOT: Self = Self(0);
}

/// A state's number within its plan: depth first, states of a block in the order of their names. Instances store it, so
/// the numbering is part of the format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StateId(pub u32);

/// A block's number within its plan. Block 0 holds the top-level states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The block of the top-level states.
    pub const TOP: Self = Self(0);
}

/// The content hash of a definition: a run is pinned to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanHash(pub Digest);

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanHash({self})")
    }
}

/// The first eight bytes of a digest as a number: deterministic jitter and seeds.
pub(crate) fn digest_number(parts: &[&[u8]]) -> u64 {
    Digest::of_parts(parts).as_bytes().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// A digest written as a UUID of version 8 (custom content), for `$.system.newId`.
pub(crate) fn digest_uuid(parts: &[&[u8]]) -> String {
    let digest = Digest::of_parts(parts);
    let mut text = String::with_capacity(36);
    for (position, byte) in digest.as_bytes().iter().take(16).enumerate() {
        if matches!(position, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let byte = match position {
            6 => (byte & 0x0f) | 0x80,
            8 => (byte & 0x3f) | 0x80,
            _ => *byte,
        };
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_id_has_a_restricted_alphabet_and_length() {
        for good in ["a", "dev-1", "x:y.z_1~2.3", &"a".repeat(256)] {
            assert!(InstanceId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "@device@1", "a/b", "a b", "ä", "a\n", "a#b", &"a".repeat(257)] {
            assert!(InstanceId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn placement_key_is_the_part_before_the_first_tilde() {
        assert_eq!(InstanceId::new("dev-1~2~3").unwrap().placement_key(), "dev-1");
        assert_eq!(InstanceId::new("dev-1").unwrap().placement_key(), "dev-1");
    }

    #[test]
    fn a_digest_is_written_as_a_uuid_of_version_8() {
        let id = digest_uuid(&[b"x"]);
        assert_eq!((id.len(), id.as_bytes()[14], id.matches('-').count()), (36, b'8', 4));
    }
}
