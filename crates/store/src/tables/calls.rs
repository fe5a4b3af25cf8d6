//! Calls: one row per activity call that is not settled, its journal record.
//!
//! A record is durable before anything is sent, and an attempt is counted before it may happen, so a crash can only
//! make the count too high. The record has everything that an attempt needs. After a crash a call is still sent through
//! its run, which is loaded for it, because the row may be out of date by then. The commit that records the end of a
//! call deletes its row; the history page of that turn has the settled call from then on. The table does not know which
//! transitions are legal; the state machine of the call journal does.

use std::borrow::Cow;

use abide_ids::{CommandId, Digest, IdempotencyKey, RunId, RunNumber, Timestamp};
use serde::{Deserialize, Serialize};

use super::{KeyReader, KeyWriter, TableError, TableId, TableRow};
use crate::rows::{Key, Scan};

/// The state of a call. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallRowState {
    /// Recorded, and certainly not sent.
    Pending,
    /// May have been sent; no response is known.
    Sent,
    /// The last attempt failed, or its outcome is unknown; the call may be retried.
    FailedRetryable,
}

/// One activity call that is not settled. Its texts are borrowed where it is written, and owned where it is read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallRow<'r> {
    pub instance_id: Cow<'r, str>,
    pub run_number: RunNumber,
    pub correlation_id: Cow<'r, str>,
    /// The command of the run that started the call; the result refers to it.
    pub command: CommandId,
    pub activity: Cow<'r, str>,
    /// The path of the state that started the call.
    pub step: Cow<'r, str>,
    /// The key of the enclosing fan-out item, if there is one.
    pub parent_item_key: Option<IdempotencyKey>,
    pub state: CallRowState,
    /// The number of possible attempts minus one: the attempt number that receivers see.
    pub attempt: u32,
    /// The number of attempts in a row without a response.
    pub unanswered_attempts: u32,
    /// The fencing token of the node that sent the call last. If it is no longer current, the attempt is orphaned.
    pub fencing_token: u64,
    /// When the call was recorded.
    pub created_at: Timestamp,
    /// When the call was last sent.
    pub sent_at: Timestamp,
    /// The deadline of the whole call, retries included, if it has one.
    pub deadline_at: Option<Timestamp>,
    pub attempt_timeout_ms: u64,
    /// When the next attempt may be made, if one is planned.
    pub not_before: Option<NotBefore>,
    /// The reason of the last failure.
    pub failure_reason: Option<Cow<'r, str>>,
    /// The places in the input that refer to secrets.
    pub secret_pointers: Cow<'r, [String]>,
    pub input: CallInput,
    /// The target of the last attempt; absent for in-process activities.
    pub target: Option<Cow<'r, str>>,
    /// When an attempt first failed.
    pub first_failure_at: Option<Timestamp>,
    /// The wire status of the last failure, such as `503 UNAVAILABLE`.
    pub failure_status: Option<Cow<'r, str>>,
    /// The activity may have run in an attempt whose result is unknown.
    pub may_have_run: bool,
    /// The last attempt was certainly not sent, so its number is used again.
    pub last_attempt_unsent: bool,
    /// The ended attempts, at most the last [`PastAttempt::PER_CALL_MAX`]. Since format 4.
    pub past_attempts: Cow<'r, [PastAttempt]>,
    /// What holds the call back, if it is certain that the attempt it would make has not been sent. Since format 5.
    pub hold: Option<CallHold>,
}

/// A call that is held back. Written when it becomes held and when the reason changes, not at each try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallHold {
    pub reason: CallHoldReason,
    /// Since when nothing could be sent, whatever the reason was at first.
    pub since: Timestamp,
    /// When it is tried again at the latest, as of the time when this was written. Then it is tried every few seconds.
    pub until: Timestamp,
}

/// Why a call is held back. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallHoldReason {
    /// No connection could be made.
    NotConnected,
    /// The circuit breaker of the target is open.
    CircuitOpen,
    RateLimit,
    ConcurrencyLimit,
}

/// An attempt that ended without settling its call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastAttempt {
    /// The number of possible attempts before it.
    pub attempt: u32,
    /// When it was recorded as sent.
    pub sent_at: Timestamp,
    /// When it was known to have ended.
    pub ended_at: Timestamp,
    pub end: AttemptEnd,
}

impl PastAttempt {
    /// The most ended attempts stored for a call: the last ones.
    pub const PER_CALL_MAX: usize = 32;
    /// The most bytes of one encoded attempt.
    pub const BYTES_MAX: usize = 32;
}

