//! Published definitions: one row per version, changed only to retire it.
//!
//! The activities are stored as they were resolved at publication, so changing an activity later does not affect
//! running instances. This table does not know which version is started by default ([`super::default_versions`] does),
//! nor what the JSON means.
//!
//! The key encodes the version so that the versions of a definition sort as numbers do. After major, minor and patch
//! comes a marker: 0 and the prerelease as text, or 1 for the release itself, which therefore sorts after its
//! prereleases. Prereleases sort as text. That is a storage order, not the precedence of semantic versioning: `rc.10`
//! is stored before `rc.9`.

use std::cmp::Ordering;

use abide_ids::{Digest, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

const PRERELEASE: [u8; 1] = [0];
const RELEASE: [u8; 1] = [1];

/// A version as it is encoded in the key, ordered as the keys are. Build metadata is not part of it: two builds are one
/// version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DefinitionVersion {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
    /// The text after the hyphen, or `None` for a release.
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
pub struct DefinitionRow {
    /// The digest of the content: publishing the same version with other content is rejected.
    pub content_digest: Digest,
    /// The definition, as JSON text.
    #[serde(with = "serde_bytes")]
    pub json: Vec<u8>,
    /// The activities that it calls, as they were resolved at publication, in the encoding of the compiler.
    #[serde(with = "serde_bytes")]
    pub activities: Vec<u8>,
    pub published_at: Timestamp,
    /// When the version was retired: no new run starts with it, and its present runs continue.
    pub retired_at: Option<Timestamp>,
}

impl TableRow for DefinitionRow {
    const TABLE: TableId = TableId::Definition;
    const FORMAT: u8 = 1;
}

/// The key of a version.
pub fn key(definition_id: &str, version: &DefinitionVersion) -> Key {
    let numbers = KeyWriter::new(TableId::Definition)
        .text(definition_id)
        .u64(version.major)
        .u64(version.minor)
        .u64(version.patch);
    match &version.prerelease {
        Some(prerelease) => numbers.bytes(&PRERELEASE).text(prerelease).key(),
        None => numbers.bytes(&RELEASE).key(),
    }
}

/// The definition id and the version in a key.
pub fn read_key(key: &Key) -> Result<(String, DefinitionVersion), TableError> {
    let mut reader = KeyReader::new(TableId::Definition, key)?;
    let definition_id = reader.text()?;
    let major = reader.u64()?;
    let minor = reader.u64()?;
    let patch = reader.u64()?;
    let prerelease = match reader.array::<1>()? {
        PRERELEASE => Some(reader.text()?),
        RELEASE => None,
        _ => {
            let reason = "it is neither marked as a release nor as a prerelease";
            return Err(TableError::InvalidKey { table: TableId::Definition, reason });
        }
    };
    reader.finish((definition_id, DefinitionVersion { major, minor, patch, prerelease }))
}

/// All versions of a definition, in the order of [`DefinitionVersion`].
pub fn versions_of(definition_id: &str) -> Scan {
    KeyWriter::new(TableId::Definition).text(definition_id).scan()
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
        fn a_definition_round_trips(
            content_digest: Digest,
            json: Vec<u8>,
            activities: Vec<u8>,
            published_at: Timestamp,
            retired_at: Option<Timestamp>,
        ) {
            value_round_trips(&DefinitionRow { content_digest, json, activities, published_at, retired_at });
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
