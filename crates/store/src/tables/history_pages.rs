//! Pages of a run's history: one row per turn, or several for a large turn, with its events and the parts it changed.
//!
//! The changed parts are stored in the page, so that most turns are one row. They are folded into the rows of
//! [`super::parts`] when the instance becomes idle; until then a run is its folded parts overlaid with the changes of
//! every later page. The content of events and parts is not known here.

use abide_ids::{CommandId, IdempotencyKey, PageNumber, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::calls::PastAttempt;
use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryPageRow {
    /// The number of the page's first event within the run.
    pub first_event: u64,
    pub event_count: u32,
    /// The time of the turn.
    pub turn_at: Timestamp,
    /// The events, in the encoding of the interpreter.
    #[serde(with = "serde_bytes")]
    pub events: Vec<u8>,
    /// Part name → its new bytes, or `None` if the part was deleted.
    #[serde(with = "changes")]
    pub part_changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The calls that were settled with the turn. Their rows in [`super::calls`] are deleted, so these are their only
    /// records.
    pub settled_calls: Vec<SettledCall>,
    /// The failures of settled calls that had any, by the index in `settled_calls`. Since format 3.
    pub call_failures: Vec<(u32, CallFailures)>,
}

/// Encodes byte strings as a whole instead of byte by byte: the same stored bytes, but faster.
mod changes {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_bytes::{ByteBuf, Bytes};

    type Change = (Vec<u8>, Option<Vec<u8>>);

    pub(super) fn serialize<S: Serializer>(changes: &[Change], serializer: S) -> Result<S::Ok, S::Error> {
        let byte_strings =
            changes.iter().map(|(key, value)| (Bytes::new(key), value.as_deref().map(Bytes::new)));
        serializer.collect_seq(byte_strings)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Change>, D::Error> {
        let byte_strings = Vec::<(ByteBuf, Option<ByteBuf>)>::deserialize(deserializer)?;
        let change =
            |(key, value): (ByteBuf, Option<ByteBuf>)| (key.into_vec(), value.map(ByteBuf::into_vec));
        Ok(byte_strings.into_iter().map(change).collect())
    }
}

/// A call that was settled at the time of its page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettledCall {
    /// The command of the run that started the call.
    pub command: CommandId,
    pub idempotency_key: IdempotencyKey,
    pub activity: String,
    /// The path of the state that started the call.
    pub step: String,
    pub end: CallEnd,
    /// The number of possible attempts minus one.
    pub attempt: u32,
    /// When the call was recorded.
    pub created_at: Timestamp,
    /// When the call was last sent, if it ever was.
    #[serde(with = "sent_at")]
    pub sent_at: Option<Timestamp>,
    /// The target of the last attempt; absent for in-process activities.
    pub target: Option<String>,
    /// The reason of the last failure, if there was one.
    pub failure_reason: Option<String>,
}

/// The attempts of a settled call that failed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallFailures {
    /// The attempts that did not settle the call.
    pub past_attempts: Vec<PastAttempt>,
    /// The wire status of the last failure.
    pub failure_status: Option<String>,
}

impl CallFailures {
    pub fn is_empty(&self) -> bool {
        self.past_attempts.is_empty() && self.failure_status.is_none()
    }
}

/// A call that was never sent has the earliest of all times in its row.
mod sent_at {
    use super::{Deserialize, Timestamp};
    use serde::{Deserializer, Serialize, Serializer};

    const NEVER: Timestamp = Timestamp::MIN;

    pub(super) fn serialize<S: Serializer>(
        sent_at: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        sent_at.unwrap_or(NEVER).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Timestamp::deserialize(deserializer).map(|at| Some(at).filter(|at| *at != NEVER))
    }
}

/// The end of a call. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallEnd {
    /// The activity reported success.
    Acked,
    /// The last allowed attempt failed.
    RetryExhausted,
    /// The response reported a permanent failure.
    NonRetryable,
    /// The deadline passed before the call could be sent.
    DeadlineExpired,
    /// The run no longer waited for the call.
    Cancelled,
    /// Too many attempts in a row had no response.
    Poison,
}

impl TableRow for HistoryPageRow {
    const TABLE: TableId = TableId::HistoryPage;
    const FORMAT: u8 = 3;

    /// Format 1 has no settled calls, format 2 has no failures of them.
    fn default_suffix(format: u8) -> &'static [u8] {
        match format {
            1 => &[0, 0],
            _ => &[0],
        }
    }
}

impl HistoryPageRow {
    /// The `first_event` of a page whose event has no known number: events are numbered from 1.
    pub const UNNUMBERED: u64 = 0;

    /// The number of the page's last event, if it has events and their numbers are known.
    pub fn last_event(&self) -> Option<u64> {
        let after_first = u64::from(self.event_count).checked_sub(1)?;
        Some(self.first_event.saturating_add(after_first)).filter(|last| *last != Self::UNNUMBERED)
    }
}

