//! The inbox of a shard: messages for its runs that are promised and not taken yet.
//!
//! A message is written in the commit that causes it and deleted in the commit of the turn that takes it, so it is lost in neither. Rows are
//! few: whoever is answered only when the turn is durable needs none. What a message says is not known here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// A message that waits for its turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// The instance it is for.
    pub instance_id: String,
    /// When the shard accepted it, in milliseconds of UTC since 1970.
    pub received_at: i64,
    /// The message, in the encoding of the runtime.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
}

impl Stored for Waiting {
    const TABLE: Table = Table::Inbox;
    const FORMAT: u8 = 1;
}

/// The row of a message. Sequences grow within a shard.
pub fn key(sequence: u64) -> Key {
    KeyWriter::new(Table::Inbox).u64(sequence).key()
}

/// The sequence of a message's key.
pub fn read_key(key: &Key) -> Result<u64, TableError> {
    let mut reader = KeyReader::new(Table::Inbox, key)?;
    let sequence = reader.u64()?;
    reader.end(sequence)
}

/// All messages nobody has taken, in the order they were accepted.
pub fn all() -> Scan {
    Table::Inbox.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_waiting_message_survives_its_bytes(instance_id: String, received_at: i64, message: Vec<u8>) {
            value_round_trips(&Waiting { instance_id, received_at, message });
        }

        #[test]
        fn messages_sort_by_sequence(keys: Vec<u64>) {
            keys_round_trip_in_order(keys, |sequence| key(*sequence), read_key);
        }
    }
}
