//! Stored replies: idempotency records of requests that callers may repeat.
//!
//! The reply is written in the commit that did the work, so a repeated request gets the same reply and the work is not
//! done twice. A reply is stored until it expires; its row in [`super::expiries`] deletes it. This table knows neither
//! the caller's key nor the request, only a digest of each. The digest of the request tells a repeat from the mistaken
//! use of a key for something else.

use abide_ids::{Digest, KeyDigest, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::Key;

/// Requests that carry an `Idempotency-Key`.
pub const SCOPE_IDEMPOTENCY_KEY: &str = "idempotency-key";

/// CloudEvents, identified by source and id.
pub const SCOPE_CLOUD_EVENT: &str = "cloud-event";

/// Operations on entities, identified by entity and operation id.
pub const SCOPE_ENTITY_OPERATION: &str = "entity-operation";

/// Operations of engines, identified by engine, operation and correlation id.
pub const SCOPE_ENGINE_OPERATION: &str = "engine-operation";

/// A stored reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdempotencyRow {
    /// The digest of the request. A request with the same key and another digest is rejected.
    pub request_digest: Digest,
    pub replied_at: Timestamp,
    /// The time from which a repeated request is new work.
    pub expires_at: Timestamp,
    /// The reply, in the encoding of the scope.
    #[serde(with = "serde_bytes")]
    pub reply: Vec<u8>,
}

impl TableRow for IdempotencyRow {
    const TABLE: TableId = TableId::Idempotency;
    const FORMAT: u8 = 1;
}

/// The key of a stored reply. `digest` is the digest of the caller's key, which may be too long for a row key.
pub fn key(scope: &str, digest: &KeyDigest) -> Key {
    KeyWriter::new(TableId::Idempotency).text(scope).key_digest(digest).key()
}

/// The scope and the digest in a key.
pub fn read_key(key: &Key) -> Result<(String, KeyDigest), TableError> {
    let mut reader = KeyReader::new(TableId::Idempotency, key)?;
    let fields = (reader.text()?, reader.key_digest()?);
    reader.finish(fields)
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stored_reply_round_trips(
            request_digest: Digest,
            replied_at: Timestamp,
            expires_at: Timestamp,
            reply: Vec<u8>,
        ) {
            value_round_trips(&IdempotencyRow { request_digest, replied_at, expires_at, reply });
        }

        #[test]
        fn stored_replies_sort_by_scope_and_digest(
            keys in prop::collection::vec((".{0,8}", any::<KeyDigest>()), 1..8),
        ) {
            keys_round_trip_in_order(keys, |(scope, digest)| key(scope, digest), read_key);
        }
    }
}
