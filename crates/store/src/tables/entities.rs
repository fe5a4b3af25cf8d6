//! Entities: keyed durable objects that take one operation at a time.
//!
//! The row is rewritten by every operation, in one commit with the events it recorded. Those are in
//! [`super::entity_events`], keyed by generation: a Clear gives the entity a new generation, which makes all
//! older events unreachable at once. What the state means is not known here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// One entity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entity {
    /// Which events are its own; a Clear gives a new number, never used before in the shard.
    pub generation: u64,
    /// Events below this position are cleared.
    pub first_position: u64,
    /// The position the next event gets.
    pub next_position: u64,
    /// How many operations it has taken.
    pub operations: u64,
    /// Its state, in the encoding of whoever runs its operations.
    #[serde(with = "serde_bytes")]
    pub state: Vec<u8>,
    /// When it took the last operation, in milliseconds of UTC since 1970.
    pub updated_at: i64,
    /// The digest of the last operation's id: an operation that comes again at once is known without a
    /// look-up.
    pub last_operation: Option<[u8; 32]>,
}

impl Stored for Entity {
    const TABLE: Table = Table::Entity;
    const FORMAT: u8 = 1;
}

/// The row of an entity.
pub fn key(entity_type: &str, entity_key: &str) -> Key {
    KeyWriter::new(Table::Entity).text(entity_type).text(entity_key).key()
}

/// Type and key of an entity.
pub fn read_key(key: &Key) -> Result<(String, String), TableError> {
    let mut reader = KeyReader::new(Table::Entity, key)?;
    let fields = (reader.text()?, reader.text()?);
    reader.end(fields)
}

/// All entities of a type in the partition, in the order of their keys.
pub fn of_type(entity_type: &str) -> Scan {
    KeyWriter::new(Table::Entity).text(entity_type).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entity_survives_its_bytes(
            numbers: [u64; 4],
            state: Vec<u8>,
            updated_at: i64,
            last_operation: Option<[u8; 32]>,
        ) {
            let [generation, first_position, next_position, operations] = numbers;
            value_round_trips(&Entity {
                generation, first_position, next_position, operations, state, updated_at, last_operation,
            });
        }

        #[test]
        fn entities_sort_by_type_and_key(keys in prop::collection::vec(("[ab\u{0}]{0,2}", ".{0,8}"), 1..8)) {
            keys_round_trip_in_order(keys, |(kind, name)| key(kind, name), read_key);
        }
    }
}
