//! The encoding of values: the table's format version, then postcard.
//!
//! The codec knows no table: each declares its own version. Fields are only ever appended, under a new version, and the
//! table declares the bytes that stand for them in older rows. A reader rejects a newer version instead of guessing.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TableId;

/// The value of a row of one table.
pub trait TableRow: Serialize + DeserializeOwned {
    const TABLE: TableId;
    /// The format version that this program writes, and the highest it reads.
    const FORMAT: u8;

    /// The bytes that stand for the fields appended since this older format.
    fn default_suffix(_format: u8) -> &'static [u8] {
        &[]
    }
}

/// Why stored bytes are not a row of a table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableError {
    /// A newer program wrote the row.
    #[error("a row of table {table:?} has format {found}; this program reads up to format {supported}")]
    NewerFormat { table: TableId, found: u8, supported: u8 },
    /// The bytes are not a value of this table.
    #[error("a value of table {table:?} cannot be read: {reason}")]
    InvalidValue { table: TableId, reason: String },
    /// The bytes are not a key of this table.
    #[error("a key of table {table:?} cannot be read: {reason}")]
    InvalidKey { table: TableId, reason: &'static str },
}

/// Encodes a value.
pub fn encode<T: TableRow>(value: &T) -> Vec<u8> {
    // Most values are smaller, and a few grow.
    const USUAL_BYTES: usize = 256;
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.push(T::FORMAT);
    // Writing to memory fails only for types that postcard cannot express at all; each table's round-trip test would
    // fail.
    postcard::to_extend(value, bytes).unwrap_or_default()
}

/// Decodes a value. Every byte must be used: bytes left over are damage, not an extension.
pub fn decode<T: TableRow>(bytes: &[u8]) -> Result<T, TableError> {
    let malformed = |reason: &str| TableError::InvalidValue { table: T::TABLE, reason: reason.to_owned() };
    let (format, rest) = bytes.split_first().ok_or_else(|| malformed("it is empty"))?;
    if *format > T::FORMAT {
        return Err(TableError::NewerFormat { table: T::TABLE, found: *format, supported: T::FORMAT });
    }
    if *format == 0 {
        return Err(malformed("format 0 was never written"));
    }
    let completed;
    let rest = if *format < T::FORMAT {
        completed = [rest, T::default_suffix(*format)].concat();
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
    //! The properties that every table's tests check.

    use super::*;
    use crate::rows::Key;

    /// Encoding and decoding gives the same value. Shorter bytes, longer bytes and a newer version are rejected.
    pub(crate) fn value_round_trips<T: TableRow + PartialEq + std::fmt::Debug>(value: &T) {
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

    /// Encoding and decoding gives the same key. Keys sort as their fields do, and no prefix of a key is read as that
    /// key.
    pub(crate) fn keys_round_trip_in_order<K: Ord + std::fmt::Debug>(
        mut keys: Vec<K>,
        write: impl Fn(&K) -> Key,
        read: impl Fn(&Key) -> Result<K, TableError>,
    ) {
        keys.sort();
        let written: Vec<Key> = keys.iter().map(&write).collect();
        assert!(written.is_sorted(), "{keys:?} do not sort as their bytes do");
        for (key, bytes) in keys.iter().zip(&written) {
            assert_eq!(read(bytes).as_ref(), Ok(key));
            for cut in 0..bytes.as_bytes().len() {
                let shorter = Key::new(&bytes.as_bytes()[..cut]);
                assert_ne!(read(&shorter).as_ref(), Ok(key));
            }
        }
    }
}
