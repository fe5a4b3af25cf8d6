//! Valid metadata, and the ways in which it can be invalid.

use super::super::tests::metadata;
use super::*;
use proptest::prelude::*;

fn decode(pairs: &[(&str, &str)]) -> Result<Option<Metadata>, MetadataError> {
    Metadata::decode(pairs.iter().map(|(key, value)| (*key, value.as_bytes())))
}

/// The required keys, and one more pair.
fn with(key: &str, value: &str) -> Result<Option<Metadata>, MetadataError> {
    decode(&[(EXECUTION_ID, "device-7/1"), (IDEMPOTENCY_KEY, "97a0"), (key, value)])
}

#[test]
fn absent_keys_have_their_default() {
    let least = decode(&[(EXECUTION_ID, "device-7/1"), (IDEMPOTENCY_KEY, "97a0")]).unwrap().unwrap();
    let expected = Metadata {
        correlation_id: "device-7/1".to_owned(),
        execution_id: "device-7/1".to_owned(),
        idempotency_key: "97a0".to_owned(),
        retry_attempt: 0,
        deadline: None,
        dispatched_at: Timestamp(0),
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
fn no_key_means_no_metadata_and_any_key_requires_the_mandatory_ones() {
    assert_eq!(decode(&[]), Ok(None));
    assert_eq!(
        decode(&[("content-type", "text/plain"), ("x-tpf-unheard-of", "1"), (EXECUTION_ID, " ")]),
        Ok(None)
    );
    for key in KEYS.into_iter().filter(|key| *key != EXECUTION_ID) {
        assert_eq!(decode(&[(key, "1")]), Err(MetadataError::Missing { key: EXECUTION_ID }), "{key}");
    }
    assert_eq!(decode(&[(EXECUTION_ID, "1")]), Err(MetadataError::Missing { key: IDEMPOTENCY_KEY }));
}

#[test]
fn names_are_compared_without_case() {
    let pairs: Vec<(String, String)> =
        metadata().encode().map(|(key, value)| (key.to_uppercase(), value.into_owned())).collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(decode(&pairs), Ok(Some(metadata())));
}

#[test]
fn a_duplicate_key_is_rejected_even_if_both_values_are_equal() {
    for key in KEYS {
        for (first, second) in [("1", "1"), ("1", "2"), ("1", ""), ("", "")] {
            let twice = decode(&[(key, first), (&key.to_uppercase(), second)]);
            assert_eq!(twice, Err(MetadataError::Duplicate { key }));
        }
    }
}

#[test]
fn only_plain_decimal_numbers_are_numbers() {
    let attempt = |value| with(RETRY_ATTEMPT, value).map(|metadata| metadata.unwrap().retry_attempt);
    let deadline =
        |value| with(DEADLINE, value).map(|metadata| metadata.unwrap().deadline.map(|deadline| deadline.0));
    let sent = |value| with(DISPATCHED_AT, value).map(|metadata| metadata.unwrap().dispatched_at.0);
    assert_eq!((attempt("0"), attempt("4294967295"), attempt(" 7 ")), (Ok(0), Ok(u32::MAX), Ok(7)));
    assert_eq!((deadline("0"), deadline("9223372036854775807")), (Ok(Some(0)), Ok(Some(i64::MAX))));
    assert_eq!(sent("1700000000000"), Ok(1_700_000_000_000));
    for wrong in ["-1", "+1", "1 2", "0x10", "1e3", "1.0", "1_000", "१", "99999999999999999999", "soon", "-0"]
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
            assert_eq!(one(wrong), Err(MetadataError::NotPrintable { key }), "{wrong:?}");
        }
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        assert_eq!(one(long.as_bytes()), Err(MetadataError::TooLong { key }));
    }
    let longest = "x".repeat(VALUE_BYTES_MAX);
    assert_eq!(with(PARENT_ITEM_ID, &longest).unwrap().unwrap().parent_item_id, Some(longest));
}

#[test]
fn equal_bodies_without_metadata_are_one_piece_of_work() {
    let of = |activity, body: &[u8]| Metadata::derive_from_body(activity, body).idempotency_key;
    // sha256 of `charge`, NUL, `{}`: receivers in other languages compute the same.
    assert_eq!(of("charge", b"{}"), "9ed4f56213ee72705c80ba9faa66a9566a208e8fe9bcdaa2cf87205bf88f30de");
    assert_ne!(of("charge", b"{}"), of("charge", b"{ }"));
    assert_ne!(of("charge", b"{}"), of("refund", b"{}"));
    assert_eq!(Metadata::derive_from_body("charge", b"{}").execution_id, "");
}

#[test]
fn metadata_that_no_receiver_could_decode_is_rejected_before_it_is_sent() {
    assert_eq!(metadata().check(), Ok(()));
    let long = Metadata { execution_id: "ö".to_owned(), ..metadata() };
    assert_eq!(long.check(), Err(MetadataError::NotPrintable { key: EXECUTION_ID }));
    let past = Metadata { deadline: Some(Timestamp(-1)), ..metadata() };
    assert!(past.check().is_err());
    let blank = Metadata { execution_id: " ".to_owned(), ..metadata() };
    assert_eq!(blank.check(), Err(MetadataError::Missing { key: EXECUTION_ID }));
}

proptest! {
    #[test]
    fn encoded_metadata_decodes_to_itself(
        texts in prop::collection::vec("[!-~]([ -~]{0,60}[!-~])?", 4),
        retry_attempt: u32,
        deadline_epoch_ms in prop::option::of(0..=i64::MAX),
        dispatched_at_epoch_ms in 0..=i64::MAX,
        is_item: bool,
    ) {
        let text = |index: usize| texts[index].clone();
        let metadata = Metadata {
            correlation_id: text(0),
            execution_id: text(1),
            idempotency_key: text(2),
            retry_attempt,
            deadline: deadline_epoch_ms.map(Timestamp),
            dispatched_at: Timestamp(dispatched_at_epoch_ms),
            parent_item_id: is_item.then(|| text(3)),
        };
        let pairs: Vec<_> = metadata.encode().collect();
        let pairs = pairs.iter().map(|(key, value)| (*key, value.as_bytes()));
        prop_assert_eq!(Metadata::decode(pairs), Ok(Some(metadata.clone())));
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 7)) {
        let pairs = KEYS.iter().zip(&values).map(|(key, value)| (*key, value.as_slice()));
        if let Ok(Some(metadata)) = Metadata::decode(pairs) {
            prop_assert_eq!(metadata.check(), Ok(()));
        }
    }
}

proptest! {
    #[test]
    fn checking_before_sending_agrees_with_decoding(
        texts in proptest::array::uniform4(prop_oneof!["[ -~]{0,6}", "[\\t \u{a0}é\u{7f}a]{0,3}", Just("a".repeat(513))]),
        deadline_epoch_ms in proptest::option::of(-2_i64..2),
        dispatched_at_epoch_ms in -2_i64..2,
        has_parent in any::<bool>(),
    ) {
        let [correlation_id, execution_id, idempotency_key, parent] = texts;
        let parent_item_id = has_parent.then_some(parent);
        let sent = Metadata {
            correlation_id, execution_id, idempotency_key, retry_attempt: 1,
            deadline: deadline_epoch_ms.map(Timestamp), dispatched_at: Timestamp(dispatched_at_epoch_ms), parent_item_id,
        };
        let pairs: Vec<_> = sent.encode().collect();
        let read = Metadata::decode(pairs.iter().map(|(key, value)| (*key, value.as_bytes())));
        prop_assert_eq!(sent.check(), read.map(drop));
    }
}
