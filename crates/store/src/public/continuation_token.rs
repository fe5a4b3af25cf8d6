//! Continuation tokens: the position where a page ended, signed and bound to the query.
//!
//! A token contains a position in the table, so a forged one could point anywhere, and a foreign one (another table,
//! other filters, another store) would silently skip or repeat rows. Both are rejected. How a backend continues from a
//! position is not known here.

use abide_ids::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{PublicKey, PublicQuery, PublicQueryError, PublicRow, TableSchema};

/// A row's position in the order of its table: time, then key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RowPosition {
    /// The time that the table is ordered by.
    pub at: Timestamp,
    pub key: PublicKey,
}

impl RowPosition {
    /// The position of a row. Rows are checked before they are stored, so the time cannot be missing; without it the
    /// row would sort first.
    pub fn of_row(table: &TableSchema, row: &PublicRow) -> Self {
        Self { at: row.order_time(table).unwrap_or(Timestamp::MIN), key: row.key.clone() }
    }
}

/// The secret with which a store signs its tokens.
#[derive(Clone)]
pub struct TokenKey([u8; 64]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

const SIGNATURE_BYTES: usize = 16;

impl TokenKey {
    /// Makes a key of these bytes, which should be random and stay with the store.
    pub fn new(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, for the store to save.
    pub fn expose(&self) -> [u8; 64] {
        self.0
    }

    /// The token for the page after `last`.
    pub fn sign(&self, table: &TableSchema, query: &PublicQuery, last: &RowPosition) -> String {
        let mut bytes = postcard::to_allocvec(last).unwrap_or_default();
        let signature = self.mac(table, query, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(signature.get(..SIGNATURE_BYTES).unwrap_or(&signature));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position where the previous page ended, if the query has a token.
    pub fn verify(
        &self,
        table: &TableSchema,
        query: &PublicQuery,
    ) -> Result<Option<RowPosition>, PublicQueryError> {
        let Some(token) = &query.continuation else { return Ok(None) };
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| PublicQueryError::InvalidContinuation)?;
        let at = bytes.len().checked_sub(SIGNATURE_BYTES).ok_or(PublicQueryError::InvalidContinuation)?;
        let (position, signature) = bytes.split_at(at);
        let ours = self.mac(table, query, position).verify_truncated_left(signature);
        ours.map_err(|_| PublicQueryError::InvalidContinuation)?;
        postcard::from_bytes(position).map(Some).map_err(|_| PublicQueryError::InvalidContinuation)
    }

    /// Covers the whole query except the page size, so that a client may change the page size between pages.
    fn mac(&self, table: &TableSchema, query: &PublicQuery, position: &[u8]) -> Hmac<Sha256> {
        let signed = (table.tag, &query.filters, query.from, query.until, query.oldest_first, position);
        let mut mac = Hmac::<Sha256>::new(&self.0.into());
        mac.update(&postcard::to_allocvec(&signed).unwrap_or_default());
        mac
    }
}
