//! Dispatches: one row per activity call that is not settled, its journal record.
//!
//! A record is durable before anything goes over the wire, and counts a delivery before it may happen, so a crash can only count too many.
//! It has all that a delivery needs, so that calls go out again after a crash without their runs. The row is deleted in the commit that records
//! the call's end; the page of that turn has what is kept of it from then on. The table does not know which transitions are legal; the journal's state machine does.

use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, Stored, Table, TableError};
use crate::rows::{Key, Scan};

/// Where a call stands. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DispatchState {
    /// Promised, and surely not sent.
    Pending,
    /// May have been sent; no answer is known.
    Sent,
    /// The last delivery failed, or its outcome is unknown; it may be delivered again.
    FailedRetryable,
}

/// One activity call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dispatch {
    /// The instance that calls.
    pub instance_id: String,
    /// Which life of it.
    pub run_number: u32,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The command of the run that asked for it; the answer names it.
    pub command: u64,
    /// The activity's name.
    pub activity: String,
    /// The step that calls it: the path of the state.
    pub step: String,
    /// The key of the item that fanned out into this one.
    pub parent_item: Option<[u8; 32]>,
    /// Where the call stands.
    pub state: DispatchState,
    /// Possible deliveries less one: what receivers are told.
    pub attempt: u32,
    /// Deliveries in a row that nobody answered.
    pub unanswered: u32,
    /// The fencing token of the node that sent it last; one that is no longer current tells an orphan.
    pub fencing_token: u64,
    /// When the call was promised. All times are milliseconds of UTC since 1970.
    pub created_at: i64,
    /// When it was last sent.
    pub sent_at: i64,
    /// When the whole call is given up, retries included, if ever.
    pub deadline_at: Option<i64>,
    /// What one delivery may take, in milliseconds.
    pub attempt_timeout_ms: u64,
    /// When the next delivery may be, if it must wait.
    pub not_before: Option<i64>,
    /// Why it failed last.
    pub reason: Option<String>,
    /// The places in the input that name secrets.
    pub secrets: Vec<String>,
    /// What the activity is given.
    pub input: DispatchInput,
    /// Where it was sent to last; absent for activities in process.
    pub target: Option<String>,
    /// When a delivery failed first.
    pub first_failure_at: Option<i64>,
    /// What the wire said of the last failure, such as `503 UNAVAILABLE`.
    pub status: Option<String>,
    /// A delivery may have run of which no answer is known.
    pub may_have_run: bool,
    /// The last delivery surely never left, so its number is used again.
    pub unsent: bool,
    /// Deliveries that are over, of the last [`PastDelivery::KEPT_MAX`]. Since format 4.
    pub past: Vec<PastDelivery>,
}

/// A delivery that is over, and did not settle its call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastDelivery {
    /// Possible deliveries before it.
    pub attempt: u32,
    /// When it was recorded as sent. All times are milliseconds of UTC since 1970.
    pub sent_at: i64,
    /// When it was known to be over.
    pub ended_at: i64,
    /// What came of it.
    pub end: DeliveryEnd,
}

impl PastDelivery {
    /// How many are kept of a call: the last ones.
    pub const KEPT_MAX: usize = 32;
    /// Bytes of one, at most.
    pub const BYTES_MAX: usize = 32;
}

/// What came of a delivery. Stored by place: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeliveryEnd {
    /// It failed, and whoever was called, or stands before it, said so.
    Failed,
    /// No answer came, or none that tells whether the activity ran.
    Unanswered,
    /// Its sender died, or gave it up: nobody heard the answer.
    Orphaned,
    /// It never left.
    NotSent,
}

/// The input of a call. Stored by place: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DispatchInput {
    /// Its bytes, in the encoding of whoever advances the run.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The digest of bytes that have a row of their own in [`super::payloads`].
    Stored([u8; 32]),
}

impl Dispatch {
    /// Stands in `not_before` for: as soon as there is somebody to deliver it, whatever the clock says.
    pub const AT_ONCE: i64 = 0;
}

impl Stored for Dispatch {
    const TABLE: Table = Table::Dispatch;
    const FORMAT: u8 = 4;

    /// None of what was appended was known.
    fn appended_since(format: u8) -> &'static [u8] {
        match format {
            1 => &[0, 0, 0, 0, 0, 0],
            2 => &[0, 0, 0],
            _ => &[0],
        }
    }
}

/// The record of a run's call with this idempotency key.
pub fn key(run: u64, idempotency_key: &[u8; 32]) -> Key {
    KeyWriter::new(Table::Dispatch).u64(run).bytes(idempotency_key).key()
}

