//! What is stored of a receiver: keys and values, and nothing about when they change. docs/formats/receiver.md describes them.
//!
//! All rows lie in one partition, told apart by the first byte of their keys. Values begin with their format.

use abide_dispatch::{Code, Status};
use abide_store::rows::Key;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const INCARNATION: u8 = 1;
const RECORD: u8 = 2;
const EXPIRY: u8 = 3;
const EFFECT: u8 = 4;

/// The one format there is.
const FORMAT: u8 = 1;

/// Bytes of a record besides its answer, at most.
pub(crate) const AROUND_ANSWER_BYTES: usize = 4 * 1024;

/// One piece of work: the digest of its execution id, its activity and its idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work([u8; 32]);

impl Work {
    /// Every part is digested with its length, so no two pieces of work run into each other.
    pub(crate) fn of(execution_id: &str, activity: &str, idempotency_key: &str) -> Self {
        let mut digest = Sha256::new();
        for part in [execution_id, activity, idempotency_key] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        Self(digest.finalize().into())
    }
}

/// The row of the incarnation.
pub(crate) fn incarnation() -> Key {
    Key::new([INCARNATION])
}

/// The row of a piece of work.
pub(crate) fn record(work: Work) -> Key {
    Key::new([&[RECORD][..], &work.0].concat())
}

/// The row that says when a record may go, at the earliest.
pub(crate) fn expiry(at: i64, work: Work) -> Key {
    Key::new([&[EXPIRY][..], &at.max(0).to_be_bytes(), &work.0].concat())
}

/// Where the expiries begin that are later than this.
pub(crate) fn expiries_after(at: i64) -> Key {
    Key::new([&[EXPIRY][..], &at.max(0).saturating_add(1).to_be_bytes()].concat())
}

/// Where the expiries begin.
pub(crate) fn expiries() -> Key {
    Key::new([EXPIRY])
}

/// The work of an expiry's key.
pub(crate) fn expired_work(key: &Key) -> Option<Work> {
    match key.as_bytes() {
        [EXPIRY, rest @ ..] => rest.last_chunk().copied().filter(|_| rest.len() == 8 + 32).map(Work),
        _ => None,
    }
}

/// The row that a handler knows by this key.
pub(crate) fn effect(key: &[u8]) -> Key {
    Key::new([&[EFFECT][..], key].concat())
}

/// The key by which a handler knows a row.
pub(crate) fn own_key(key: &Key) -> Option<&[u8]> {
    key.as_bytes().strip_prefix(&[EFFECT])
}

/// What is known of a piece of work. Stored by place: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Somebody is, or was, at it.
    Claimed(Claim),
    /// It has its answer.
    Finished {
        /// When, in milliseconds of UTC since 1970, as all times here.
        at: i64,
        /// What was answered, and will be.
        answer: Answer,
    },
}

/// Who is at it, and until when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// Which start of the receiver.
    pub(crate) incarnation: u64,
    /// Which claim of it.
    pub(crate) serial: u64,
    /// When the claim ends.
    pub(crate) expires_at: i64,
    /// Where the expiry row is.
    pub(crate) expiry_at: i64,
}

/// An answer that is given again and again. Stored by place: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// JSON text, byte for byte.
    Output(Vec<u8>),
    /// A final failure.
    Failed {
        /// Number of the code.
        code: i32,
        /// For people.
        message: String,
        /// Why.
        reason: Option<String>,
        /// Whose word.
        domain: Option<String>,
    },
}

impl Answer {
    pub(crate) fn of(answer: &Result<Bytes, Status>) -> Self {
        match answer {
            Ok(output) => Self::Output(output.to_vec()),
            Err(status) => Self::Failed {
                code: status.code.number(),
                message: status.message.clone(),
                reason: status.reason.clone(),
                domain: status.domain.clone(),
            },
        }
    }

    pub(crate) fn given(self) -> Result<Bytes, Status> {
        match self {
            Self::Output(output) => Ok(output.into()),
            Self::Failed { code, message, reason, domain } => {
                let code = Code::from_number(code);
                Err(Status { code, message, reason, domain, retry_after_ms: None })
            }
        }
    }
}

/// The bytes of a value.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    // Writing to memory fails only for types that postcard cannot express at all; the round-trip test would.
    postcard::to_extend(value, vec![FORMAT]).unwrap_or_default()
}

/// The value of these bytes; none if they are of another format, or damaged. Every byte must be used.
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

    /// Receivers keep these for days: they may only grow.
    #[test]
    fn records_have_the_bytes_they_always_had() {
        let claim = Claim { incarnation: 3, serial: 300, expires_at: 5, expiry_at: 6 };
        let answer = Answer::Output(b"{}".to_vec());
        let failed =
            Answer::Failed { code: 5, message: "no".to_owned(), reason: Some("R".to_owned()), domain: None };
        for (record, bytes) in [
            (Record::Claimed(claim), &[1, 0, 3, 172, 2, 10, 12][..]),
            (Record::Finished { at: 7, answer }, &[1, 1, 14, 0, 2, b'{', b'}']),
            (Record::Finished { at: 7, answer: failed }, &[1, 1, 14, 1, 10, 2, b'n', b'o', 1, 1, b'R', 0]),
        ] {
            assert_eq!(encode(&record), bytes);
            assert_eq!(decode(bytes), Some(record));
            assert_eq!(decode::<Record>(&bytes[..bytes.len() - 1]), None, "cut");
            assert_eq!(decode::<Record>(&[bytes, &[0]].concat()), None, "longer");
            assert_eq!(decode::<Record>(&[&[2], &bytes[1..]].concat()), None, "another format");
        }
    }

    #[test]
    fn whatever_makes_work_other_work_makes_another_row() {
        let works = [
            Work::of("a/1", "charge", "k"),
            Work::of("a/2", "charge", "k"),
            Work::of("a/1", "refund", "k"),
            Work::of("a/1", "charge", "l"),
            Work::of("a/1charge", "", "k"),
            Work::of("", "", "a/1chargek"),
        ];
        for (place, work) in works.iter().enumerate() {
            assert!(works.iter().skip(place + 1).all(|other| record(*other) != record(*work)));
        }
    }

    #[test]
    fn expiries_sort_by_time_and_lead_to_their_work() {
        let work = Work::of("a/1", "charge", "k");
        assert!(expiries() < expiry(0, work) && expiry(255, work) < expiry(256, work));
        assert!(expiry(5, work) < expiries_after(5) && expiries_after(5) < expiry(6, work));
        assert_eq!(expired_work(&expiry(7, work)), Some(work));
        assert_eq!(expired_work(&record(work)), None);
        assert_eq!(own_key(&effect(b"mine")), Some(&b"mine"[..]));
        assert_eq!(own_key(&record(work)), None);
    }
}
