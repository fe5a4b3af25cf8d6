//! The address and the version of a row: partitions, keys, versions.
//!
//! All three are opaque: the tables know what a key means, and only the backend that made a version knows its bytes.

use std::fmt;
use std::sync::Arc;

/// The unit of atomicity and of ownership: one shard, one inbox, one registry, one poller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(Box<str>);

/// Why a text cannot name a partition.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a partition name has 1 to {max} bytes and no control characters; got {length} bytes", max = Partition::BYTES_MAX)]
pub struct PartitionError {
    length: usize,
}

impl Partition {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 128;

    /// Names a partition. Control characters are rejected, so that backends may use them as separators.
    pub fn new(name: &str) -> Result<Self, PartitionError> {
        if name.is_empty() || name.len() > Self::BYTES_MAX || name.chars().any(char::is_control) {
            return Err(PartitionError { length: name.len() });
        }
        Ok(Self(name.into()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies a row in its partition. Keys sort by their bytes, on every backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// The version of a row. Opaque: compared for equality only, because a backend may use an ETag, a counter or a
/// transaction id. Order comes from sequence numbers in values.
///
/// A row never has the same version twice, not even after it was deleted and written again.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RowVersion(Arc<[u8]>);

impl RowVersion {
    /// For backends: makes a version of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// For backends: the bytes that the version was made of.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for RowVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Version(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// A row as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub key: Key,
    /// The bytes, in an encoding that only the table's own file knows.
    pub value: Vec<u8>,
    /// The version that a later write of this row gives as its precondition.
    pub version: RowVersion,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_without_a_name_or_with_control_characters_is_refused() {
        assert!(Partition::new("").is_err());
        assert!(Partition::new("a\0b").is_err());
        assert!(Partition::new("a\u{85}b").is_err());
        assert!(Partition::new(&"x".repeat(Partition::BYTES_MAX + 1)).is_err());
        assert_eq!(Partition::new("shard/0017").unwrap().name(), "shard/0017");
    }
}
