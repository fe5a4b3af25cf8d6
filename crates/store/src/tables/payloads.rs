//! Payloads too large for the rows that refer to them.
//!
//! Rows that change often should be small, so a payload over [`INLINE_BYTES_MAX`] is stored once in its run, and other
//! rows refer to it by its digest. A payload never changes: the same digest means the same bytes. The rows that refer
//! to it are not known here. A payload is deleted with its run, or earlier by a row in [`super::expiries`].

use abide_ids::{Digest, RunId};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The largest payload that stays in the row it belongs to, in bytes.
pub const INLINE_BYTES_MAX: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PayloadRow {
    /// The payload, in the encoding of the row that refers to it.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

impl TableRow for PayloadRow {
    const TABLE: TableId = TableId::Payload;
    const FORMAT: u8 = 1;
}

/// The key of a run's payload.
pub fn key(run_id: RunId, digest: &Digest) -> Key {
    KeyWriter::new(TableId::Payload).run_id(run_id).digest(digest).key()
}

/// The run and the digest in a key.
pub fn read_key(key: &Key) -> Result<(RunId, Digest), TableError> {
    let mut reader = KeyReader::new(TableId::Payload, key)?;
    let fields = (reader.run_id()?, reader.digest()?);
    reader.finish(fields)
}

/// All payloads of a run, in no meaningful order.
pub fn of_run(run_id: RunId) -> Scan {
    KeyWriter::new(TableId::Payload).run_id(run_id).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_payload_round_trips(bytes: Vec<u8>) {
            value_round_trips(&PayloadRow { bytes });
        }

        #[test]
        fn payloads_sort_by_run_and_digest(
            keys in prop::collection::vec((0..3u64, any::<Digest>()), 1..8),
        ) {
            let keys = keys.into_iter().map(|(run, digest)| (RunId(run), digest)).collect();
            keys_round_trip_in_order(keys, |(run_id, digest)| key(*run_id, digest), read_key);
        }
    }
}
