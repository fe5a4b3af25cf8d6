//! The journal of one call: which attempts may have been made, and what is known about them.
//!
//! ```text
//!             send                    ack
//!  Pending ─────────► Sent ─────────────────────► Acked
//!     │                │ ▲ │ fail permanently
//!     │   may be tried │ │ └────────────────────► FailedFinal
//!     │          again ▼ │ send, attempt + 1          ▲
//!     │           FailedRetryable ────────────────────┤ deadline passed, cancelled, poison, or no retry follows
//!     └───────────────────────────────────────────────┘ deadline passed, cancelled, or rejected before sending
//! ```
//! Each state is its own type and a transition consumes the old state, so a transition that is not drawn does not
//! compile. A record is marked *may have been sent* before anything is written to the wire: after a crash the journal
//! may count attempts that were never made, but never the reverse.
//! Stored records are restored as unsettled calls; only transitions create final states:
//!
//! ```compile_fail,E0599
//! # use abide_dispatch::call_journal::{JournalRecord, PendingCall};
//! # use abide_ids::Timestamp;
//! // A call that was never sent cannot be acknowledged.
//! PendingCall::new(JournalRecord::new(Timestamp(0), None, 10_000, 1)).ack(Timestamp(1));
//! ```
//! ```compile_fail,E0639
//! # use abide_dispatch::call_journal::{AckedCall, JournalRecord};
//! # use abide_ids::Timestamp;
//! # let record = JournalRecord::new(Timestamp(0), None, 10_000, 1);
//! AckedCall { record, settled_at: Timestamp(1) };
//! ```
//!
//! The journal decides nothing about retries: the workflow does, and requests another attempt of the same record.

use abide_ids::{Duration, Timestamp};

use crate::transport::CallFailure;

/// The fields that all states of a call have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalRecord {
    /// Attempts that may have been made, minus one. Sent to the receiver.
    pub attempt: u32,
    /// Attempts in a row whose outcome was never reported.
    pub consecutive_unanswered: u32,
    /// An attempt may have run whose result is unknown. A receiver that supports probes is probed before the next one.
    pub may_have_run: bool,
    /// The last attempt certainly never left, so its number is used again.
    pub last_attempt_unsent: bool,
    /// When the workflow requested the call.
    pub created_at: Timestamp,
    /// When the whole call expires, retries included, if ever.
    pub deadline_at: Option<Timestamp>,
    /// How long one attempt may take.
    pub attempt_timeout_ms: u64,
    /// The fencing token of the last sender; before the first attempt, that of the owner that recorded the call.
    pub fencing_token: u64,
    /// When the last attempt was recorded as sent; before the first attempt, when the call was requested.
    pub sent_at: Timestamp,
}

/// Unanswered attempts in a row after which the call fails as poison: it may be what kills its receiver.
pub const CONSECUTIVE_UNANSWERED_MAX: u32 = 5;

/// Requested, certainly not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PendingCall {
    pub record: JournalRecord,
}

/// May have been sent; no result is known.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SentCall {
    pub record: JournalRecord,
}

/// The last attempt failed or its outcome is unknown; there may be another.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FailedRetryable {
    pub record: JournalRecord,
}

/// Completed with success, and the result is committed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AckedCall {
    pub record: JournalRecord,
    pub settled_at: Timestamp,
}

/// The call failed permanently.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FailedFinal {
    pub record: JournalRecord,
    pub reason: FinalReason,
    pub settled_at: Timestamp,
}

/// Why a call failed permanently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FinalReason {
    /// The last allowed attempt failed.
    RetryExhausted,
    /// The failure says that a retry cannot help.
    NonRetryable,
    /// The deadline passed before the call could be sent, or before it was answered.
    DeadlineExpired,
    /// The workflow no longer waits for the call.
    Cancelled,
    /// Too many attempts in a row went unanswered.
    Poison,
}

/// Why no other attempt follows a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinalFailureKind {
    /// Another attempt might have helped, but none is left.
    RetryExhausted,
    /// Another attempt cannot help.
    NonRetryable,
}

impl From<FinalFailureKind> for FinalReason {
    fn from(kind: FinalFailureKind) -> Self {
        match kind {
            FinalFailureKind::RetryExhausted => Self::RetryExhausted,
            FinalFailureKind::NonRetryable => Self::NonRetryable,
        }
    }
}

impl FinalReason {
    /// The stable word that users and other programs read.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::RetryExhausted => "retry_exhausted",
            Self::NonRetryable => "non_retryable",
            Self::DeadlineExpired => "deadline_expired",
            Self::Cancelled => "cancelled",
            Self::Poison => "poison",
        }
    }
}

