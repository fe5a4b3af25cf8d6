//! The stored rows of a receiver: keys and values, as docs/formats/receiver.md describes them.
//!
//! All rows are in one partition, distinguished by the first byte of their keys. Values begin with their format. This
//! file does not know when rows change.

use abide_dispatch::{RpcCode, RpcStatus};
use abide_ids::Timestamp;
use abide_store::rows::Key;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const INCARNATION: u8 = 1;
const RECORD: u8 = 2;
const EXPIRY: u8 = 3;
const HANDLER_ROW: u8 = 4;

/// The only format so far.
const FORMAT: u8 = 1;

/// Upper bound of a record's size without its result.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = 4 * 1024;

/// Identity of a call: the digest of its execution id, activity and idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkKey([u8; 32]);

impl WorkKey {
    /// Every part is digested with its length, so different calls never digest the same bytes.
    pub(crate) fn new(execution_id: &str, activity: &str, idempotency_key: &str) -> Self {
        let mut digest = Sha256::new();
        for part in [execution_id, activity, idempotency_key] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        Self(digest.finalize().into())
    }
}

pub(crate) fn incarnation_key() -> Key {
    Key::new([INCARNATION])
}

pub(crate) fn record_key(work: WorkKey) -> Key {
    Key::new([&[RECORD][..], &work.0].concat())
}

/// Key of the row that says when to check whether a record may be deleted.
pub(crate) fn expiry_key(at: Timestamp, work: WorkKey) -> Key {
    Key::new([&[EXPIRY][..], &at.0.max(0).to_be_bytes(), &work.0].concat())
}

/// End of the range of expiry rows up to and including this time.
pub(crate) fn expiries_end(at: Timestamp) -> Key {
    Key::new([&[EXPIRY][..], &at.0.max(0).saturating_add(1).to_be_bytes()].concat())
}

/// Start of the range of expiry rows.
pub(crate) fn expiries_start() -> Key {
    Key::new([EXPIRY])
}

pub(crate) fn work_of_expiry(key: &Key) -> Option<WorkKey> {
    match key.as_bytes() {
        [EXPIRY, rest @ ..] => rest.last_chunk().copied().filter(|_| rest.len() == 8 + 32).map(WorkKey),
        _ => None,
    }
}

/// The stored key of a handler's own row.
pub(crate) fn handler_row_key(key: &[u8]) -> Key {
    Key::new([&[HANDLER_ROW][..], key].concat())
}

/// The handler's own key of a row; the reverse of [`handler_row_key`].
pub(crate) fn handler_key(key: &Key) -> Option<&[u8]> {
    key.as_bytes().strip_prefix(&[HANDLER_ROW])
}

/// The record of a call. Stored by position: variants and fields may only be appended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum IdempotencyRecord {
    /// An attempt is running, or was when its process ended.
    Claimed(Claim),
    Finished {
        finished_at: Timestamp,
        /// Returned to every duplicate.
        result: StoredResult,
    },
}

/// The attempt that may run, and until when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Number of the receiver's start.
    pub(crate) incarnation: u64,
    /// Number of the claim within the incarnation.
    pub(crate) serial: u64,
    pub(crate) expires_at: Timestamp,
    /// The time in the key of the expiry row.
    pub(crate) expiry_row_at: Timestamp,
}

/// The result that duplicates get. Stored by position: variants and fields may only be appended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StoredResult {
    /// JSON text, byte for byte.
    Output(Vec<u8>),
    /// A permanent failure.
    Failed {
        code: i32,
        message: String,
        reason: Option<String>,
        /// Namespace of the reason.
        domain: Option<String>,
    },
}

impl StoredResult {
    pub(crate) fn from_result(result: &Result<Bytes, RpcStatus>) -> Self {
        match result {
            Ok(output) => Self::Output(output.to_vec()),
            Err(status) => Self::Failed {
                code: status.code.number(),
                message: status.message.clone(),
                reason: status.reason.clone(),
                domain: status.domain.clone(),
            },
        }
    }

    pub(crate) fn into_result(self) -> Result<Bytes, RpcStatus> {
        match self {
            Self::Output(output) => Ok(output.into()),
            Self::Failed { code, message, reason, domain } => {
                let code = RpcCode::from_number(code);
                Err(RpcStatus { code, message, reason, domain, retry_after_ms: None })
            }
        }
    }
}

pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    // Writing to memory fails only for types that postcard cannot express; the round-trip test would find them.
    postcard::to_extend(value, vec![FORMAT]).unwrap_or_default()
}

/// Decodes a value; `None` if the bytes are of another format or damaged. Every byte must be used.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => match postcard::take_from_bytes(rest) {
            Ok((value, [])) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receivers keep these bytes for days: the format may only be extended.
    #[test]
    fn the_stored_bytes_of_records_do_not_change() {
        let claim =
            Claim { incarnation: 3, serial: 300, expires_at: Timestamp(5), expiry_row_at: Timestamp(6) };
        let output = StoredResult::Output(b"{}".to_vec());
        let failed = StoredResult::Failed {
            code: 5,
            message: "no".to_owned(),
            reason: Some("R".to_owned()),
            domain: None,
        };
        for (record, bytes) in [
            (IdempotencyRecord::Claimed(claim), &[1, 0, 3, 172, 2, 10, 12][..]),
            (
                IdempotencyRecord::Finished { finished_at: Timestamp(7), result: output },
                &[1, 1, 14, 0, 2, b'{', b'}'],
            ),
            (
                IdempotencyRecord::Finished { finished_at: Timestamp(7), result: failed },
                &[1, 1, 14, 1, 10, 2, b'n', b'o', 1, 1, b'R', 0],
            ),
        ] {
            assert_eq!(encode(&record), bytes);
            assert_eq!(decode(bytes), Some(record));
            assert_eq!(decode::<IdempotencyRecord>(&bytes[..bytes.len() - 1]), None, "truncated");
            assert_eq!(decode::<IdempotencyRecord>(&[bytes, &[0]].concat()), None, "longer");
            assert_eq!(decode::<IdempotencyRecord>(&[&[2], &bytes[1..]].concat()), None, "another format");
        }
    }

    #[test]
    fn different_calls_have_different_rows() {
        let works = [
            WorkKey::new("a/1", "charge", "k"),
            WorkKey::new("a/2", "charge", "k"),
            WorkKey::new("a/1", "refund", "k"),
            WorkKey::new("a/1", "charge", "l"),
            WorkKey::new("a/1charge", "", "k"),
            WorkKey::new("", "", "a/1chargek"),
        ];
        for (position, work) in works.iter().enumerate() {
            assert!(works.iter().skip(position + 1).all(|other| record_key(*other) != record_key(*work)));
        }
    }

    #[test]
    fn expiry_rows_sort_by_time_and_name_their_call() {
        let work = WorkKey::new("a/1", "charge", "k");
        assert!(
            expiries_start() < expiry_key(Timestamp(0), work)
                && expiry_key(Timestamp(255), work) < expiry_key(Timestamp(256), work)
        );
        assert!(
            expiry_key(Timestamp(5), work) < expiries_end(Timestamp(5))
                && expiries_end(Timestamp(5)) < expiry_key(Timestamp(6), work)
        );
        assert_eq!(work_of_expiry(&expiry_key(Timestamp(7), work)), Some(work));
        assert_eq!(work_of_expiry(&record_key(work)), None);
        assert_eq!(handler_key(&handler_row_key(b"mine")), Some(&b"mine"[..]));
        assert_eq!(handler_key(&record_key(work)), None);
    }
}
