//! The outbox: messages to other partitions, committed together with the turn that sends them.
//!
//! A row is deleted once its target has stored the message durably; until then it is sent again. Numbers grow per
//! target and are never reused, so the target can drop repeats by the last number it took over. The content of a
//! message is not known here. Rows for [`PUBLIC_INDEX_TARGET`] are no messages: they are the markers of the public
//! index.

use abide_ids::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The target of rows for the public index. Every other target is the name of a partition, which has no control
/// characters.
pub const PUBLIC_INDEX_TARGET: &str = "\u{1}public";

/// A message that its target may not have stored yet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutboxRow {
    /// When the message was committed. Tells how far the target is behind.
    pub created_at: Timestamp,
    /// The message, in the encoding that the sender and the target share.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
}

impl TableRow for OutboxRow {
    const TABLE: TableId = TableId::Outbox;
    const FORMAT: u8 = 1;
}

/// The key of a message to a target.
pub fn key(target: &str, number: Sequence) -> Key {
    KeyWriter::new(TableId::Outbox).text(target).u64(number.0).key()
}

/// The target and the number in a key.
pub fn read_key(key: &Key) -> Result<(String, Sequence), TableError> {
    let mut reader = KeyReader::new(TableId::Outbox, key)?;
    let fields = (reader.text()?, Sequence(reader.u64()?));
    reader.finish(fields)
}

/// All messages of all targets: by target, then in the order they were committed.
pub fn all() -> Scan {
    TableId::Outbox.scan()
}

/// All messages to a target, in the order they were committed.
pub fn to_target(target: &str) -> Scan {
    KeyWriter::new(TableId::Outbox).text(target).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_outbox_message_round_trips(created_at: Timestamp, message: Vec<u8>) {
            value_round_trips(&OutboxRow { created_at, message });
        }

        #[test]
        fn messages_sort_by_target_and_number(
            keys in prop::collection::vec((".{0,8}", any::<Sequence>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(target, number)| key(target, *number), read_key);
        }
    }
}