/// Run and idempotency key of a record's key.
pub fn read_key(key: &Key) -> Result<(u64, [u8; 32]), TableError> {
    let mut reader = KeyReader::new(Table::Dispatch, key)?;
    let fields = (reader.u64()?, reader.array()?);
    reader.end(fields)
}

/// All records of the partition.
pub fn all() -> Scan {
    Table::Dispatch.scan()
}

/// All records of a run, in no order that means anything.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Dispatch).u64(run).scan()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::DispatchState::*;
    use super::*;
    use proptest::prelude::*;

    pub(in crate::tables) fn past() -> impl Strategy<Value = PastDelivery> {
        use DeliveryEnd::{Failed, NotSent, Orphaned, Unanswered};
        let ends = prop::sample::select(vec![Failed, Unanswered, Orphaned, NotSent]);
        (any::<(u32, i64, i64)>(), ends).prop_map(|((attempt, sent_at, ended_at), end)| {
            let past = PastDelivery { attempt, sent_at, ended_at, end };
            assert!(postcard::to_extend(&past, Vec::new()).unwrap().len() <= PastDelivery::BYTES_MAX);
            past
        })
    }

    /// The bytes of a call as they were before it had a target and the first of its failures, and before it was known which deliveries may have run.
    #[test]
    fn a_dispatch_of_an_older_format_is_read_without_what_was_not_known_then() {
        let oldest = Dispatch {
            instance_id: "a".to_owned(),
            run_number: 1,
            correlation_id: "order-7".to_owned(),
            command: 2,
            activity: "charge".to_owned(),
            step: "Charge".to_owned(),
            parent_item: Some([3; 32]),
            state: FailedRetryable,
            attempt: 4,
            unanswered: 1,
            fencing_token: 5,
            created_at: 6,
            sent_at: 7,
            deadline_at: Some(8),
            attempt_timeout_ms: 9,
            not_before: Some(10),
            reason: Some("Busy".to_owned()),
            secrets: vec!["/token".to_owned()],
            input: DispatchInput::Inline(b"{}".to_vec()),
            target: None,
            first_failure_at: None,
            status: None,
            may_have_run: false,
            unsent: false,
            past: Vec::new(),
        };
        let newer = Dispatch {
            target: Some("HTTP https://example.com".to_owned()),
            first_failure_at: Some(11),
            status: Some("503 UNAVAILABLE".to_owned()),
            ..oldest.clone()
        };
        let newest = Dispatch { may_have_run: true, unsent: true, ..newer.clone() };
        for (format, fields, dispatch) in [(1, 6, oldest), (2, 3, newer), (3, 1, newest)] {
            let mut bytes = super::super::encode(&dispatch);
            bytes.truncate(bytes.len() - fields);
            bytes[0] = format;
            assert_eq!(super::super::decode(&bytes), Ok(dispatch), "format {format}");
        }
    }

    proptest! {
        #[test]
        fn a_dispatch_survives_its_bytes(
            counts: (u32, u64, u32, u32, u64, u64),
            texts: [String; 5],
            parent_item: Option<[u8; 32]>,
            state in prop::sample::select(vec![Pending, Sent, FailedRetryable]),
            times: (i64, i64, Option<i64>, Option<i64>),
            reason: Option<String>,
            secrets: Vec<String>,
            input in prop_oneof![
                any::<Vec<u8>>().prop_map(DispatchInput::Inline),
                any::<[u8; 32]>().prop_map(DispatchInput::Stored),
            ],
            known: (Option<String>, Option<i64>, Option<String>, bool, bool),
            past in prop::collection::vec(past(), 0..3),
        ) {
            let (target, first_failure_at, status, may_have_run, unsent) = known;
            let (run_number, command, attempt, unanswered, fencing_token, attempt_timeout_ms) = counts;
            let [instance_id, correlation_id, activity, step, _] = texts;
            let (created_at, sent_at, deadline_at, not_before) = times;
            value_round_trips(&Dispatch {
                instance_id, run_number, correlation_id, command, activity, step, parent_item, state, attempt,
                unanswered, fencing_token, created_at, sent_at, deadline_at, attempt_timeout_ms, not_before, reason,
                secrets, input, target, first_failure_at, status, may_have_run, unsent, past,
            });
        }

        #[test]
        fn dispatches_sort_by_run_and_key(keys in prop::collection::vec((0..3u64, any::<[u8; 32]>()), 1..8)) {
            keys_round_trip_in_order(keys, |(run, call)| key(*run, call), read_key);
        }
    }
}
