//! Pages of a run's history: one row per turn, with what the turn told and what it changed.
//!
//! The changed parts ride in the page, so a turn is one row. They are folded into the rows of [`super::parts`] when the instance
//! rests; until then a run is its folded parts with the changes of every later page laid over them.

use serde::{Deserialize, Serialize};

use super::dispatches::PastDelivery;
use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// One turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page {
    /// The number of its first event within the run.
    pub first_event: u64,
    /// How many events it has.
    pub events_count: u32,
    /// When the turn was, in milliseconds of UTC since 1970.
    pub at: i64,
    /// The events, in the encoding of whoever advances the run.
    #[serde(with = "serde_bytes")]
    pub events: Vec<u8>,
    /// Part key → its new bytes, or `None` if the part is gone.
    #[serde(with = "changes")]
    pub changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Calls that were settled with the turn: their journal records are gone, and this is what is kept of them.
    pub settled: Vec<SettledCall>,
    /// What is known beyond that of some of them, by their place among them. Since format 3.
    pub troubled: Vec<(u32, Trouble)>,
}

/// Bytes at a stretch instead of one by one: the same in the store, and quicker.
mod changes {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_bytes::{ByteBuf, Bytes};

    type Change = (Vec<u8>, Option<Vec<u8>>);

    pub(super) fn serialize<S: Serializer>(changes: &[Change], serializer: S) -> Result<S::Ok, S::Error> {
        let stretches =
            changes.iter().map(|(key, value)| (Bytes::new(key), value.as_deref().map(Bytes::new)));
        serializer.collect_seq(stretches)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Change>, D::Error> {
        let stretches = Vec::<(ByteBuf, Option<ByteBuf>)>::deserialize(deserializer)?;
        let change =
            |(key, value): (ByteBuf, Option<ByteBuf>)| (key.into_vec(), value.map(ByteBuf::into_vec));
        Ok(stretches.into_iter().map(change).collect())
    }
}

/// A call that was settled, at the time of its page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettledCall {
    /// The command of the run that asked for it.
    pub command: u64,
    /// The receiver's dedupe key.
    pub idempotency_key: [u8; 32],
    /// The activity's name.
    pub activity: String,
    /// The step that called it.
    pub step: String,
    /// How it ended.
    pub end: CallEnd,
    /// Possible deliveries less one.
    pub attempt: u32,
    /// When it was promised. All times are milliseconds of UTC since 1970.
    pub created_at: i64,
    /// When it was last sent, or [`Self::NEVER`].
    pub sent_at: i64,
    /// Where it was sent to last; absent for activities in process.
    pub target: Option<String>,
    /// Why it failed last, if it ever did.
    pub reason: Option<String>,
}

/// What is kept of a settled call of which not every delivery went well.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    /// Deliveries that did not settle it.
    pub past: Vec<PastDelivery>,
    /// What the wire said of the last failure.
    pub status: Option<String>,
}

impl Trouble {
    /// Whether there was none.
    pub fn is_none(&self) -> bool {
        self.past.is_empty() && self.status.is_none()
    }
}

impl SettledCall {
    /// The moment of what did not happen.
    pub const NEVER: i64 = i64::MIN;
}

/// How a call ended. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallEnd {
    /// Answered with success.
    Acked,
    /// The last allowed delivery failed.
    RetryExhausted,
    /// The answer said that trying again cannot help.
    NonRetryable,
    /// The deadline passed before it could be sent.
    DeadlineExpired,
    /// Nobody waited for it any more.
    Cancelled,
    /// Too many deliveries in a row went unanswered.
    Poison,
}

impl Stored for Page {
    const TABLE: Table = Table::Page;
    const FORMAT: u8 = 3;

    /// No calls were kept in pages; of those that were, not every delivery.
    fn appended_since(format: u8) -> &'static [u8] {
        match format {
            1 => &[0, 0],
            _ => &[0],
        }
    }
}

impl Page {
    /// The number of its last event, or 0 if it has none.
    pub fn last_event(&self) -> u64 {
        match u64::from(self.events_count) {
            0 => 0,
            count => self.first_event.saturating_add(count - 1),
        }
    }
}

/// The page of a run's turn.
pub fn key(run: u64, turn: u64) -> Key {
    KeyWriter::new(Table::Page).u64(run).u64(turn).key()
}

/// Run and turn of a page's key.
pub fn read_key(key: &Key) -> Result<(u64, u64), TableError> {
    let mut reader = KeyReader::new(Table::Page, key)?;
    let fields = (reader.u64()?, reader.u64()?);
    reader.end(fields)
}

/// The pages of a run after this one, in order.
pub fn after(run: u64, turn: u64) -> Scan {
    let until = KeyWriter::new(Table::Page).u64(run).scan().until;
    Scan::between(std::ops::Bound::Excluded(key(run, turn)), until)
}

/// All pages of a run, in order.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Page).u64(run).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::super::dispatches::tests::past;
    use super::*;
    use proptest::prelude::*;

    fn settled() -> impl Strategy<Value = SettledCall> {
        use CallEnd::{Acked, Cancelled, DeadlineExpired, NonRetryable, Poison, RetryExhausted};
        let ends = vec![Acked, RetryExhausted, NonRetryable, DeadlineExpired, Cancelled, Poison];
        let texts = any::<(String, String, Option<String>, Option<String>)>();
        let numbers = any::<(u64, [u8; 32], u32, i64, i64)>();
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
                reason,
            }
        })
    }

    /// The bytes of a page as they were before calls were kept in it, and before all deliveries were.
    #[test]
    fn a_page_of_an_older_format_is_read_as_one_without_what_was_not_kept_then() {
        let page = Page {
            first_event: 1,
            events_count: 0,
            at: 7,
            events: vec![],
            changes: vec![],
            settled: vec![],
            troubled: vec![],
        };
        let bytes = super::super::encode(&page);
        for (format, fields) in [(1, 2), (2, 1)] {
            let mut bytes = bytes[..bytes.len() - fields].to_vec();
            bytes[0] = format;
            assert_eq!(super::super::decode(&bytes).as_ref(), Ok(&page), "format {format}");
        }
    }

    proptest! {
        #[test]
        fn a_page_survives_its_bytes(
            first_event: u64,
            events_count: u32,
            at: i64,
            events: Vec<u8>,
            changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
            settled in prop::collection::vec(settled(), 0..3),
            past in prop::collection::vec(past(), 0..3),
            status: Option<String>,
        ) {
            let troubled = vec![(1, Trouble { past, status })];
            // Rows that were written byte by byte are read at a stretch, and the other way round.
            let plain = (first_event, events_count, at, &events, &changes, &settled, &troubled);
            let plain = postcard::to_extend(&plain, vec![Page::FORMAT]).unwrap();
            let page = Page { first_event, events_count, at, events, changes, settled, troubled };
            assert_eq!(super::super::encode(&page), plain);
            value_round_trips(&page);
        }

        #[test]
        fn pages_sort_by_run_and_turn(keys: Vec<(u64, u64)>) {
            keys_round_trip_in_order(keys, |(run, turn)| key(*run, *turn), read_key);
        }
    }
}
