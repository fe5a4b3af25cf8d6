//! Activities that were declared while the server ran: every version of every one, the highest being in force.
//!
//! A version is written once and never changed, so what a call was made by can be looked up for ever. What a declaration says is not known
//! here; it is JSON text.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// One version of an activity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeclaredActivity {
    /// The declaration as JSON text; none if the activity was taken away with this version.
    pub declaration: Option<String>,
    /// When, in milliseconds of UTC since 1970.
    pub declared_at: i64,
}

impl Stored for DeclaredActivity {
    const TABLE: Table = Table::Activity;
    const FORMAT: u8 = 1;
}

/// The row of a version. Versions count from 1.
pub fn key(name: &str, version: u64) -> Key {
    KeyWriter::new(Table::Activity).text(name).u64(version).key()
}

/// Name and version of a key.
pub fn read_key(key: &Key) -> Result<(String, u64), TableError> {
    let mut reader = KeyReader::new(Table::Activity, key)?;
    let fields = (reader.text()?, reader.u64()?);
    reader.end(fields)
}

/// All versions of an activity, the first one first.
pub fn versions(name: &str) -> Scan {
    KeyWriter::new(Table::Activity).text(name).scan()
}

/// All versions of all activities, by name and version.
pub fn all() -> Scan {
    Table::Activity.scan()
}

/// All versions of the activities whose names come before this one.
pub fn before(name: &str) -> Scan {
    Scan { until: exclusive(versions(name).from), ..all() }
}

/// All versions of the activities whose names come after this one.
pub fn after(name: &str) -> Scan {
    Scan { from: inclusive(versions(name).until), ..all() }
}

fn exclusive(bound: Bound<Key>) -> Bound<Key> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn inclusive(bound: Bound<Key>) -> Bound<Key> {
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
        fn a_declared_activity_survives_its_bytes(declaration: Option<String>, declared_at: i64) {
            value_round_trips(&DeclaredActivity { declaration, declared_at });
        }

        #[test]
        fn declared_activities_sort_by_name_and_version(
            keys in prop::collection::vec((".{0,20}", any::<u64>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(name, version)| key(name, *version), read_key);
        }

        #[test]
        fn what_is_before_and_after_a_name_is_what_its_neighbours_have(
            name in ".{0,8}",
            other in ".{0,8}",
            version: u64,
        ) {
            let key = key(&other, version);
            let holds = |scan: Scan| (scan.from, scan.until).contains(&key);
            prop_assert_eq!(holds(before(&name)), other < name);
            prop_assert_eq!(holds(versions(&name)), other == name);
            prop_assert_eq!(holds(after(&name)), other > name);
        }
    }
}
