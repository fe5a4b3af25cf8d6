//! Dispatches: one row per activity call, its journal record.
//!
//! A record is durable before anything goes over the wire, and counts a delivery before it may happen, so a
//! crash can only count too many. The table does not know which transitions are legal; the journal's state
//! machine does. The execution id and the step of the contract are the run and `step`; the idempotency key is
//! a digest of both and more, so it stands in the key.

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
    /// Answered with success, and the answer is committed. Final.
    Acked,
    /// The last delivery failed, or its outcome is unknown; it may be delivered again.
    FailedRetryable,
    /// Failed for good. Final.
    FailedFinal,
}

/// One activity call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dispatch {
    /// The command of the run that asked for it; the answer names it.
    pub command: u64,
    /// The activity's name.
    pub activity: String,
    /// The step that calls it: the path of the state.
    pub step: String,
    /// Where the call stands.
    pub state: DispatchState,
    /// Possible deliveries less one: what receivers are told.
    pub attempt: u32,
    /// Answers that count against the retry policy. A crash raises the attempt and not this.
    pub failures: u32,
    /// The fencing token of the node that sent it last; one that is no longer current tells an orphan.
    pub fencing_token: u64,
    /// When the call was promised. All times are milliseconds of UTC since 1970.
    pub created_at: i64,
    /// When it was last sent, if it was.
    pub sent_at: Option<i64>,
    /// When the delivery under way is given up, if there is one.
    pub attempt_deadline_at: Option<i64>,
    /// When the whole call is given up, retries included, if ever.
    pub deadline_at: Option<i64>,
    /// When the next delivery may be, if it must wait.
    pub not_before: Option<i64>,
    /// When it reached a final state, if it did.
    pub settled_at: Option<i64>,
    /// Why it failed last, or for good.
    pub reason: Option<String>,
    /// What the activity is given.
    pub input: DispatchInput,
}

/// The input of a call, kept as long as it may have to be sent again. Stored by place: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DispatchInput {
    /// The call is settled; history has the input.
    Dropped,
    /// Its bytes, in the encoding of whoever advances the run.
    Inline(Vec<u8>),
    /// The digest of bytes that have a row of their own in [`super::payloads`].
    Stored([u8; 32]),
}

impl Stored for Dispatch {
    const TABLE: Table = Table::Dispatch;
    const FORMAT: u8 = 1;
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

/// All records of a run, in no order that means anything.
pub fn of_run(run: u64) -> Scan {
    KeyWriter::new(Table::Dispatch).u64(run).scan()
}

#[cfg(test)]
mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::DispatchState::*;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_dispatch_survives_its_bytes(
            counts: (u64, u32, u32, u64),
            texts in (".{0,20}", ".{0,20}"),
            state in prop::sample::select(vec![Pending, Sent, Acked, FailedRetryable, FailedFinal]),
            created_at: i64,
            times: [Option<i64>; 5],
            reason: Option<String>,
            input in prop_oneof![
                Just(DispatchInput::Dropped),
                any::<Vec<u8>>().prop_map(DispatchInput::Inline),
                any::<[u8; 32]>().prop_map(DispatchInput::Stored),
            ],
        ) {
            let (command, attempt, failures, fencing_token) = counts;
            let (activity, step) = texts;
            let [sent_at, attempt_deadline_at, deadline_at, not_before, settled_at] = times;
            value_round_trips(&Dispatch {
                command, activity, step, state, attempt, failures, fencing_token, created_at, sent_at,
                attempt_deadline_at, deadline_at, not_before, settled_at, reason, input,
            });
        }

        #[test]
        fn dispatches_sort_by_run_and_key(keys in prop::collection::vec((0..3u64, any::<[u8; 32]>()), 1..8)) {
            keys_round_trip_in_order(keys, |(run, call)| key(*run, call), read_key);
        }
    }
}
