//! The outbox: messages for elsewhere, committed together with the turn that sends them.
//!
//! A row is deleted once its target has it durably; until then it is sent again. Numbers grow per target and
//! are never used again, so the target can drop repeats by the last number it took. What a message says is
//! not known here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// The target of rows for the public tables. Every other target is the name of a partition, which has no control characters.
pub const PUBLIC: &str = "\u{1}public";

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outgoing {
    /// When it was committed, in milliseconds of UTC since 1970: how far the target is behind.
    pub created_at: i64,
    /// The message, in the encoding the sender and the target share.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
}

impl Stored for Outgoing {
    const TABLE: Table = Table::Outbox;
    const FORMAT: u8 = 1;
}

/// The row of a message to a target.
pub fn key(target: &str, number: u64) -> Key {
    KeyWriter::new(Table::Outbox).text(target).u64(number).key()
}

/// Target and number of a message's key.
pub fn read_key(key: &Key) -> Result<(String, u64), TableError> {
    let mut reader = KeyReader::new(Table::Outbox, key)?;
    let fields = (reader.text()?, reader.u64()?);
    reader.end(fields)
}

/// All messages of all targets: by target, then in the order they were committed.
pub fn all() -> Scan {
    Table::Outbox.scan()
}

/// All messages to a target, in the order they were committed.
pub fn to_target(target: &str) -> Scan {
    KeyWriter::new(Table::Outbox).text(target).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_outgoing_message_survives_its_bytes(created_at: i64, message: Vec<u8>) {
            value_round_trips(&Outgoing { created_at, message });
        }

        #[test]
        fn messages_sort_by_target_and_number(
            keys in prop::collection::vec((".{0,8}", any::<u64>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(target, number)| key(target, *number), read_key);
        }
    }
}
