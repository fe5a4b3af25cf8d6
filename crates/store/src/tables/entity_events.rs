//! Events that entities have recorded, in the order they were recorded.
//!
//! Keyed by the entity's generation and not by its name: a Clear gives the entity a new generation in one
//! commit, and the sweeper deletes the events of the old one later. Which entity a generation belongs to is
//! in [`super::entities`] only.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EntityEvent {
    /// When it was recorded, in milliseconds of UTC since 1970.
    pub recorded_at: i64,
    /// The digest of the id of the operation that recorded it.
    pub operation: [u8; 32],
    /// The event, in the encoding of whoever runs the entity's operations.
    #[serde(with = "serde_bytes")]
    pub event: Vec<u8>,
}

impl Stored for EntityEvent {
    const TABLE: Table = Table::EntityEvent;
    const FORMAT: u8 = 1;
}

/// The row of an event.
pub fn key(generation: u64, position: u64) -> Key {
    KeyWriter::new(Table::EntityEvent).u64(generation).u64(position).key()
}

/// Generation and position of an event's key.
pub fn read_key(key: &Key) -> Result<(u64, u64), TableError> {
    let mut reader = KeyReader::new(Table::EntityEvent, key)?;
    let fields = (reader.u64()?, reader.u64()?);
    reader.end(fields)
}

/// All events of a generation, in order.
pub fn of_generation(generation: u64) -> Scan {
    KeyWriter::new(Table::EntityEvent).u64(generation).scan()
}

/// The events of a generation from this position on, in order.
pub fn from_position(generation: u64, position: u64) -> Scan {
    Scan { from: Bound::Included(key(generation, position)), ..of_generation(generation) }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_event_survives_its_bytes(recorded_at: i64, operation: [u8; 32], event: Vec<u8>) {
            value_round_trips(&EntityEvent { recorded_at, operation, event });
        }

        #[test]
        fn events_sort_by_generation_and_position(keys: Vec<(u64, u64)>) {
            keys_round_trip_in_order(keys, |(generation, position)| key(*generation, *position), read_key);
        }

        #[test]
        fn a_scan_begins_at_its_position_and_ends_with_its_generation(
            generation in 0..3u64,
            position in 0..3u64,
            asked in (0..3u64, 0..3u64),
        ) {
            let scan = from_position(asked.0, asked.1);
            let expected = generation == asked.0 && position >= asked.1;
            prop_assert_eq!((scan.from, scan.until).contains(&key(generation, position)), expected);
        }
    }
}