/// The key of a page of a run.
pub fn key(run_id: RunId, page: PageNumber) -> Key {
    KeyWriter::new(TableId::HistoryPage).run_id(run_id).page(page).key()
}

/// The run and the page in a key.
pub fn read_key(key: &Key) -> Result<(RunId, PageNumber), TableError> {
    let mut reader = KeyReader::new(TableId::HistoryPage, key)?;
    let fields = (reader.run_id()?, reader.page()?);
    reader.finish(fields)
}

/// The pages of a run after this one, in order.
pub fn after_page(run_id: RunId, page: PageNumber) -> Scan {
    let until = of_run(run_id).until;
    Scan::between(std::ops::Bound::Excluded(key(run_id, page)), until)
}

/// All pages of a run, in order.
pub fn of_run(run_id: RunId) -> Scan {
    KeyWriter::new(TableId::HistoryPage).run_id(run_id).scan()
}

#[cfg(test)]
mod tests {
    use super::super::calls::tests::past;
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::*;
    use proptest::prelude::*;

    fn settled() -> impl Strategy<Value = SettledCall> {
        use CallEnd::{Acked, Cancelled, DeadlineExpired, NonRetryable, Poison, RetryExhausted};
        let ends = vec![Acked, RetryExhausted, NonRetryable, DeadlineExpired, Cancelled, Poison];
        let texts = any::<(String, String, Option<String>, Option<String>)>();
        let numbers = any::<(CommandId, IdempotencyKey, u32, Timestamp, Option<Timestamp>)>();
        (texts, numbers, prop::sample::select(ends)).prop_map(|(texts, numbers, end)| {
            let (activity, step, target, reason) = texts;
            let (command, idempotency_key, attempt, created_at, sent_at) = numbers;
            SettledCall {
                command,
                idempotency_key,
                activity,
                step,
                end,
                attempt,
                created_at,
                sent_at,
                target,
                failure_reason: reason,
            }
        })
    }

    /// Format 1 has no settled calls, format 2 has no failures of them.
    #[test]
    fn a_page_of_an_older_format_is_read_with_defaults_for_newer_fields() {
        let page = HistoryPageRow {
            first_event: 1,
            event_count: 0,
            turn_at: Timestamp(7),
            events: vec![],
            part_changes: vec![],
            settled_calls: vec![],
            call_failures: vec![],
        };
        let bytes = super::super::encode(&page);
        for (format, fields) in [(1, 2), (2, 1)] {
            let mut bytes = bytes[..bytes.len() - fields].to_vec();
            bytes[0] = format;
            assert_eq!(super::super::decode(&bytes).as_ref(), Ok(&page), "format {format}");
        }
    }

    /// These bytes are stored: they must never change.
    #[test]
    fn a_call_that_was_never_sent_is_stored_with_the_first_of_all_times() {
        let call = SettledCall {
            command: CommandId(1),
            idempotency_key: IdempotencyKey([2; 32]),
            activity: String::new(),
            step: String::new(),
            end: CallEnd::Acked,
            attempt: 0,
            created_at: Timestamp(3),
            sent_at: None,
            target: None,
            failure_reason: None,
        };
        let before = (1u64, [2u8; 32], "", "", CallEnd::Acked, 0u32, 3i64, i64::MIN, None::<()>, None::<()>);
        assert_eq!(postcard::to_stdvec(&call), postcard::to_stdvec(&before));
    }

    #[test]
    fn the_last_event_of_a_page_is_known_if_its_events_have_numbers() {
        let page = |first_event, event_count| HistoryPageRow {
            first_event,
            event_count,
            turn_at: Timestamp(0),
            events: vec![],
            part_changes: vec![],
            settled_calls: vec![],
            call_failures: vec![],
        };
        assert_eq!((page(5, 3).last_event(), page(5, 0).last_event()), (Some(7), None));
        assert_eq!(page(HistoryPageRow::UNNUMBERED, 1).last_event(), None);
    }

    proptest! {
        #[test]
        fn a_page_round_trips(
            first_event: u64,
            event_count: u32,
            turn_at: Timestamp,
            events: Vec<u8>,
            part_changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
            settled_calls in prop::collection::vec(settled(), 0..3),
            past_attempts in prop::collection::vec(past(), 0..3),
            failure_status: Option<String>,
        ) {
            let call_failures = vec![(1, CallFailures { past_attempts, failure_status })];
            // Byte strings encoded byte by byte and as a whole have the same bytes.
            let plain = (first_event, event_count, turn_at, &events, &part_changes, &settled_calls, &call_failures);
            let plain = postcard::to_extend(&plain, vec![HistoryPageRow::FORMAT]).unwrap();
            let page = HistoryPageRow { first_event, event_count, turn_at, events, part_changes, settled_calls, call_failures };
            assert_eq!(super::super::encode(&page), plain);
            value_round_trips(&page);
        }

        #[test]
        fn pages_sort_by_run_and_turn(keys: Vec<(RunId, PageNumber)>) {
            keys_round_trip_in_order(keys, |(run, turn)| key(*run, *turn), read_key);
        }
    }
}
