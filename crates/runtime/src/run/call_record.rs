//! One call in the same form, open or settled: made from its record, or from the history page of its last turn.
//!
//! Clients are shown calls in this form; the shard itself does not use it. Reading from the store is not done here.

use std::borrow::Cow;

use abide_dispatch::call_journal::FinalReason;
use abide_ids::IdempotencyKey;
use abide_store::tables::calls::{CallRow, CallRowState, NotBefore, PastAttempt};
use abide_store::tables::history_pages::{CallEnd, CallFailures, SettledCall};
use abide_workflow::{CommandId, RunNumber, Timestamp};

use super::RunRef;
use super::held_back::HeldBack;

/// A call, open or settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallRecord {
    pub instance_id: String,
    pub run_number: RunNumber,
    /// The command that made the call; the history names it.
    pub command: CommandId,
    /// The key by which the receiver recognises a repeated attempt.
    pub idempotency_key: IdempotencyKey,
    /// The state of the workflow that makes the call.
    pub step: String,
    pub activity: String,
    pub state: CallState,
    /// The current or last attempt, numbered from 0.
    pub attempt: u32,
    /// The time of the commit that promised the call.
    pub created_at: Timestamp,
    /// The time at which it may have been sent last, if ever.
    pub sent_at: Option<Timestamp>,
    pub settled_at: Option<Timestamp>,
    /// The time after which no attempt is made, retries included. Not kept for settled calls.
    pub deadline_at: Option<Timestamp>,
    /// The earliest time of the next attempt, if the call must wait for it.
    pub next_attempt_at: Option<Timestamp>,
    /// What holds it back, if anything does.
    pub held: Option<HeldBack>,
    /// The message of the last failure.
    pub last_error: Option<String>,
    /// The wire's status of that failure.
    pub last_status: Option<String>,
    /// The most recent attempts that ended without settling the call.
    pub past_attempts: Vec<PastAttempt>,
    /// A transport and an address; none for activities in process.
    target: Option<String>,
}

/// The state of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallState {
    /// Promised, and certainly not sent.
    Pending,
    /// May have been sent; no result is known.
    Sent,
    /// The last attempt failed, or its outcome is unknown; the call may be retried.
    FailedRetryable,
    /// The activity returned success.
    Acked,
    FailedFinal(FinalReason),
}

impl CallRecord {
    pub(super) fn from_row(idempotency_key: IdempotencyKey, row: CallRow<'static>) -> Self {
        let state = match row.state {
            CallRowState::Pending => CallState::Pending,
            CallRowState::Sent => CallState::Sent,
            CallRowState::FailedRetryable => CallState::FailedRetryable,
        };
        let was_sent = row.attempt > 0 || state != CallState::Pending && !row.last_attempt_unsent;
        Self {
            instance_id: row.instance_id.into_owned(),
            run_number: row.run_number,
            command: row.command,
            idempotency_key,
            step: row.step.into_owned(),
            activity: row.activity.into_owned(),
            attempt: row.attempt,
            created_at: row.created_at,
            sent_at: Some(row.sent_at).filter(|_| was_sent),
            settled_at: None,
            deadline_at: row.deadline_at,
            next_attempt_at: row.not_before.and_then(NotBefore::time),
            held: row.hold.map(HeldBack::of),
            last_error: row.failure_reason.map(Cow::into_owned).filter(|reason| !reason.is_empty()),
            last_status: row.failure_status.map(Cow::into_owned),
            past_attempts: row.past_attempts.into_owned(),
            target: row.target.map(Cow::into_owned),
            state,
        }
    }

    /// A call that was settled in the turn at `at`.
    pub(super) fn from_settled(
        run: &RunRef,
        settled: SettledCall,
        failures: CallFailures,
        at: Timestamp,
    ) -> Self {
        Self {
            instance_id: run.instance_id.as_str().to_owned(),
            run_number: run.run_number,
            command: settled.command,
            idempotency_key: settled.idempotency_key,
            step: settled.step,
            activity: settled.activity,
            state: match settled.end {
                CallEnd::Acked => CallState::Acked,
                CallEnd::RetryExhausted => CallState::FailedFinal(FinalReason::RetryExhausted),
                CallEnd::NonRetryable => CallState::FailedFinal(FinalReason::NonRetryable),
                CallEnd::DeadlineExpired => CallState::FailedFinal(FinalReason::DeadlineExpired),
                CallEnd::Cancelled => CallState::FailedFinal(FinalReason::Cancelled),
                CallEnd::Poison => CallState::FailedFinal(FinalReason::Poison),
            },
            attempt: settled.attempt,
            created_at: settled.created_at,
            sent_at: settled.sent_at,
            settled_at: Some(at),
            deadline_at: None,
            next_attempt_at: None,
            held: None,
            last_error: settled.failure_reason.filter(|reason| !reason.is_empty()),
            last_status: failures.failure_status,
            past_attempts: failures.past_attempts,
            target: settled.target,
        }
    }

    /// The transport and the address; `local` and none for activities in process.
    pub fn transport_and_target(&self) -> (&str, Option<&str>) {
        transport_and_target(self.target.as_deref())
    }
}

/// The transport and the address in the stored target of a call; `local` and none for activities in process. Dead
/// letters of calls name them, too.
pub(crate) fn transport_and_target(target: Option<&str>) -> (&str, Option<&str>) {
    match target.and_then(|target| target.split_once(' ')) {
        Some((transport, target)) => (transport, Some(target)),
        None => ("local", None),
    }
}
