//! Which version of a definition is started when the caller names none.
//!
//! A row of its own, so that changing the default rewrites no definition. Whether the version exists is not
//! known here; the commit that changes the default makes sure of it.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// The version that is started by default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultVersion {
    /// The version, as its author spelled it.
    pub version: String,
    /// When it became the default, in milliseconds of UTC since 1970.
    pub changed_at: i64,
}

impl Stored for DefaultVersion {
    const TABLE: Table = Table::DefaultVersion;
    const FORMAT: u8 = 1;
}

/// The row of a definition.
pub fn key(definition_id: &str) -> Key {
    KeyWriter::new(Table::DefaultVersion).text(definition_id).key()
}

/// The definition of a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(Table::DefaultVersion, key)?;
    let definition_id = reader.text()?;
    reader.end(definition_id)
}

/// The defaults of all definitions, in the order of their ids.
pub fn all() -> Scan {
    Table::DefaultVersion.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_default_version_survives_its_bytes(version in ".{0,20}", changed_at: i64) {
            value_round_trips(&DefaultVersion { version, changed_at });
        }

        #[test]
        fn defaults_sort_by_definition(ids in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(ids, |id| key(id), read_key);
        }
    }
}
