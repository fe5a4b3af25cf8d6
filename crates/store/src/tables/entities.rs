//! Entities: keyed durable objects that execute one operation at a time.
//!
//! Every operation rewrites the row, in one commit with the events it records. The events are in
//! [`super::entity_events`], keyed by generation: a Clear gives the entity a new generation, which makes all older
//! events unreachable at once. The meaning of the state is not known here.

use std::ops::Bound;

use abide_ids::{KeyDigest, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EntityRow {
    /// The generation of the entity's events. A Clear assigns a new number, never used before in the shard.
    pub generation: u64,
    /// Events below this position are cleared.
    pub first_position: u64,
    /// The position that the next event gets.
    pub next_position: u64,
    /// The number of operations executed.
    pub operation_count: u64,
    /// The state, in the encoding of the runtime.
    #[serde(with = "serde_bytes")]
    pub state: Vec<u8>,
    /// When the last operation was executed.
    pub updated_at: Timestamp,
    /// The digest of the last operation's id: an operation that is repeated at once is recognised without a lookup.
    pub last_operation_digest: Option<KeyDigest>,
}

impl TableRow for EntityRow {
    const TABLE: TableId = TableId::Entity;
    const FORMAT: u8 = 1;
}

/// The key of an entity's row.
pub fn key(entity_type: &str, entity_key: &str) -> Key {
    KeyWriter::new(TableId::Entity).text(entity_type).text(entity_key).key()
}

/// The entity type and the entity key in a key.
pub fn read_key(key: &Key) -> Result<(String, String), TableError> {
    let mut reader = KeyReader::new(TableId::Entity, key)?;
    let fields = (reader.text()?, reader.text()?);
    reader.finish(fields)
}

/// All entities of a type in the partition, in the order of their keys.
pub fn of_type(entity_type: &str) -> Scan {
    KeyWriter::new(TableId::Entity).text(entity_type).scan()
}

/// All entities of the partition whose type comes after this one.
pub fn after_type(entity_type: &str) -> Scan {
    Scan { from: skip(of_type(entity_type).until), ..TableId::Entity.scan() }
}

/// From where a scan ended on.
fn skip(until: Bound<Key>) -> Bound<Key> {
    match until {
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entity_round_trips(
            numbers: [u64; 4],
            state: Vec<u8>,
            updated_at: Timestamp,
            last_operation_digest: Option<KeyDigest>,
        ) {
            let [generation, first_position, next_position, operation_count] = numbers;
            value_round_trips(&EntityRow {
                generation, first_position, next_position, operation_count, state, updated_at, last_operation_digest,
            });
        }

        #[test]
        fn entities_sort_by_type_and_key(keys in prop::collection::vec(("[ab\u{0}]{0,2}", ".{0,8}"), 1..8)) {
            keys_round_trip_in_order(keys, |(kind, name)| key(kind, name), read_key);
        }

        #[test]
        fn a_scan_after_a_type_holds_the_later_types_only(
            kind in "[ab\u{0}]{0,3}",
            other in "[ab\u{0}]{0,3}",
            name in ".{0,8}",
        ) {
            let scan = after_type(&kind);
            let key = key(&other, &name);
            let inside = (scan.from, scan.until);
            prop_assert_eq!(std::ops::RangeBounds::contains(&inside, &key), other > kind);
        }
    }
}
