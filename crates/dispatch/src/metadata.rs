//! The canonical dispatch metadata: seven keys, the same in HTTP headers, gRPC metadata and the LOCAL call.
//!
//! This file defines the keys and their meaning. All transports share one function that encodes them and one that
//! decodes them. Knows nothing about transports.

mod decode;

use std::borrow::Cow;

use abide_ids::Timestamp;
pub use decode::{MetadataError, VALUE_BYTES_MAX};

/// Set at ingress, never changed afterwards.
pub const CORRELATION_ID: &str = "x-tpf-correlation-id";
/// Instance id and run number.
pub const EXECUTION_ID: &str = "x-tpf-execution-id";
/// Derived from the identity of the work; the receiver deduplicates by it.
pub const IDEMPOTENCY_KEY: &str = "x-tpf-idempotency-key";
/// Attempts that may have been made before this one, from 0.
pub const RETRY_ATTEMPT: &str = "x-tpf-retry-attempt";
/// Absolute, in epoch milliseconds. If it is absent, the receiver checks no deadline.
pub const DEADLINE: &str = "x-tpf-deadline-epoch-ms";
/// When this attempt was dispatched, in epoch milliseconds.
pub const DISPATCHED_AT: &str = "x-tpf-dispatch-ts-epoch-ms";
/// The key of the item that fanned out into this one; absent outside maps, parallel branches and child runs.
pub const PARENT_ITEM_ID: &str = "x-tpf-parent-item-id";

/// The metadata that is sent with every call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub correlation_id: String,
    pub execution_id: String,
    pub idempotency_key: String,
    pub retry_attempt: u32,
    pub deadline: Option<Timestamp>,
    pub dispatched_at: Timestamp,
    pub parent_item_id: Option<String>,
}

impl Metadata {
    /// The keys that have a value, with their values as text. Receivers read a blank value as absent, so it is left
    /// out.
    ///
    /// Values are not escaped: a transport rejects the characters that have a meaning on its wire.
    pub fn encode(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let pairs = [
            (CORRELATION_ID, Some(Cow::Borrowed(self.correlation_id.as_str()))),
            (EXECUTION_ID, Some(Cow::Borrowed(self.execution_id.as_str()))),
            (IDEMPOTENCY_KEY, Some(Cow::Borrowed(self.idempotency_key.as_str()))),
            (RETRY_ATTEMPT, Some(Cow::Owned(self.retry_attempt.to_string()))),
            (DEADLINE, self.deadline.map(|deadline| Cow::Owned(deadline.0.to_string()))),
            (DISPATCHED_AT, Some(Cow::Owned(self.dispatched_at.0.to_string()))),
            (PARENT_ITEM_ID, self.parent_item_id.as_deref().map(Cow::Borrowed)),
        ];
        let present = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
        present.filter(|(_, value)| !value.trim().is_empty())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn metadata() -> Metadata {
        Metadata {
            correlation_id: "order-7".to_owned(),
            execution_id: "device-7/1".to_owned(),
            idempotency_key: "97a03e98".to_owned(),
            retry_attempt: 0,
            deadline: Some(Timestamp(20_000)),
            dispatched_at: Timestamp(10_000),
            parent_item_id: Some("item-3".to_owned()),
        }
    }

    #[test]
    fn all_seven_keys_are_encoded_and_the_first_attempt_is_zero() {
        let metadata = metadata();
        let pairs: Vec<(&str, Cow<'_, str>)> = metadata.encode().collect();
        let expected = [
            ("x-tpf-correlation-id", "order-7"),
            ("x-tpf-execution-id", "device-7/1"),
            ("x-tpf-idempotency-key", "97a03e98"),
            ("x-tpf-retry-attempt", "0"),
            ("x-tpf-deadline-epoch-ms", "20000"),
            ("x-tpf-dispatch-ts-epoch-ms", "10000"),
            ("x-tpf-parent-item-id", "item-3"),
        ];
        assert_eq!(pairs, expected.map(|(key, value)| (key, Cow::Borrowed(value))));
    }

    #[test]
    fn absent_and_blank_values_are_not_encoded() {
        let sparse =
            Metadata { correlation_id: " ".to_owned(), deadline: None, parent_item_id: None, ..metadata() };
        let keys: Vec<&str> = sparse.encode().map(|(key, _)| key).collect();
        assert_eq!(keys, [EXECUTION_ID, IDEMPOTENCY_KEY, RETRY_ATTEMPT, DISPATCHED_AT]);
    }
}
