//! Parts of a run, as of its last fold: the smallest pieces of its state that change on their own.
//!
//! What a part is and how its bytes read is the business of whoever advances the run; here a part has a name
//! and bytes. A name too long for a key is stored with its bytes. Parts are written when the run rests, not in every turn: until then the newer bytes are in
//! [`super::pages`].

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// One part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The turn that last changed it.
    pub turn: u64,
    /// Its name, if that is too long for the row's key.
    #[serde(with = "serde_bytes")]
    pub long_name: Option<Vec<u8>>,
    /// Its bytes, in the encoding of whoever advances the run.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// The longest name that stands in a key as it is. A longer one is cut to this length less a digest, and the digest follows.
const NAME_BYTES_MAX: usize = 320;
const DIGEST_BYTES: usize = 32;

impl Part {
    /// The row of this name and these bytes.
    pub fn new(name: &[u8], turn: u64, bytes: Vec<u8>) -> Self {
        let long_name = (name.len() >= NAME_BYTES_MAX).then(|| name.to_vec());
        Self { turn, long_name, bytes }
    }
}

impl Stored for Part {
    const TABLE: Table = Table::Part;
    const FORMAT: u8 = 1;
}

/// The row of a part. The part's name fills the rest, so that parts of a run sort as their names do, up to very long ones.
pub fn key(run: u64, name: &[u8]) -> Key {
    let writer = KeyWriter::new(Table::Part).u64(run);
    match name.get(..NAME_BYTES_MAX - DIGEST_BYTES) {
        Some(beginning) if name.len() >= NAME_BYTES_MAX => {
            writer.bytes(beginning).bytes(&Sha256::digest(name)).key()
        }
        _ => writer.bytes(name).key(),
    }
}

/// Run and name of a part's row.
pub fn read_key(key: &Key, part: &Part) -> Result<(u64, Vec<u8>), TableError> {
    let mut reader = KeyReader::new(Table::Part, key)?;
    let run = reader.u64()?;
    let name = reader.rest();
    match &part.long_name {
        None => Ok((run, name.to_vec())),
        Some(long) if self::key(run, long) == *key => Ok((run, long.clone())),
        Some(_) => {
            Err(TableError::Key { table: Table::Part, reason: "it is not that of the name in its row" })
        }
    }
}

/// All parts of a run, in the order of their keys.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Part).u64(run).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_survives_its_bytes(turn: u64, name: Vec<u8>, bytes: Vec<u8>) {
            value_round_trips(&Part::new(&name, turn, bytes));
        }

        #[test]
        fn parts_sort_by_run_and_name(
            keys in prop::collection::vec((0..3u64, prop::collection::vec(any::<u8>(), 0..12)), 1..8),
        ) {
            let short = Part::new(b"", 1, vec![]);
            keys_round_trip_in_order(keys, |(run, name)| key(*run, name), |key| read_key(key, &short));
        }

        #[test]
        fn a_long_name_is_told_from_others_with_its_beginning(length in 300usize..4_200, other in 300usize..4_200) {
            let (name, other) = (vec![b'n'; length], vec![b'n'; other]);
            let part = Part::new(&name, 1, vec![]);
            prop_assert!(key(1, &name).as_bytes().len() <= crate::rows::Limits::LEAST.key_bytes_max);
            prop_assert_eq!(read_key(&key(1, &name), &part), Ok((1, name.clone())));
            prop_assert_eq!(key(1, &name) == key(1, &other), name == other);
        }
    }
}