/// The outcome of an attempt. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AttemptEnd {
    /// The receiver, or something in front of it, reported a failure.
    Failed,
    /// No response arrived, or none that tells whether the activity ran.
    Unanswered,
    /// The sender died or abandoned the attempt, so the response was lost.
    Orphaned,
    NotSent,
}

/// The input of a call. Stored by position: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallInput {
    /// The bytes, in the encoding of the interpreter.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The digest of bytes that have a row of their own in [`super::payloads`].
    Stored(Digest),
}

/// When the next attempt of a call may be made. Stored as a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Timestamp", into = "Timestamp")]
pub enum NotBefore {
    /// As soon as a node can send the call, whatever the clock says.
    Anytime,
    At(Timestamp),
}

impl NotBefore {
    /// Stands for [`Self::Anytime`] in the row, and sorts before every other attempt that is due.
    const ANYTIME: Timestamp = Timestamp(0);

    /// The time by which attempts are ordered.
    pub fn due_at(self) -> Timestamp {
        match self {
            Self::Anytime => Self::ANYTIME,
            Self::At(at) => at,
        }
    }

    /// The time to wait for, if there is one.
    pub fn time(self) -> Option<Timestamp> {
        match self {
            Self::Anytime => None,
            Self::At(at) => Some(at),
        }
    }
}

impl From<Timestamp> for NotBefore {
    fn from(at: Timestamp) -> Self {
        if at == Self::ANYTIME { Self::Anytime } else { Self::At(at) }
    }
}

impl From<NotBefore> for Timestamp {
    fn from(not_before: NotBefore) -> Self {
        not_before.due_at()
    }
}

impl TableRow for CallRow<'_> {
    const TABLE: TableId = TableId::Call;
    const FORMAT: u8 = 5;

    /// Older rows know nothing of the appended fields: absent, false or empty.
    fn default_suffix(format: u8) -> &'static [u8] {
        match format {
            1 => &[0, 0, 0, 0, 0, 0, 0],
            2 => &[0, 0, 0, 0],
            3 => &[0, 0],
            _ => &[0],
        }
    }
}

/// The key of a run's call.
pub fn key(run_id: RunId, idempotency_key: &IdempotencyKey) -> Key {
    KeyWriter::new(TableId::Call).run_id(run_id).idempotency_key(idempotency_key).key()
}

/// The run and the idempotency key in a key.
pub fn read_key(key: &Key) -> Result<(RunId, IdempotencyKey), TableError> {
    let mut reader = KeyReader::new(TableId::Call, key)?;
    let fields = (reader.run_id()?, reader.idempotency_key()?);
    reader.finish(fields)
}

/// All calls of the partition.
pub fn all() -> Scan {
    TableId::Call.scan()
}

