//! Parts of a run, as of its last fold: the smallest pieces of its state that change on their own.
//!
//! Here a part is a name and bytes; only the interpreter knows what they mean. A name too long for a key is stored in
//! the value. Parts are written when the run becomes idle, not in every turn: until then the newer bytes are in
//! [`super::history_pages`].

use abide_ids::{PageNumber, RunId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartRow {
    /// The page that last changed it.
    pub page: PageNumber,
    /// The name, if it is too long for the key.
    #[serde(with = "serde_bytes")]
    pub long_name: Option<Vec<u8>>,
    /// The content, in the encoding of the interpreter.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// A name of this length or longer is cut in the key: its beginning and its digest together have this length.
const NAME_BYTES_MAX: usize = 320;
const DIGEST_BYTES: usize = 32;

impl PartRow {
    /// The row of the part with this name. The name goes into the row only if it is too long for the key.
    pub fn new(name: &[u8], page: PageNumber, bytes: Vec<u8>) -> Self {
        let long_name = (name.len() >= NAME_BYTES_MAX).then(|| name.to_vec());
        Self { page, long_name, bytes }
    }
}

impl TableRow for PartRow {
    const TABLE: TableId = TableId::Part;
    const FORMAT: u8 = 1;
}

/// The key of a part. The name fills the rest of the key, so the parts of a run sort by name, except for very long
/// names.
pub fn key(run_id: RunId, name: &[u8]) -> Key {
    let writer = KeyWriter::new(TableId::Part).run_id(run_id);
    match name.get(..NAME_BYTES_MAX - DIGEST_BYTES) {
        Some(beginning) if name.len() >= NAME_BYTES_MAX => {
            writer.bytes(beginning).bytes(&Sha256::digest(name)).key()
        }
        _ => writer.bytes(name).key(),
    }
}

/// The run and the name of a part, from its key and its row.
pub fn read_key(key: &Key, part: &PartRow) -> Result<(RunId, Vec<u8>), TableError> {
    let mut reader = KeyReader::new(TableId::Part, key)?;
    let run_id = reader.run_id()?;
    let name = reader.rest();
    match &part.long_name {
        None => Ok((run_id, name.to_vec())),
        Some(long) if self::key(run_id, long) == *key => Ok((run_id, long.clone())),
        Some(_) => Err(TableError::InvalidKey {
            table: TableId::Part,
            reason: "it does not match the name in its row",
        }),
    }
}

/// All parts of a run, in the order of their keys.
pub fn of_run(run_id: RunId) -> Scan {
    KeyWriter::new(TableId::Part).run_id(run_id).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_round_trips(page: PageNumber, name: Vec<u8>, bytes: Vec<u8>) {
            value_round_trips(&PartRow::new(&name, page, bytes));
        }

        #[test]
        fn parts_sort_by_run_and_name(
            keys in prop::collection::vec((0..3u64, prop::collection::vec(any::<u8>(), 0..12)), 1..8),
        ) {
            let short = PartRow::new(b"", PageNumber(1), vec![]);
            keys_round_trip_in_order(keys, |(run, name)| key(RunId(*run), name), |key| read_key(key, &short).map(|(run_id, name)| (run_id.0, name)));
        }

        #[test]
        fn long_names_with_a_common_beginning_have_different_keys(length in 300usize..4_200, other in 300usize..4_200) {
            let (name, other) = (vec![b'n'; length], vec![b'n'; other]);
            let part = PartRow::new(&name, PageNumber(1), vec![]);
            prop_assert!(key(RunId(1), &name).as_bytes().len() <= crate::rows::StoreLimits::GUARANTEED.key_bytes_max);
            prop_assert_eq!(read_key(&key(RunId(1), &name), &part), Ok((RunId(1), name.clone())));
            prop_assert_eq!(key(RunId(1), &name) == key(RunId(1), &other), name == other);
        }
    }
}
