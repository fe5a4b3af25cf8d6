//! Activities declared while the server runs: every version of each, of which the highest is in force.
//!
//! A version is written once and never changed, so the declaration that a call was made with can always be looked up.
//! The content of a declaration is not known here; it is JSON text.

use std::ops::Bound;

use abide_ids::Timestamp;
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// One version of an activity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActivityDeclarationRow {
    /// The declaration as JSON text; `None` if this version removes the activity.
    pub declaration: Option<String>,
    pub declared_at: Timestamp,
}

impl TableRow for ActivityDeclarationRow {
    const TABLE: TableId = TableId::ActivityDeclaration;
    const FORMAT: u8 = 1;
}

/// The key of a version. Versions count from 1.
pub fn key(name: &str, version: u64) -> Key {
    KeyWriter::new(TableId::ActivityDeclaration).text(name).u64(version).key()
}

/// The name and the version in a key.
pub fn read_key(key: &Key) -> Result<(String, u64), TableError> {
    let mut reader = KeyReader::new(TableId::ActivityDeclaration, key)?;
    let fields = (reader.text()?, reader.u64()?);
    reader.finish(fields)
}

/// All versions of an activity, the first one first.
pub fn versions_of(name: &str) -> Scan {
    KeyWriter::new(TableId::ActivityDeclaration).text(name).scan()
}

/// All versions of all activities, by name and version.
pub fn all() -> Scan {
    TableId::ActivityDeclaration.scan()
}

/// All versions of the activities whose names come before this one.
pub fn names_before(name: &str) -> Scan {
    Scan { until: as_excluded(versions_of(name).from), ..all() }
}

/// All versions of the activities whose names come after this one.
pub fn names_after(name: &str) -> Scan {
    Scan { from: as_included(versions_of(name).until), ..all() }
}

fn as_excluded(bound: Bound<Key>) -> Bound<Key> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn as_included(bound: Bound<Key>) -> Bound<Key> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;
    use std::ops::RangeBounds;

    proptest! {
        #[test]
        fn a_declaration_round_trips(declaration: Option<String>, declared_at: Timestamp) {
            value_round_trips(&ActivityDeclarationRow { declaration, declared_at });
        }

        #[test]
        fn declarations_sort_by_name_and_version(
            keys in prop::collection::vec((".{0,20}", any::<u64>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(name, version)| key(name, *version), read_key);
        }

        #[test]
        fn scans_before_and_after_a_name_hold_only_the_neighbours(
            name in ".{0,8}",
            other in ".{0,8}",
            version: u64,
        ) {
            let key = key(&other, version);
            let holds = |scan: Scan| (scan.from, scan.until).contains(&key);
            prop_assert_eq!(holds(names_before(&name)), other < name);
            prop_assert_eq!(holds(versions_of(&name)), other == name);
            prop_assert_eq!(holds(names_after(&name)), other > name);
        }
    }
}
