//! Payloads too large for the rows that refer to them.
//!
//! Rows that change often should be small, so a payload over [`INLINE_BYTES_MAX`] is stored once in its run
//! and referred to by its digest. A payload never changes: the same digest is the same bytes. Who refers to
//! it is not known here; it goes with its run, or earlier by a row in [`super::expiries`].

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// The largest payload that stays in the row it belongs to, in bytes.
pub const INLINE_BYTES_MAX: usize = 4096;

/// One payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Payload {
    /// Its bytes, in the encoding of whoever made it.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

impl Stored for Payload {
    const TABLE: Table = Table::Payload;
    const FORMAT: u8 = 1;
}

/// The row of a run's payload.
pub fn key(run: u64, digest: &[u8; 32]) -> Key {
    KeyWriter::new(Table::Payload).u64(run).bytes(digest).key()
}

/// Run and digest of a payload's key.
pub fn read_key(key: &Key) -> Result<(u64, [u8; 32]), TableError> {
    let mut reader = KeyReader::new(Table::Payload, key)?;
    let fields = (reader.u64()?, reader.array()?);
    reader.end(fields)
}

/// All payloads of a run, in no order that means anything.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Payload).u64(run).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_payload_survives_its_bytes(bytes: Vec<u8>) {
            value_round_trips(&Payload { bytes });
        }

        #[test]
        fn payloads_sort_by_run_and_digest(
            keys in prop::collection::vec((0..3u64, any::<[u8; 32]>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(run, digest)| key(*run, digest), read_key);
        }
    }
}