/// All calls of a run, in no meaningful order.
pub fn of_run(run_id: RunId) -> Scan {
    KeyWriter::new(TableId::Call).run_id(run_id).scan()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::codec::laws::{keys_round_trip_in_order, value_round_trips};
    use super::CallRowState::*;
    use super::*;
    use proptest::prelude::*;

    pub(in crate::tables) fn past() -> impl Strategy<Value = PastAttempt> {
        use AttemptEnd::{Failed, NotSent, Orphaned, Unanswered};
        let ends = prop::sample::select(vec![Failed, Unanswered, Orphaned, NotSent]);
        (any::<(u32, Timestamp, Timestamp)>(), ends).prop_map(|((attempt, sent_at, ended_at), end)| {
            let past = PastAttempt { attempt, sent_at, ended_at, end };
            assert!(postcard::to_extend(&past, Vec::new()).unwrap().len() <= PastAttempt::BYTES_MAX);
            past
        })
    }

    fn hold() -> impl Strategy<Value = CallHold> {
        use CallHoldReason::{CircuitOpen, ConcurrencyLimit, NotConnected, RateLimit};
        let reasons = prop::sample::select(vec![NotConnected, CircuitOpen, RateLimit, ConcurrencyLimit]);
        (reasons, any::<(Timestamp, Timestamp)>()).prop_map(|(reason, (since, until))| CallHold {
            reason,
            since,
            until,
        })
    }

    /// Format 1 has no target and no first failure, format 2 does not know which attempts may have run, format 3 has no
    /// past attempts, format 4 no holds.
    #[test]
    fn a_call_of_an_older_format_is_read_with_defaults_for_newer_fields() {
        let oldest = CallRow {
            instance_id: "a".into(),
            run_number: RunNumber(1),
            correlation_id: "order-7".into(),
            command: CommandId(2),
            activity: "charge".into(),
            step: "Charge".into(),
            parent_item_key: Some(IdempotencyKey([3; 32])),
            state: FailedRetryable,
            attempt: 4,
            unanswered_attempts: 1,
            fencing_token: 5,
            created_at: Timestamp(6),
            sent_at: Timestamp(7),
            deadline_at: Some(Timestamp(8)),
            attempt_timeout_ms: 9,
            not_before: Some(NotBefore::At(Timestamp(10))),
            failure_reason: Some("Busy".into()),
            secret_pointers: vec!["/token".to_owned()].into(),
            input: CallInput::Inline(b"{}".to_vec()),
            target: None,
            first_failure_at: None,
            failure_status: None,
            may_have_run: false,
            last_attempt_unsent: false,
            past_attempts: Cow::default(),
            hold: None,
        };
        let newer = CallRow {
            target: Some("HTTP https://example.com".into()),
            first_failure_at: Some(Timestamp(11)),
            failure_status: Some("503 UNAVAILABLE".into()),
            ..oldest.clone()
        };
        let newest = CallRow { may_have_run: true, last_attempt_unsent: true, ..newer.clone() };
        let cases = [(1, 7, oldest), (2, 4, newer), (3, 2, newest.clone()), (4, 1, newest)];
        for (format, fields, call) in cases {
            let mut bytes = super::super::encode(&call);
            bytes.truncate(bytes.len() - fields);
            bytes[0] = format;
            assert_eq!(super::super::decode(&bytes), Ok(call), "format {format}");
        }
    }

    /// These bytes are stored: they must never change.
    #[test]
    fn a_call_that_may_be_sent_anytime_is_stored_with_time_0() {
        let stored = |not_before: Option<NotBefore>| postcard::to_stdvec(&not_before).unwrap();
        assert_eq!(stored(Some(NotBefore::Anytime)), postcard::to_stdvec(&Some(0i64)).unwrap());
        assert_eq!(stored(Some(NotBefore::At(Timestamp(7)))), postcard::to_stdvec(&Some(7i64)).unwrap());
    }

    proptest! {
        #[test]
        fn a_call_round_trips(
            counts: (RunNumber, CommandId, u32, u32, u64, u64),
            texts: [String; 5],
            parent_item_key: Option<IdempotencyKey>,
            state in prop::sample::select(vec![Pending, Sent, FailedRetryable]),
            times: (Timestamp, Timestamp, Option<Timestamp>, Option<Timestamp>),
            failure_reason: Option<String>,
            secret_pointers: Vec<String>,
            input in prop_oneof![
                any::<Vec<u8>>().prop_map(CallInput::Inline),
                any::<Digest>().prop_map(CallInput::Stored),
            ],
            known: (Option<String>, Option<Timestamp>, Option<String>, bool, bool),
            past_attempts in prop::collection::vec(past(), 0..3),
            hold in prop::option::of(hold()),
        ) {
            let (target, first_failure_at, failure_status, may_have_run, last_attempt_unsent) = known;
            let (run_number, command, attempt, unanswered_attempts, fencing_token, attempt_timeout_ms) = counts;
            let [instance_id, correlation_id, activity, step, _] = texts.map(Cow::Owned);
            let (created_at, sent_at, deadline_at, not_before) = times;
            let not_before = not_before.map(NotBefore::from);
            let (failure_reason, target) = (failure_reason.map(Cow::Owned), target.map(Cow::Owned));
            let failure_status = failure_status.map(Cow::Owned);
            let (secret_pointers, past_attempts) = (Cow::Owned(secret_pointers), Cow::Owned(past_attempts));
            value_round_trips(&CallRow {
                instance_id, run_number, correlation_id, command, activity, step, parent_item_key, state, attempt,
                unanswered_attempts, fencing_token, created_at, sent_at, deadline_at, attempt_timeout_ms, not_before, failure_reason,
                secret_pointers, input, target, first_failure_at, failure_status, may_have_run, last_attempt_unsent, past_attempts,
                hold,
            });
        }

        #[test]
        fn calls_sort_by_run_and_key(keys in prop::collection::vec((0..3u64, any::<IdempotencyKey>()), 1..8)) {
            let keys = keys.into_iter().map(|(run, call)| (RunId(run), call)).collect();
            keys_round_trip_in_order(keys, |(run_id, call)| key(*run_id, call), read_key);
        }
    }
}
