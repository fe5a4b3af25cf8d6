//! Arrivals: messages for a shard, written by nodes that do not own it.
//!
//! They are in the shard's inbox partition, not in the shard's own, because only the owner may write there.
//! The owner takes them over in the order of their numbers, notes the number in [`super::sources`] in the
//! same commit, and deletes them here afterwards. A row that is found again after a crash has a number that
//! was taken already.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// A message that the owner of the shard has not taken over yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Arrival {
    /// The instance it is for.
    pub instance_id: String,
    /// The message, in the encoding the sender and the owner share.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
    /// When it was sent by the sender's clock, in milliseconds of UTC since 1970. For people; order comes
    /// from the number.
    pub sent_at: i64,
}

impl Stored for Arrival {
    const TABLE: Table = Table::Arrival;
    const FORMAT: u8 = 1;
}

/// The row of a message. The source gives the numbers: one for each message to this shard, growing.
pub fn key(source: &str, number: u64) -> Key {
    KeyWriter::new(Table::Arrival).text(source).u64(number).key()
}

/// Source and number of a message's key.
pub fn read_key(key: &Key) -> Result<(String, u64), TableError> {
    let mut reader = KeyReader::new(Table::Arrival, key)?;
    let fields = (reader.text()?, reader.u64()?);
    reader.end(fields)
}

/// All messages of all sources: by source, then in the order they were sent.
pub fn all() -> Scan {
    Table::Arrival.scan()
}

/// All messages of a source, in the order they were sent.
pub fn of_source(source: &str) -> Scan {
    KeyWriter::new(Table::Arrival).text(source).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_arrival_survives_its_bytes(instance_id in ".{0,40}", message: Vec<u8>, sent_at: i64) {
            value_round_trips(&Arrival { instance_id, message, sent_at });
        }

        #[test]
        fn arrivals_sort_by_source_and_number(
            keys in prop::collection::vec((".{0,8}", any::<u64>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(source, number)| key(source, *number), read_key);
        }
    }
}
