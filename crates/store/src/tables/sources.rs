//! Sources: the last number a shard has taken over from each sender of arrivals.
//!
//! The number is written in the commit that takes the message over. A source numbers its messages without
//! going back, so one number is enough to drop every repeat, however late it comes: there is no window that
//! could be too short. What the messages were is not known here; [`super::arrivals`] has them until they are
//! taken.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// How far a source has been taken over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Taken {
    /// The last number taken over; this one and all below are repeats.
    pub number: u64,
    /// When that was, in milliseconds of UTC since 1970. A node's sources are new in every incarnation, so old rows
    /// are deleted by retention.
    pub taken_at: i64,
}

impl Stored for Taken {
    const TABLE: Table = Table::Source;
    const FORMAT: u8 = 1;
}

/// The row of a source.
pub fn key(source: &str) -> Key {
    KeyWriter::new(Table::Source).text(source).key()
}

/// The source of a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(Table::Source, key)?;
    let source = reader.text()?;
    reader.end(source)
}

/// All sources the shard has heard of, by name.
pub fn all() -> Scan {
    Table::Source.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_taken_number_survives_its_bytes(number: u64, taken_at: i64) {
            value_round_trips(&Taken { number, taken_at });
        }

        #[test]
        fn sources_sort_by_name(sources in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(sources, |source| key(source), read_key);
        }
    }
}
