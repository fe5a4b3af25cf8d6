//! What an error of the engine means: the operating system failed, or stored bytes are damaged.

use abide_store::rows::{Key, Partition, StoreError};

/// A row whose bytes are not those that were written.
pub(crate) fn corrupt(partition: &Partition, key: Key, reason: String) -> StoreError {
    StoreError::Corrupt { partition: partition.clone(), key, reason }
}

/// Classifies the error of a read: an error of the operating system may be temporary, anything else is damage at or
/// after this row.
pub(crate) fn read_error(error: &fjall::Error, partition: &Partition, key: &Key) -> StoreError {
    match io_error(error) {
        Some(io) if !is_corruption(io) => StoreError::Unavailable { reason: io.to_string() },
        _ => corrupt(partition, key.clone(), error.to_string()),
    }
}

/// The operating system's error inside an engine error, if there is one.
pub(crate) fn io_error(error: &fjall::Error) -> Option<&std::io::Error> {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => Some(io),
        _ => None,
    }
}

fn is_corruption(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof | NotFound)
}
