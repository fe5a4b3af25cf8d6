//! Continuation tokens: where a page ended, signed, and bound to the question it answered.
//!
//! A token carries a place in the table, so a forged one could point anywhere and a foreign one (another table, other filters,
//! another store) would silently skip or repeat rows. Both are refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{PublicKey, PublicRow, Query, QueryError, TableSchema};

/// A row's place in the order of its table: time, then key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Position {
    /// The moment the table is ordered by.
    pub at: i64,
    /// The row.
    pub key: PublicKey,
}

impl Position {
    /// The place of a row. Rows are checked before they are stored, so a missing time cannot be; it would sort first.
    pub fn of(table: &TableSchema, row: &PublicRow) -> Self {
        Self { at: row.ordered_at(table).unwrap_or(i64::MIN), key: row.key.clone() }
    }
}

/// The secret of one store that its tokens are signed with.
#[derive(Clone)]
pub struct TokenKey([u8; 64]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

const SIGNATURE_BYTES: usize = 16;

impl TokenKey {
    /// The key with these bytes, which should be random and stay with the store.
    pub fn new(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Its bytes, for the store to keep.
    pub fn expose(&self) -> [u8; 64] {
        self.0
    }

    /// The token for the page after `last`.
    pub fn seal(&self, table: &TableSchema, query: &Query, last: &Position) -> String {
        let mut bytes = postcard::to_allocvec(last).unwrap_or_default();
        let signature = self.signature(table, query, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(signature.get(..SIGNATURE_BYTES).unwrap_or(&signature));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Where the page before this query ended, if the query goes on after one.
    pub fn open(&self, table: &TableSchema, query: &Query) -> Result<Option<Position>, QueryError> {
        let Some(token) = &query.continuation else { return Ok(None) };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| QueryError::Continuation)?;
        let at = bytes.len().checked_sub(SIGNATURE_BYTES).ok_or(QueryError::Continuation)?;
        let (position, signature) = bytes.split_at(at);
        let ours = self.signature(table, query, position).verify_truncated_left(signature);
        ours.map_err(|_| QueryError::Continuation)?;
        postcard::from_bytes(position).map(Some).map_err(|_| QueryError::Continuation)
    }

    /// Over the whole question but the page size: a reader may ask for smaller pages half way.
    fn signature(&self, table: &TableSchema, query: &Query, position: &[u8]) -> Hmac<Sha256> {
        let question = (table.tag, &query.equals, query.from, query.until, query.oldest_first, position);
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        mac.update(&postcard::to_allocvec(&question).unwrap_or_default());
        mac
    }
}
