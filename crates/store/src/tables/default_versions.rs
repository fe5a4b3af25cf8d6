//! Default versions: the version of a definition that is started when the caller names none.
//!
//! It has a row of its own, so changing the default rewrites no definition. This table does not know if the version
//! exists: the commit that changes the default checks that.

use abide_ids::Timestamp;
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The version that is started by default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultVersionRow {
    /// The version, as its author wrote it.
    pub version: String,
    /// When it became the default.
    pub changed_at: Timestamp,
}

impl TableRow for DefaultVersionRow {
    const TABLE: TableId = TableId::DefaultVersion;
    const FORMAT: u8 = 1;
}

/// The key of a definition's default.
pub fn key(definition_id: &str) -> Key {
    KeyWriter::new(TableId::DefaultVersion).text(definition_id).key()
}

/// The definition id in a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(TableId::DefaultVersion, key)?;
    let definition_id = reader.text()?;
    reader.finish(definition_id)
}

/// The defaults of all definitions, in the order of their ids.
pub fn all() -> Scan {
    TableId::DefaultVersion.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_default_version_round_trips(version in ".{0,20}", changed_at: Timestamp) {
            value_round_trips(&DefaultVersionRow { version, changed_at });
        }

        #[test]
        fn defaults_sort_by_definition(ids in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(ids, |id| key(id), read_key);
        }
    }
}
