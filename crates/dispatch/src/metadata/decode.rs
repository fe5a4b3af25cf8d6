//! Reading the canonical metadata: strictly, so that a receiver never works under an identity that nobody meant.
//!
//! One decoder for all wires; each hands over the pairs it found. Knows nothing of what is done with them.

use std::fmt::Write;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::{
    CORRELATION_ID, DEADLINE, DISPATCHED_AT, EXECUTION_ID, IDEMPOTENCY_KEY, Metadata, PARENT_ITEM_ID,
    RETRY_ATTEMPT,
};

/// Bytes of one value.
pub const VALUE_BYTES_MAX: usize = 512;

/// Metadata that cannot be understood. The same on every attempt, so nothing is tried again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedMetadata {
    /// A key twice: one of them would be chosen by chance.
    #[error("{key} is there more than once")]
    Repeated {
        /// Which.
        key: &'static str,
    },
    /// Some keys are there, and one that must be is not.
    #[error("{key} is missing")]
    Missing {
        /// Which.
        key: &'static str,
    },
    /// A value that is too long.
    #[error("{key} has more than {VALUE_BYTES_MAX} bytes")]
    TooLong {
        /// Whose.
        key: &'static str,
    },
    /// A value that headers cannot carry everywhere.
    #[error("{key} has other characters than printable ASCII")]
    NotPrintable {
        /// Whose.
        key: &'static str,
    },
    /// Not a number of the kind that belongs there.
    #[error("{key} is not a decimal number from 0 to {max}")]
    NotANumber {
        /// Whose.
        key: &'static str,
        /// The largest there is.
        max: u64,
    },
    /// The place where the metadata should be has something else.
    #[error("the metadata cannot be read: {reason}")]
    Unreadable {
        /// What is wrong.
        reason: String,
    },
}

/// The seven keys, in the order in which they are encoded.
const KEYS: [&str; 7] =
    [CORRELATION_ID, EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID];

impl Metadata {
    /// The metadata among these pairs; none if none of the seven keys is there. Other pairs are nobody's business.
    ///
    /// Names are compared without case. A blank value is an absent one, and spaces around a value are not part of it, as HTTP has it.
    /// A dispatch time that is absent is read as 0.
    pub fn decode<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p [u8])>,
    ) -> Result<Option<Self>, MalformedMetadata> {
        let mut found: [Option<&[u8]>; KEYS.len()] = [None; KEYS.len()];
        for (name, value) in pairs {
            let known = KEYS.iter().zip(&mut found).find(|(key, _)| key.eq_ignore_ascii_case(name));
            let Some((key, place)) = known else { continue };
            if place.replace(value).is_some() {
                return Err(MalformedMetadata::Repeated { key });
            }
        }
        let [
            correlation_id,
            execution_id,
            idempotency_key,
            retry_attempt,
            deadline,
            dispatched_at,
            parent_item_id,
        ] = found;
        let correlation_id = text(CORRELATION_ID, correlation_id)?;
        let execution_id = text(EXECUTION_ID, execution_id)?;
        let idempotency_key = text(IDEMPOTENCY_KEY, idempotency_key)?;
        let retry_attempt = number::<u32>(RETRY_ATTEMPT, retry_attempt, u64::from(u32::MAX))?;
        let moment_max = i64::MAX.cast_unsigned();
        let deadline_epoch_ms = number::<i64>(DEADLINE, deadline, moment_max)?;
        let dispatched_at = number::<i64>(DISPATCHED_AT, dispatched_at, moment_max)?;
        let parent_item_id = text(PARENT_ITEM_ID, parent_item_id)?;
        let texts = [correlation_id, execution_id, idempotency_key, parent_item_id];
        let numbers_absent =
            retry_attempt.is_none() && deadline_epoch_ms.is_none() && dispatched_at.is_none();
        if numbers_absent && texts.iter().all(Option::is_none) {
            return Ok(None);
        }
        let missing = |key| MalformedMetadata::Missing { key };
        let execution_id = execution_id.ok_or_else(|| missing(EXECUTION_ID))?;
        Ok(Some(Self {
            correlation_id: correlation_id.unwrap_or(execution_id).to_owned(),
            execution_id: execution_id.to_owned(),
            idempotency_key: idempotency_key.ok_or_else(|| missing(IDEMPOTENCY_KEY))?.to_owned(),
            retry_attempt: retry_attempt.unwrap_or(0),
            deadline_epoch_ms,
            dispatched_at_epoch_ms: dispatched_at.unwrap_or(0),
            parent_item_id: parent_item_id.map(str::to_owned),
        }))
    }

    /// Whether every receiver can read it. Senders ask first: what cannot be read is refused for good.
    pub fn check(&self) -> Result<(), MalformedMetadata> {
        let pairs: Vec<_> = self.encode().collect();
        let pairs = pairs.iter().map(|(key, value)| (*key, value.as_bytes()));
        Self::decode(pairs)?.map(drop).ok_or(MalformedMetadata::Missing { key: EXECUTION_ID })
    }

    /// What work without any metadata is known by: the activity and the bytes of its input, so that equal requests are one piece of work.
    pub fn of_body(activity: &str, body: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update(activity.as_bytes());
        digest.update([0]);
        digest.update(body);
        let mut idempotency_key = String::with_capacity(64);
        for byte in digest.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(idempotency_key, "{byte:02x}");
        }
        Self {
            correlation_id: String::new(),
            execution_id: String::new(),
            idempotency_key,
            retry_attempt: 0,
            deadline_epoch_ms: None,
            dispatched_at_epoch_ms: 0,
            parent_item_id: None,
        }
    }
}

