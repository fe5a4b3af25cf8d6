//! How values are encoded: the table's format version, then postcard.
//!
//! Fields are only ever appended under a new version number, and a table says what they are in rows that are older. A reader refuses what is newer
//! than itself instead of guessing.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Table;

/// A value of a table.
pub trait Stored: Serialize + DeserializeOwned {
    /// Whose.
    const TABLE: Table;
    /// The version this program writes, and the highest it reads.
    const FORMAT: u8;

    /// The bytes of the fields that were appended since an older version, as rows of it have them.
    fn appended_since(_format: u8) -> &'static [u8] {
        &[]
    }
}

/// Why stored bytes are not a row of a table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// Written by a newer program.
    #[error("a row of table {table:?} has format {found}; this program reads up to {supported}")]
    NewerFormat {
        /// Whose.
        table: Table,
        /// The version found.
        found: u8,
        /// The highest this program reads.
        supported: u8,
    },
    /// Not a value of this table at all.
    #[error("a value of table {table:?} cannot be read: {reason}")]
    Value {
        /// Whose.
        table: Table,
        /// What the decoder said.
        reason: String,
    },
    /// Not a key of this table at all.
    #[error("a key of table {table:?} cannot be read: {reason}")]
    Key {
        /// Whose.
        table: Table,
        /// What is wrong.
        reason: &'static str,
    },
}

/// The bytes of a value.
pub fn encode<T: Stored>(value: &T) -> Vec<u8> {
    // Most values are smaller, and a few grow.
    const USUAL_BYTES: usize = 256;
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.push(T::FORMAT);
    // Writing to memory fails only for types that postcard cannot express at all; each table's round-trip test would.
    postcard::to_extend(value, bytes).unwrap_or_default()
}

/// The value of these bytes. Every byte must be used: what is left over is damage, not an extension.
pub fn decode<T: Stored>(bytes: &[u8]) -> Result<T, TableError> {
    let malformed = |reason: &str| TableError::Value { table: T::TABLE, reason: reason.to_owned() };
    let (format, rest) = bytes.split_first().ok_or_else(|| malformed("it is empty"))?;
    if *format > T::FORMAT {
        return Err(TableError::NewerFormat { table: T::TABLE, found: *format, supported: T::FORMAT });
    }
    if *format == 0 {
        return Err(malformed("format 0 was never written"));
    }
    let completed;
    let rest = if *format < T::FORMAT {
        completed = [rest, T::appended_since(*format)].concat();
        &completed
    } else {
        rest
    };
    match postcard::take_from_bytes(rest) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(malformed("bytes are left over")),
        Err(error) => Err(malformed(&error.to_string())),
    }
}

#[cfg(test)]
pub(super) mod laws {
    //! What every table's test states of its codec.

    use super::*;
    use crate::rows::Key;

    /// A value survives its bytes; no prefix of them, no longer text and no newer version is taken for a value.
    pub(crate) fn value_round_trips<T: Stored + PartialEq + std::fmt::Debug>(value: &T) {
        let bytes = encode(value);
        assert_eq!(decode::<T>(&bytes).as_ref(), Ok(value));
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode::<T>(&longer).is_err());
        assert!(bytes.split_last().is_some_and(|(_, shorter)| decode::<T>(shorter).is_err()));
        let mut newer = bytes;
        newer[0] = T::FORMAT + 1;
        assert!(matches!(decode::<T>(&newer), Err(TableError::NewerFormat { .. })));
    }

    /// A key survives its bytes, keys sort as what they mean, and every cut of one is refused.
    pub(crate) fn keys_round_trip_in_order<K: Ord + std::fmt::Debug>(
        mut keys: Vec<K>,
        write: impl Fn(&K) -> Key,
        read: impl Fn(&Key) -> Result<K, TableError>,
    ) {
        keys.sort();
        let written: Vec<Key> = keys.iter().map(&write).collect();
        assert!(written.is_sorted(), "{keys:?} sort otherwise than their bytes");
        for (key, bytes) in keys.iter().zip(&written) {
            assert_eq!(read(bytes).as_ref(), Ok(key));
            for cut in 0..bytes.as_bytes().len() {
                let shorter = Key::new(&bytes.as_bytes()[..cut]);
                assert_ne!(read(&shorter).as_ref(), Ok(key));
            }
        }
    }
}
