//! Answers kept for callers who repeat themselves.
//!
//! The answer is written in the commit that did the work, so a caller who asks again gets the same answer and
//! the work is not done twice. An answer is kept until it expires; its row in [`super::expiries`] deletes it.
//! This table does not know what the caller repeats: only its digest, and a digest of what came with it, to
//! tell a repeat from a mistake.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::Key;

/// Requests that carry an `Idempotency-Key`.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// CloudEvents, told apart by source and id.
pub const CLOUD_EVENT: &str = "cloud-event";

/// Operations on entities, told apart by entity and the id that came with them.
pub const ENTITY_OPERATION: &str = "entity-operation";

/// Operations of engines, told apart by engine, operation and correlation id.
pub const ENGINE_OPERATION: &str = "engine-operation";

/// What a caller was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The digest of what was asked. The same key with another digest is refused, not answered.
    pub payload_digest: [u8; 32],
    /// When it was answered, in milliseconds of UTC since 1970.
    pub answered_at: i64,
    /// From when on a repeat is new work, in the same unit.
    pub expires_at: i64,
    /// The answer, in the encoding of whoever gave it.
    #[serde(with = "serde_bytes")]
    pub answer: Vec<u8>,
}

impl Stored for Answer {
    const TABLE: Table = Table::Dedupe;
    const FORMAT: u8 = 1;
}

/// The row of an answer. `digest` is of what the caller repeats, which may be longer than a key.
pub fn key(scope: &str, digest: &[u8; 32]) -> Key {
    KeyWriter::new(Table::Dedupe).text(scope).bytes(digest).key()
}

/// Scope and digest of an answer's key.
pub fn read_key(key: &Key) -> Result<(String, [u8; 32]), TableError> {
    let mut reader = KeyReader::new(Table::Dedupe, key)?;
    let fields = (reader.text()?, reader.array()?);
    reader.end(fields)
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_answer_survives_its_bytes(
            payload_digest: [u8; 32],
            answered_at: i64,
            expires_at: i64,
            answer: Vec<u8>,
        ) {
            value_round_trips(&Answer { payload_digest, answered_at, expires_at, answer });
        }

        #[test]
        fn answers_sort_by_scope_and_digest(
            keys in prop::collection::vec((".{0,8}", any::<[u8; 32]>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(scope, digest)| key(scope, digest), read_key);
        }
    }
}