fn text<'v>(key: &'static str, value: Option<&'v [u8]>) -> Result<Option<&'v str>, MalformedMetadata> {
    let Some(value) = value else { return Ok(None) };
    let value = trimmed(value);
    if value.len() > VALUE_BYTES_MAX {
        return Err(MalformedMetadata::TooLong { key });
    }
    let printable = value.iter().all(|byte| matches!(byte, 0x20..=0x7e));
    let text = str::from_utf8(value).ok().filter(|_| printable);
    let text = text.ok_or(MalformedMetadata::NotPrintable { key })?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Without what HTTP takes away around a value, and nothing else: a line end is not blank.
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn number<N: FromStr>(
    key: &'static str,
    value: Option<&[u8]>,
    max: u64,
) -> Result<Option<N>, MalformedMetadata> {
    let Some(text) = text(key, value)? else { return Ok(None) };
    // The standard reading takes a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.map(Some).ok_or(MalformedMetadata::NotANumber { key, max })
}

#[cfg(test)]
mod tests {
    use super::super::tests::metadata;
    use super::*;
    use proptest::prelude::*;

    fn decode(pairs: &[(&str, &str)]) -> Result<Option<Metadata>, MalformedMetadata> {
        Metadata::decode(pairs.iter().map(|(key, value)| (*key, value.as_bytes())))
    }

    /// The least there can be, and one pair more.
    fn with(key: &str, value: &str) -> Result<Option<Metadata>, MalformedMetadata> {
        decode(&[(EXECUTION_ID, "device-7/1"), (IDEMPOTENCY_KEY, "97a0"), (key, value)])
    }

    #[test]
    fn what_is_absent_has_its_default() {
        let least = decode(&[(EXECUTION_ID, "device-7/1"), (IDEMPOTENCY_KEY, "97a0")]).unwrap().unwrap();
        let expected = Metadata {
            correlation_id: "device-7/1".to_owned(),
            execution_id: "device-7/1".to_owned(),
            idempotency_key: "97a0".to_owned(),
            retry_attempt: 0,
            deadline_epoch_ms: None,
            dispatched_at_epoch_ms: 0,
            parent_item_id: None,
        };
        assert_eq!(least, expected);
        for blank in ["", " ", "  "] {
            for key in [CORRELATION_ID, RETRY_ATTEMPT, DEADLINE, DISPATCHED_AT, PARENT_ITEM_ID] {
                assert_eq!(with(key, blank), Ok(Some(expected.clone())), "{key} {blank:?}");
            }
        }
    }

    #[test]
    fn no_key_at_all_is_no_metadata_and_one_key_asks_for_two() {
        assert_eq!(decode(&[]), Ok(None));
        assert_eq!(
            decode(&[("content-type", "text/plain"), ("x-tpf-unheard-of", "1"), (EXECUTION_ID, " ")]),
            Ok(None)
        );
        for key in KEYS.into_iter().filter(|key| *key != EXECUTION_ID) {
            assert_eq!(decode(&[(key, "1")]), Err(MalformedMetadata::Missing { key: EXECUTION_ID }), "{key}");
        }
        assert_eq!(decode(&[(EXECUTION_ID, "1")]), Err(MalformedMetadata::Missing { key: IDEMPOTENCY_KEY }));
    }

    #[test]
    fn names_are_compared_without_case() {
        let pairs: Vec<(String, String)> =
            metadata().encode().map(|(key, value)| (key.to_uppercase(), value.into_owned())).collect();
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(decode(&pairs), Ok(Some(metadata())));
    }

    #[test]
    fn a_key_that_is_there_twice_is_malformed_even_if_both_say_the_same() {
        for key in KEYS {
            for (first, second) in [("1", "1"), ("1", "2"), ("1", ""), ("", "")] {
                let twice = decode(&[(key, first), (&key.to_uppercase(), second)]);
                assert_eq!(twice, Err(MalformedMetadata::Repeated { key }));
            }
        }
    }

    #[test]
    fn only_plain_decimal_numbers_are_numbers() {
        let attempt = |value| with(RETRY_ATTEMPT, value).map(|metadata| metadata.unwrap().retry_attempt);
        let deadline = |value| with(DEADLINE, value).map(|metadata| metadata.unwrap().deadline_epoch_ms);
        let sent =
            |value| with(DISPATCHED_AT, value).map(|metadata| metadata.unwrap().dispatched_at_epoch_ms);
        assert_eq!((attempt("0"), attempt("4294967295"), attempt(" 7 ")), (Ok(0), Ok(u32::MAX), Ok(7)));
        assert_eq!((deadline("0"), deadline("9223372036854775807")), (Ok(Some(0)), Ok(Some(i64::MAX))));
        assert_eq!(sent("1700000000000"), Ok(1_700_000_000_000));
        for wrong in
            ["-1", "+1", "1 2", "0x10", "1e3", "1.0", "1_000", "१", "99999999999999999999", "soon", "-0"]
        {
            assert!(attempt(wrong).is_err() && deadline(wrong).is_err() && sent(wrong).is_err(), "{wrong}");
        }
        assert!(attempt("4294967296").is_err() && deadline("9223372036854775808").is_err());
    }

    #[test]
    fn a_value_is_printable_ascii_of_bounded_length() {
        for key in [CORRELATION_ID, EXECUTION_ID, IDEMPOTENCY_KEY, PARENT_ITEM_ID] {
            let one = |value: &[u8]| Metadata::decode([(key, value)]);
            for wrong in [&b"a\tb"[..], b"a\0", b"a\x7f", "ä".as_bytes(), b"\xff", b"a\nb", b"a\r", b"\n"] {
                assert_eq!(one(wrong), Err(MalformedMetadata::NotPrintable { key }), "{wrong:?}");
            }
            let long = "x".repeat(VALUE_BYTES_MAX + 1);
            assert_eq!(one(long.as_bytes()), Err(MalformedMetadata::TooLong { key }));
        }
        let longest = "x".repeat(VALUE_BYTES_MAX);
        assert_eq!(with(PARENT_ITEM_ID, &longest).unwrap().unwrap().parent_item_id, Some(longest));
    }

    #[test]
    fn equal_bodies_without_metadata_are_one_piece_of_work() {
        let of = |activity, body: &[u8]| Metadata::of_body(activity, body).idempotency_key;
        // sha256 of `charge`, NUL, `{}`: receivers in other languages come to the same.
        assert_eq!(of("charge", b"{}"), "9ed4f56213ee72705c80ba9faa66a9566a208e8fe9bcdaa2cf87205bf88f30de");
        assert_ne!(of("charge", b"{}"), of("charge", b"{ }"));
        assert_ne!(of("charge", b"{}"), of("refund", b"{}"));
        assert_eq!(Metadata::of_body("charge", b"{}").execution_id, "");
    }

    #[test]
    fn what_no_receiver_could_read_is_found_before_it_is_sent() {
        assert_eq!(metadata().check(), Ok(()));
        let long = Metadata { execution_id: "ö".to_owned(), ..metadata() };
        assert_eq!(long.check(), Err(MalformedMetadata::NotPrintable { key: EXECUTION_ID }));
        let past = Metadata { deadline_epoch_ms: Some(-1), ..metadata() };
        assert!(past.check().is_err());
        let nobody = Metadata { execution_id: " ".to_owned(), ..metadata() };
        assert_eq!(nobody.check(), Err(MalformedMetadata::Missing { key: EXECUTION_ID }));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            texts in prop::collection::vec("[!-~]([ -~]{0,60}[!-~])?", 4),
            retry_attempt: u32,
            deadline_epoch_ms in prop::option::of(0..=i64::MAX),
            dispatched_at_epoch_ms in 0..=i64::MAX,
            is_item: bool,
        ) {
            let text = |place: usize| texts[place].clone();
            let metadata = Metadata {
                correlation_id: text(0),
                execution_id: text(1),
                idempotency_key: text(2),
                retry_attempt,
                deadline_epoch_ms,
                dispatched_at_epoch_ms,
                parent_item_id: is_item.then(|| text(3)),
            };
            let pairs: Vec<_> = metadata.encode().collect();
            let pairs = pairs.iter().map(|(key, value)| (*key, value.as_bytes()));
            prop_assert_eq!(Metadata::decode(pairs), Ok(Some(metadata.clone())));
        }

        #[test]
        fn any_bytes_are_read_or_refused(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 7)) {
            let pairs = KEYS.iter().zip(&values).map(|(key, value)| (*key, value.as_slice()));
            if let Ok(Some(metadata)) = Metadata::decode(pairs) {
                prop_assert_eq!(metadata.check(), Ok(()));
            }
        }
    }
}
