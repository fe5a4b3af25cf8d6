//! Events that entities have recorded, in the order they were recorded.
//!
//! Events are keyed by the entity's generation, not by its name: a Clear gives the entity a new generation in one
//! commit, and the sweeper deletes the events of the old one later. Only [`super::entities`] knows the entity of a
//! generation.

use std::ops::Bound;

use abide_ids::{Digest, KeyDigest, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EntityEventRow {
    pub recorded_at: Timestamp,
    /// The digest of the id of the operation that recorded the event.
    #[serde(with = "operation_digest")]
    pub operation_digest: Option<KeyDigest>,
    /// The event, in the encoding of the runtime.
    #[serde(with = "serde_bytes")]
    pub event: Vec<u8>,
}

/// An operation without an id has a digest of zeros in its row.
mod operation_digest {
    use super::{Deserialize, Digest, KeyDigest};
    use serde::{Deserializer, Serialize, Serializer};

    const NONE: KeyDigest = KeyDigest(Digest([0; 32]));

    pub(super) fn serialize<S: Serializer>(
        digest: &Option<KeyDigest>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        digest.unwrap_or(NONE).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<KeyDigest>, D::Error> {
        KeyDigest::deserialize(deserializer).map(|digest| Some(digest).filter(|digest| *digest != NONE))
    }
}

impl TableRow for EntityEventRow {
    const TABLE: TableId = TableId::EntityEvent;
    const FORMAT: u8 = 1;
}

/// The key of an event.
pub fn key(generation: u64, position: u64) -> Key {
    KeyWriter::new(TableId::EntityEvent).u64(generation).u64(position).key()
}

/// The generation and the position in a key.
pub fn read_key(key: &Key) -> Result<(u64, u64), TableError> {
    let mut reader = KeyReader::new(TableId::EntityEvent, key)?;
    let fields = (reader.u64()?, reader.u64()?);
    reader.finish(fields)
}

/// All events of a generation, in order.
pub fn of_generation(generation: u64) -> Scan {
    KeyWriter::new(TableId::EntityEvent).u64(generation).scan()
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

    /// These bytes are stored: they must never change.
    #[test]
    fn an_operation_without_an_id_is_stored_with_a_digest_of_zeros() {
        let event = EntityEventRow { recorded_at: Timestamp(1), operation_digest: None, event: vec![] };
        assert_eq!(postcard::to_stdvec(&event), postcard::to_stdvec(&(1i64, [0u8; 32], "")));
    }

    proptest! {
        #[test]
        fn an_event_round_trips(recorded_at: Timestamp, operation_digest: Option<KeyDigest>, event: Vec<u8>) {
            value_round_trips(&EntityEventRow { recorded_at, operation_digest, event });
        }

        #[test]
        fn events_sort_by_generation_and_position(keys: Vec<(u64, u64)>) {
            keys_round_trip_in_order(keys, |(generation, position)| key(*generation, *position), read_key);
        }

        #[test]
        fn a_scan_begins_at_its_position_and_ends_with_its_generation(
            generation in 0..3u64,
            position in 0..3u64,
            start in (0..3u64, 0..3u64),
        ) {
            let scan = from_position(start.0, start.1);
            let expected = generation == start.0 && position >= start.1;
            prop_assert_eq!((scan.from, scan.until).contains(&key(generation, position)), expected);
        }
    }
}
