//! Converts between the stored row of a call and its typed journal.
//!
//! The state of a call is changed here and nowhere else, so that only transitions of the journal are ever written.
//! Knows neither runs nor commits.

use abide_dispatch::call_journal::{
    FailedFinal, FailedRetryable, FinalReason, JournalRecord, JournalState, SentCall, UnsettledCall,
};
use abide_ids::{IdempotencyKey, Timestamp};
use abide_store::tables::calls::{AttemptEnd, CallRow, CallRowState, PastAttempt};
use abide_store::tables::history_pages::{CallEnd, CallFailures, SettledCall};

use super::attempt_outcome::AttemptOutcome;

/// The record of a settled call, for the history page.
#[derive(Debug)]
pub(super) struct SettledRecord {
    pub(super) call: SettledCall,
    pub(super) failures: CallFailures,
}

/// The journal state of a stored call.
pub(super) fn state_of(row: &CallRow) -> UnsettledCall {
    let record = JournalRecord {
        attempt: row.attempt,
        consecutive_unanswered: row.unanswered_attempts,
        may_have_run: row.may_have_run || row.unanswered_attempts > 0,
        last_attempt_unsent: row.last_attempt_unsent,
        created_at: row.created_at,
        deadline_at: row.deadline_at,
    };
    let stage = match row.state {
        CallRowState::Pending => JournalState::Pending,
        CallRowState::FailedRetryable => {
            JournalState::FailedRetryable { reason: row.failure_reason.clone().unwrap_or_default() }
        }
        CallRowState::Sent => JournalState::Sent {
            fencing_token: row.fencing_token,
            sent_at: row.sent_at,
            attempt_timeout_ms: row.attempt_timeout_ms,
        },
    };
    UnsettledCall::restore(record, stage)
}

/// Records that the attempt may have been sent from now on.
pub(super) fn record_sent(row: &mut CallRow, sent: &SentCall) {
    apply_record(row, CallRowState::Sent, &sent.record);
    row.fencing_token = sent.fencing_token;
    row.sent_at = sent.sent_at;
    row.not_before = None;
}

/// Records that the last attempt failed, or will not get a response.
pub(super) fn record_failed(row: &mut CallRow, failed: FailedRetryable, end: AttemptEnd, at: Timestamp) {
    record_past_attempt(row, end, at);
    apply_record(row, CallRowState::FailedRetryable, &failed.record);
    row.failure_reason = Some(failed.reason);
}

/// Adds the last attempt to the list of past attempts, dropping the oldest if there are too many.
fn record_past_attempt(row: &mut CallRow, end: AttemptEnd, ended_at: Timestamp) {
    let CallRow { attempt, sent_at, .. } = *row;
    if row.past_attempts.len() >= PastAttempt::PER_CALL_MAX {
        row.past_attempts.remove(0);
    }
    row.past_attempts.push(PastAttempt { attempt, sent_at, ended_at, end });
}

/// The end of an attempt by its outcome: unanswered if no outcome was reported.
fn attempt_end(outcome: Option<AttemptOutcome>) -> AttemptEnd {
    match outcome {
        Some(AttemptOutcome::NotSent) => AttemptEnd::NotSent,
        Some(AttemptOutcome::Unknown) | None => AttemptEnd::Unanswered,
        Some(AttemptOutcome::Responded | AttemptOutcome::Rejected) => AttemptEnd::Failed,
    }
}

fn apply_record(row: &mut CallRow, state: CallRowState, record: &JournalRecord) {
    row.state = state;
    row.attempt = record.attempt;
    row.unanswered_attempts = record.consecutive_unanswered;
    row.may_have_run = record.may_have_run;
    row.last_attempt_unsent = record.last_attempt_unsent;
}

/// Records the end of an attempt that another one may follow. Its outcome is in the row already.
pub(super) fn record_attempt_end(row: &mut CallRow, outcome: Option<AttemptOutcome>, at: Timestamp) {
    let UnsettledCall::Sent(sent) = state_of(row) else { return };
    let reason = row.failure_reason.take().unwrap_or_default();
    let failed = match (row.last_attempt_unsent, row.may_have_run) {
        (true, _) => sent.fail_unsent(reason),
        (false, true) => sent.fail_unknown(reason),
        (false, false) => sent.fail_retryable(reason),
    };
    record_failed(row, failed, attempt_end(outcome), at);
}

/// Records the outcome of the last attempt, whether or not another one follows.
pub(super) fn record_outcome(row: &mut CallRow, outcome: AttemptOutcome) {
    match outcome {
        // An activity that responds knows of all earlier attempts.
        AttemptOutcome::Responded => (row.may_have_run, row.unanswered_attempts) = (false, 0),
        AttemptOutcome::Unknown => row.may_have_run = true,
        AttemptOutcome::NotSent => row.last_attempt_unsent = true,
        AttemptOutcome::Rejected => {}
    }
}

/// How many attempts may have been made.
pub(super) fn attempts_made(row: &CallRow) -> u32 {
    let pending = row.state == CallRowState::Pending;
    state_of(row).record().attempts_made(pending)
}

/// The record of a successful call. An attempt that was counted as failed and responds after all counts once more.
pub(super) fn settle_acked(key: IdempotencyKey, row: CallRow, at: Timestamp) -> SettledRecord {
    let sending = abide_dispatch::call_journal::AttemptStart {
        fencing_token: row.fencing_token,
        sent_at: at,
        attempt_timeout_ms: row.attempt_timeout_ms,
    };
    let attempt = match state_of(&row).send(sending) {
        Ok(sent) => sent.ack(at).record.attempt,
        Err(ended) => ended.record.attempt,
    };
    settled_record(key, row, CallEnd::Acked, attempt)
}

/// The record of a call that failed permanently.
pub(super) fn settle_failed(
    key: IdempotencyKey,
    mut row: CallRow,
    outcome: Option<AttemptOutcome>,
    ended: &FailedFinal,
) -> SettledRecord {
    let end = match ended.reason {
        FinalReason::RetryExhausted => CallEnd::RetryExhausted,
        FinalReason::NonRetryable => CallEnd::NonRetryable,
        FinalReason::DeadlineExpired => CallEnd::DeadlineExpired,
        FinalReason::Cancelled => CallEnd::Cancelled,
        FinalReason::Poison => CallEnd::Poison,
    };
    if row.state == CallRowState::Sent {
        record_past_attempt(&mut row, attempt_end(outcome), ended.settled_at);
    }
    let attempt = attempts_made(&row).saturating_sub(1);
    settled_record(key, row, end, attempt)
}

fn settled_record(
    idempotency_key: IdempotencyKey,
    row: CallRow,
    end: CallEnd,
    attempt: u32,
) -> SettledRecord {
    let sent_at = Some(row.sent_at).filter(|_| attempts_made(&row) > 0);
    let call = SettledCall {
        command: row.command,
        idempotency_key,
        activity: row.activity,
        step: row.step,
        end,
        attempt,
        created_at: row.created_at,
        sent_at,
        target: row.target,
        failure_reason: row.failure_reason,
    };
    SettledRecord {
        call,
        failures: CallFailures { past_attempts: row.past_attempts, failure_status: row.failure_status },
    }
}
