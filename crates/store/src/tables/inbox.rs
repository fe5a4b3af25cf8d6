//! The inbox of a run: messages it has been promised and has not taken yet.
//!
//! A message is written in the commit that accepts it and deleted in the commit of the turn that takes it, so
//! it is lost in neither. Sequences grow within a shard; a turn takes a prefix of them. What a message says
//! is not known here.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// A message that waits for its turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// When the shard accepted it, in milliseconds of UTC since 1970.
    pub received_at: i64,
    /// The message, in the encoding of whoever advances the run.
    pub message: Vec<u8>,
}

impl Stored for Waiting {
    const TABLE: Table = Table::Inbox;
    const FORMAT: u8 = 1;
}

/// The row of a run's message.
pub fn key(run: u64, sequence: u64) -> Key {
    KeyWriter::new(Table::Inbox).u64(run).u64(sequence).key()
}

/// Run and sequence of a message's key.
pub fn read_key(key: &Key) -> Result<(u64, u64), TableError> {
    let mut reader = KeyReader::new(Table::Inbox, key)?;
    let fields = (reader.u64()?, reader.u64()?);
    reader.end(fields)
}

/// All messages a run has not taken, in the order they were accepted.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Inbox).u64(run).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_waiting_message_survives_its_bytes(received_at: i64, message: Vec<u8>) {
            value_round_trips(&Waiting { received_at, message });
        }

        #[test]
        fn messages_sort_by_run_and_sequence(keys: Vec<(u64, u64)>) {
            keys_round_trip_in_order(keys, |(run, sequence)| key(*run, *sequence), read_key);
        }
    }
}
