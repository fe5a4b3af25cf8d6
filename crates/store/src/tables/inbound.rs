//! Inbound messages: messages for a shard, written by nodes that do not own it.
//!
//! They are in the shard's inbound partition, not in the shard's own, because only the owner may write to the shard's
//! own. The owner takes them over in the order of their numbers, records the number in [`super::inbound_watermarks`] in
//! the same commit, and deletes them here afterwards. A row that is read again after a crash has a number that was
//! already taken over. The content of a message is not known here.

use abide_ids::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// A message that the owner of the shard has not taken over yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InboundRow {
    /// The instance that the message is for.
    pub instance_id: String,
    /// The message, in the encoding that the sender and the owner share.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
    /// When the message was sent by the sender's clock. For people; the number gives
    /// the order.
    pub sent_at: Timestamp,
}

impl TableRow for InboundRow {
    const TABLE: TableId = TableId::Inbound;
    const FORMAT: u8 = 1;
}

/// The key of a message. The source assigns the numbers: one for each message to this shard, increasing.
pub fn key(source: &str, number: Sequence) -> Key {
    KeyWriter::new(TableId::Inbound).text(source).u64(number.0).key()
}

/// The source and the number in a key.
pub fn read_key(key: &Key) -> Result<(String, Sequence), TableError> {
    let mut reader = KeyReader::new(TableId::Inbound, key)?;
    let fields = (reader.text()?, Sequence(reader.u64()?));
    reader.finish(fields)
}

/// All messages of all sources: by source, then in the order they were sent.
pub fn all() -> Scan {
    TableId::Inbound.scan()
}

/// All messages of a source, in the order they were sent.
pub fn of_source(source: &str) -> Scan {
    KeyWriter::new(TableId::Inbound).text(source).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_inbound_message_round_trips(instance_id in ".{0,40}", message: Vec<u8>, sent_at: Timestamp) {
            value_round_trips(&InboundRow { instance_id, message, sent_at });
        }

        #[test]
        fn inbound_messages_sort_by_source_and_number(
            keys in prop::collection::vec((".{0,8}", any::<Sequence>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(source, number)| key(source, *number), read_key);
        }
    }
}
