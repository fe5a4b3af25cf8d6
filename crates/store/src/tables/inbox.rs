//! The inbox of a shard: messages for its runs that are accepted and not processed yet.
//!
//! A message is written in the commit that causes it and deleted in the commit of the turn that processes it, so
//! neither can lose it. Rows are few: a message whose sender gets its reply only after the turn is durable needs none.
//! The content of a message is not known here.

use abide_ids::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// A message that waits for its turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InboxRow {
    /// The instance that the message is for.
    pub instance_id: String,
    /// When the shard accepted the message.
    pub received_at: Timestamp,
    /// The message, in the encoding of the runtime.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
}

impl TableRow for InboxRow {
    const TABLE: TableId = TableId::Inbox;
    const FORMAT: u8 = 1;
}

/// The key of a message. Sequences grow within a shard.
pub fn key(sequence: Sequence) -> Key {
    KeyWriter::new(TableId::Inbox).u64(sequence.0).key()
}

/// The sequence in a key.
pub fn read_key(key: &Key) -> Result<Sequence, TableError> {
    let mut reader = KeyReader::new(TableId::Inbox, key)?;
    let sequence = Sequence(reader.u64()?);
    reader.finish(sequence)
}

/// All messages that are not processed yet, in the order they were accepted.
pub fn all() -> Scan {
    TableId::Inbox.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_inbox_message_round_trips(instance_id: String, received_at: Timestamp, message: Vec<u8>) {
            value_round_trips(&InboxRow { instance_id, received_at, message });
        }

        #[test]
        fn messages_sort_by_sequence(keys: Vec<Sequence>) {
            keys_round_trip_in_order(keys, |sequence| key(*sequence), read_key);
        }
    }
}
