//! Published definitions, one row per version, never changed but for being retired.
//!
//! The activities are kept as they were resolved at publication, so that a changed registry of activities
//! changes no running instance. This table does not know which version is started
//! ([`super::default_versions`] does), nor what the JSON says.
//!
//! The version is spelled in the key so that versions of a definition sort as numbers do. After major, minor
//! and patch comes a marker: 0 and the prerelease as text, or 1 for the release itself, which therefore sorts
//! after its prereleases. Prereleases sort as text. That is a storage order, not the precedence of semantic
//! versioning: `rc.10` is stored before `rc.9`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

const PRERELEASE: [u8; 1] = [0];
const RELEASE: [u8; 1] = [1];

/// A version as the key has it, ordered as the keys are. Build metadata is no part of it: two builds are one
/// version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefinitionVersion {
    /// Raised by changes that callers must know of.
    pub major: u64,
    /// Raised by additions.
    pub minor: u64,
    /// Raised by repairs.
    pub patch: u64,
    /// What follows the hyphen, or `None` for a release.
    pub prerelease: Option<String>,
}

impl Ord for DefinitionVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        let release = |version: &Self| version.prerelease.is_none();
        numbers(self)
            .cmp(&numbers(other))
            .then_with(|| release(self).cmp(&release(other)))
            .then_with(|| self.prerelease.cmp(&other.prerelease))
    }
}

impl PartialOrd for DefinitionVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One published version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Definition {
    /// The digest of its content: the same version with other content is refused.
    pub hash: [u8; 32],
    /// The definition, as JSON text.
    #[serde(with = "serde_bytes")]
    pub json: Vec<u8>,
    /// The activities it calls, as they were resolved at publication, in the encoding of whoever compiles it.
    #[serde(with = "serde_bytes")]
    pub activities: Vec<u8>,
    /// When it was published, in milliseconds of UTC since 1970.
    pub published_at: i64,
    /// When it was retired: no new run starts with it, and runs that have it go on.
    pub retired_at: Option<i64>,
}

impl Stored for Definition {
    const TABLE: Table = Table::Definition;
    const FORMAT: u8 = 1;
}

/// The row of a version.
pub fn key(definition_id: &str, version: &DefinitionVersion) -> Key {
    let numbers = KeyWriter::new(Table::Definition)
        .text(definition_id)
        .u64(version.major)
        .u64(version.minor)
        .u64(version.patch);
    match &version.prerelease {
        Some(prerelease) => numbers.bytes(&PRERELEASE).text(prerelease).key(),
        None => numbers.bytes(&RELEASE).key(),
    }
}

/// Definition and version of a key.
pub fn read_key(key: &Key) -> Result<(String, DefinitionVersion), TableError> {
    let mut reader = KeyReader::new(Table::Definition, key)?;
    let definition_id = reader.text()?;
    let (major, minor, patch) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let prerelease = match reader.array::<1>()? {
        PRERELEASE => Some(reader.text()?),
        RELEASE => None,
        _ => {
            let reason = "it is marked neither as a release nor as a prerelease";
            return Err(TableError::Key { table: Table::Definition, reason });
        }
    };
    reader.end((definition_id, DefinitionVersion { major, minor, patch, prerelease }))
}

/// All versions of a definition, in the order of [`DefinitionVersion`].
pub fn versions_of(definition_id: &str) -> Scan {
    KeyWriter::new(Table::Definition).text(definition_id).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    fn versions() -> impl Strategy<Value = DefinitionVersion> {
        let prerelease = prop::option::of("[a-z0-9.]{0,4}");
        (0..3u64, 0..3u64, any::<u64>(), prerelease).prop_map(|(major, minor, patch, prerelease)| {
            DefinitionVersion { major, minor, patch, prerelease }
        })
    }

    proptest! {
        #[test]
        fn a_definition_survives_its_bytes(
            hash: [u8; 32],
            json: Vec<u8>,
            activities: Vec<u8>,
            published_at: i64,
            retired_at: Option<i64>,
        ) {
            value_round_trips(&Definition { hash, json, activities, published_at, retired_at });
        }

        #[test]
        fn definitions_sort_by_id_and_version(
            keys in prop::collection::vec(("[ab]{0,2}", versions()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(id, version)| key(id, version), read_key);
        }
    }

    #[test]
    fn a_release_sorts_after_its_prereleases_and_before_the_next_patch() {
        let version = |patch, prerelease: Option<&str>| {
            let prerelease = prerelease.map(str::to_owned);
            key("rotate", &DefinitionVersion { major: 1, minor: 2, patch, prerelease })
        };
        let keys =
            [version(3, Some("beta")), version(3, Some("rc.1")), version(3, None), version(4, Some("a"))];
        assert!(keys.is_sorted());
    }
}