/// A call that is not settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnsettledCall {
    /// Requested, certainly not sent.
    Pending(PendingCall),
    /// May have been sent; no result is known.
    Sent(SentCall),
    /// The last attempt failed or its outcome is unknown; there may be another.
    FailedRetryable(FailedRetryable),
}

/// The outcome of an attempt, as far as it says whether the activity ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttemptOutcome {
    /// The activity responded.
    Responded,
    /// The activity may have run or not.
    Unknown,
    /// Nothing was sent.
    NotSent,
    /// Something in front of the activity refused the request and did not let it through.
    Rejected,
}

impl AttemptOutcome {
    pub fn of_failure(failure: &CallFailure) -> Self {
        match (failure.not_sent, failure.outcome_unknown) {
            (true, _) => Self::NotSent,
            // Checked before the status: a 503 may come from a proxy that lost the response.
            (false, true) => Self::Unknown,
            (false, false) if failure.is_rejected_before_handler() => Self::Rejected,
            (false, false) => Self::Responded,
        }
    }
}

impl UnsettledCall {
    /// Restores a stored call that was never sent.
    pub fn pending(record: JournalRecord) -> Self {
        Self::Pending(PendingCall { record })
    }

    /// Restores a stored call that may have been sent.
    pub fn sent(record: JournalRecord) -> Self {
        Self::Sent(SentCall { record })
    }

    /// Restores a stored call that may be tried again.
    pub fn failed_retryable(record: JournalRecord) -> Self {
        Self::FailedRetryable(FailedRetryable { record })
    }

    pub fn record(&self) -> &JournalRecord {
        match self {
            Self::Pending(PendingCall { record })
            | Self::Sent(SentCall { record })
            | Self::FailedRetryable(FailedRetryable { record }) => record,
        }
    }

    fn record_mut(&mut self) -> &mut JournalRecord {
        match self {
            Self::Pending(PendingCall { record })
            | Self::Sent(SentCall { record })
            | Self::FailedRetryable(FailedRetryable { record }) => record,
        }
    }

    /// How many attempts may have been made.
    pub fn attempts_made(&self) -> u32 {
        let record = self.record();
        let current = !matches!(self, Self::Pending(_)) && !record.last_attempt_unsent;
        record.attempt.saturating_add(u32::from(current))
    }

    /// Notes the outcome of the last attempt, whether or not another one follows.
    pub fn note_outcome(&mut self, outcome: AttemptOutcome) {
        let record = self.record_mut();
        match outcome {
            // An activity that responds knows of all earlier attempts.
            AttemptOutcome::Responded => (record.may_have_run, record.consecutive_unanswered) = (false, 0),
            AttemptOutcome::Unknown => record.may_have_run = true,
            AttemptOutcome::NotSent => record.last_attempt_unsent = true,
            AttemptOutcome::Rejected => {}
        }
    }

    /// Starts the next attempt, or ends the call if there can be none. An attempt that may be in progress is returned
    /// unchanged.
    pub fn send(self, fencing_token: u64, at: Timestamp) -> Result<SentCall, FailedFinal> {
        match self {
            Self::Pending(pending) => pending.send(fencing_token, at),
            Self::FailedRetryable(failed) => failed.send(fencing_token, at),
            Self::Sent(sent) => Ok(sent),
        }
    }

    /// No other attempt follows the reported failure. A call that was never sent has used up no attempt, so it fails as
    /// non-retryable.
    pub fn fail_final(self, kind: FinalFailureKind, at: Timestamp) -> FailedFinal {
        match self {
            Self::Pending(pending) => pending.reject(at),
            Self::FailedRetryable(failed) => failed.fail_final(kind, at),
            Self::Sent(sent) => sent.fail_final(kind, at),
        }
    }

    /// The deadline has passed. An attempt that may be in progress becomes an orphan.
    pub fn expire(self, at: Timestamp) -> FailedFinal {
        match self {
            Self::Pending(pending) => pending.expire(at),
            Self::FailedRetryable(failed) => failed.expire(at),
            Self::Sent(sent) => sent.mark_orphaned().expire(at),
        }
    }

    /// The workflow no longer waits for the call. An attempt that may be in progress becomes an orphan.
    pub fn cancel(self, at: Timestamp) -> FailedFinal {
        match self {
            Self::Pending(pending) => pending.cancel(at),
            Self::FailedRetryable(failed) => failed.cancel(at),
            Self::Sent(sent) => sent.mark_orphaned().cancel(at),
        }
    }
}

impl PendingCall {
    /// A call that the workflow has just requested.
    pub fn new(record: JournalRecord) -> Self {
        Self { record }
    }

    /// Starts the first attempt, or ends the call if no time is left.
    pub fn send(self, fencing_token: u64, at: Timestamp) -> Result<SentCall, FailedFinal> {
        start_attempt(self.record, fencing_token, at)
    }

