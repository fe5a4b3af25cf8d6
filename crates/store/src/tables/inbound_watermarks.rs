//! Inbound watermarks: the number of the last message that a shard has taken over from each source.
//!
//! The number is written in the commit that takes the message over. The message numbers of a source never decrease, so
//! one number is enough to drop every repeat, however late it arrives: there is no window that could be too short. The
//! messages are not known here; [`super::inbound`] has them until they are taken over.

use abide_ids::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InboundWatermarkRow {
    /// The last number taken over; messages with this number or a lower one are repeats.
    pub last_number: Sequence,
    /// When the last message was taken over. A node's sources are new in every
    /// incarnation, so rows of old incarnations are not needed any more.
    pub updated_at: Timestamp,
}

impl TableRow for InboundWatermarkRow {
    const TABLE: TableId = TableId::InboundWatermark;
    const FORMAT: u8 = 1;
}

/// The key of a source's watermark.
pub fn key(source: &str) -> Key {
    KeyWriter::new(TableId::InboundWatermark).text(source).key()
}

/// The source in a key.
pub fn read_key(key: &Key) -> Result<String, TableError> {
    let mut reader = KeyReader::new(TableId::InboundWatermark, key)?;
    let source = reader.text()?;
    reader.finish(source)
}

/// The watermarks of all sources, by source name.
pub fn all() -> Scan {
    TableId::InboundWatermark.scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_watermark_round_trips(last_number: Sequence, updated_at: Timestamp) {
            value_round_trips(&InboundWatermarkRow { last_number, updated_at });
        }

        #[test]
        fn watermarks_sort_by_source(sources in prop::collection::vec(".{0,20}", 1..8)) {
            keys_round_trip_in_order(sources, |source| key(source), read_key);
        }
    }
}