    /// The workflow no longer waits for the call.
    pub fn cancel(self, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(FinalReason::Cancelled, at)
    }

    /// The deadline passed before the call was sent.
    pub fn expire(self, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(FinalReason::DeadlineExpired, at)
    }

    /// The call cannot be sent as it is, and never will be.
    pub fn reject(self, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(FinalReason::NonRetryable, at)
    }
}

impl SentCall {
    /// The activity completed with success.
    pub fn ack(self, at: Timestamp) -> AckedCall {
        AckedCall { record: self.record, settled_at: at }
    }

    /// The attempt failed, and no other follows.
    pub fn fail_final(self, kind: FinalFailureKind, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(kind.into(), at)
    }

    /// The attempt failed, and another may follow. Its outcome has been noted, and what it says about earlier ones.
    pub fn fail_retryable(mut self) -> FailedRetryable {
        self.record.consecutive_unanswered = 0;
        FailedRetryable { record: self.record }
    }

    /// The attempt never left and will not: its sender shuts down. That says nothing about earlier attempts, nor about
    /// what they did to their senders, so they stay counted.
    pub fn withdraw(mut self) -> FailedRetryable {
        self.record.last_attempt_unsent = true;
        FailedRetryable { record: self.record }
    }

    /// When this attempt times out. It never outlives its call.
    pub fn attempt_deadline_at(&self) -> Timestamp {
        let limit = self.record.sent_at.plus(Duration(self.record.attempt_timeout_ms));
        self.record.deadline_at.map_or(limit, |deadline| deadline.min(limit))
    }

    /// True if no sender can be waiting for the response any more: it has lost its shard, or the attempt has timed out.
    pub fn is_orphan(&self, current_token: Option<u64>, now: Timestamp) -> bool {
        Some(self.record.fencing_token) != current_token || now >= self.attempt_deadline_at()
    }

    /// No response will arrive. It is unknown whether the activity ran.
    pub fn mark_orphaned(mut self) -> FailedRetryable {
        self.record.consecutive_unanswered = self.record.consecutive_unanswered.saturating_add(1);
        self.record.may_have_run = true;
        FailedRetryable { record: self.record }
    }
}

impl FailedRetryable {
    /// Starts another attempt of the same call, or ends the call if no time is left or too many attempts in a row went
    /// unanswered.
    pub fn send(self, fencing_token: u64, at: Timestamp) -> Result<SentCall, FailedFinal> {
        if self.record.consecutive_unanswered >= CONSECUTIVE_UNANSWERED_MAX {
            return Err(self.poison(at));
        }
        let mut sent = start_attempt(self.record, fencing_token, at)?;
        if !std::mem::take(&mut sent.record.last_attempt_unsent) {
            sent.record.attempt = sent.record.attempt.saturating_add(1);
        }
        Ok(sent)
    }

    /// The workflow no longer waits for the call.
    pub fn cancel(self, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(FinalReason::Cancelled, at)
    }

    /// The deadline passed before there was another attempt.
    pub fn expire(self, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(FinalReason::DeadlineExpired, at)
    }

    /// Too many attempts in a row went unanswered.
    pub fn poison(self, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(FinalReason::Poison, at)
    }

    /// The workflow has decided that no other attempt follows the failure.
    pub fn fail_final(self, kind: FinalFailureKind, at: Timestamp) -> FailedFinal {
        self.record.into_failed_final(kind.into(), at)
    }
}

impl JournalRecord {
    /// The record of a call that the workflow has just requested.
    pub fn new(
        created_at: Timestamp,
        deadline_at: Option<Timestamp>,
        attempt_timeout_ms: u64,
        fencing_token: u64,
    ) -> Self {
        Self {
            attempt: 0,
            consecutive_unanswered: 0,
            may_have_run: false,
            last_attempt_unsent: false,
            created_at,
            deadline_at,
            attempt_timeout_ms,
            fencing_token,
            sent_at: created_at,
        }
    }

    fn into_failed_final(self, reason: FinalReason, at: Timestamp) -> FailedFinal {
        FailedFinal { record: self, reason, settled_at: at }
    }
}

/// A call that has expired is not sent.
fn start_attempt(
    record: JournalRecord,
    fencing_token: u64,
    sent_at: Timestamp,
) -> Result<SentCall, FailedFinal> {
    if record.deadline_at.is_some_and(|deadline| deadline <= sent_at) {
        return Err(record.into_failed_final(FinalReason::DeadlineExpired, sent_at));
    }
    Ok(SentCall { record: JournalRecord { fencing_token, sent_at, ..record } })
}

#[cfg(test)]
mod tests;
