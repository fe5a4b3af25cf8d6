//! A call that is not settled, in memory: its journal, which is its state, and what else is known of it.
//!
//! The stored row is made from it when it is written, and it is made from the row when its run is loaded, here and
//! nowhere else. Only transitions of the journal change the state. Knows neither units of work nor commits.

use std::borrow::Cow;
use std::sync::Arc;

use abide_dispatch::call_journal::{
    AttemptOutcome, CONSECUTIVE_UNANSWERED_MAX, FailedFinal, FailedRetryable, FinalReason, JournalRecord,
    SentCall, UnsettledCall,
};
use abide_ids::{CommandId, IdempotencyKey, Timestamp};
use abide_store::tables::calls::{
    AttemptEnd, CallHold, CallInput, CallRow, CallRowState, NotBefore, PastAttempt,
};
use abide_store::tables::history_pages::{CallEnd, CallFailures, SettledCall};
use abide_workflow::failure::code;
use abide_workflow::json::Json;
use abide_workflow::{Failure, Message, RunOrigin};

use crate::run::held_back::hold_reason;

/// A call that is not settled; see above.
#[derive(Debug)]
pub(in crate::shard) struct OpenCall {
    pub(in crate::shard) idempotency_key: IdempotencyKey,
    pub(in crate::shard) command: CommandId,
    pub(in crate::shard) activity: String,
    /// The path of the state that made the call.
    pub(in crate::shard) step: String,
    /// The key of the innermost map or parallel around the call; in a child outside of any, of the state that started
    /// the child.
    pub(in crate::shard) parent_item_key: Option<IdempotencyKey>,
    /// The places in the input that refer to secrets.
    pub(in crate::shard) secret_pointers: Vec<String>,
    pub(in crate::shard) input: Json,
    /// Bytes of the input in its row.
    pub(in crate::shard) input_bytes: usize,

    pub(in crate::shard) journal: UnsettledCall,
    /// When the next attempt may be made, if one is planned.
    pub(in crate::shard) not_before: Option<NotBefore>,
    /// The target of the last attempt; none for activities in process.
    pub(in crate::shard) target: Option<String>,
    pub(in crate::shard) failure_reason: Option<String>,
    pub(in crate::shard) failure_status: Option<String>,
    pub(in crate::shard) first_failure_at: Option<Timestamp>,
    pub(in crate::shard) past_attempts: Vec<PastAttempt>,
    /// What holds it back. Then its last attempt is recorded as not sent.
    pub(in crate::shard) hold: Option<CallHold>,

    /// An attempt was started since the run was loaded. One started before that is known only to the attempts in
    /// flight.
    pub(in crate::shard) in_flight: bool,
    /// A result waits for a turn of the run.
    pub(in crate::shard) has_result: bool,
    /// Its row has been written.
    pub(in crate::shard) recorded: bool,
    /// The permanent failure that ends the call without another attempt.
    pub(in crate::shard) final_failure: Option<FailedFinal>,
    /// The run holds its failure, and the row records that.
    pub(in crate::shard) is_held: bool,
    /// The outcome of the last attempt, if it was reported.
    pub(in crate::shard) last_outcome: Option<AttemptOutcome>,
    /// The last attempt got a response, even if that leaves open whether the activity ran.
    pub(in crate::shard) has_response: bool,
}

impl OpenCall {
    /// The error code of a call whose attempts never got a response.
    pub(in crate::shard) const POISON: &str = "Poison";
    /// Bytes of the last failure reason that the row keeps.
    const REASON_BYTES_MAX: usize = 1024;

    /// A call that the run has just requested.
    pub(in crate::shard) fn new(
        (command, idempotency_key): (CommandId, IdempotencyKey),
        (activity, step): (String, String),
        journal: UnsettledCall,
        input: Json,
    ) -> Self {
        Self {
            idempotency_key,
            command,
            activity,
            step,
            parent_item_key: None,
            secret_pointers: Vec::new(),
            input,
            input_bytes: 0,
            journal,
            not_before: None,
            target: None,
            failure_reason: None,
            failure_status: None,
            first_failure_at: None,
            past_attempts: Vec::new(),
            hold: None,
            in_flight: false,
            has_result: false,
            recorded: false,
            final_failure: None,
            is_held: false,
            last_outcome: None,
            has_response: false,
        }
    }

    /// A stored call. Whether an attempt of it is in flight is not known here.
    pub(in crate::shard) fn from_row(idempotency_key: IdempotencyKey, row: CallRow<'_>) -> Self {
        let journal = journal_of(&row);
        let (input, input_bytes) = match &row.input {
            CallInput::Inline(bytes) => (serde_json::from_slice(bytes).unwrap_or_default(), bytes.len()),
            // No server has written it yet.
            CallInput::Stored(_) => (serde_json::Value::Null, 0),
        };
        let texts = (row.activity.into_owned(), row.step.into_owned());
        Self {
            parent_item_key: row.parent_item_key,
            secret_pointers: row.secret_pointers.into_owned(),
            input_bytes,
            not_before: row.not_before,
            target: row.target.map(Cow::into_owned),
            failure_reason: row.failure_reason.map(Cow::into_owned),
            failure_status: row.failure_status.map(Cow::into_owned),
            first_failure_at: row.first_failure_at,
            past_attempts: row.past_attempts.into_owned(),
            hold: row.hold,
            recorded: true,
            ..Self::new((row.command, idempotency_key), texts, journal, Arc::new(input))
        }
    }

    /// The row of the call, which a run with this origin made. `input` is its input as JSON.
    pub(in crate::shard) fn to_row<'c>(&'c self, origin: &'c RunOrigin, input: Vec<u8>) -> CallRow<'c> {
        let record = self.journal.record();
        CallRow {
            instance_id: origin.instance_id.as_str().into(),
            run_number: origin.run,
            correlation_id: origin.correlation_id.as_str().into(),
            command: self.command,
            activity: self.activity.as_str().into(),
            step: self.step.as_str().into(),
            parent_item_key: self.parent_item_key,
            state: match self.journal {
                UnsettledCall::Pending(_) => CallRowState::Pending,
                UnsettledCall::Sent(_) => CallRowState::Sent,
                UnsettledCall::FailedRetryable(_) => CallRowState::FailedRetryable,
            },
            attempt: record.attempt,
            unanswered_attempts: record.consecutive_unanswered,
            fencing_token: record.fencing_token,
            created_at: record.created_at,
            sent_at: record.sent_at,
            deadline_at: record.deadline_at,
            attempt_timeout_ms: record.attempt_timeout_ms,
            // A restart tries a held call at once, whatever its clock says: the pause only spares the target.
            not_before: self.hold.map_or(self.not_before, |_| Some(NotBefore::Anytime)),
            failure_reason: self.failure_reason.as_deref().map(Cow::Borrowed),
            secret_pointers: self.secret_pointers.as_slice().into(),
            input: CallInput::Inline(input),
            target: self.target.as_deref().map(Cow::Borrowed),
            first_failure_at: self.first_failure_at,
            failure_status: self.failure_status.as_deref().map(Cow::Borrowed),
            may_have_run: record.may_have_run,
            last_attempt_unsent: record.last_attempt_unsent,
            past_attempts: self.past_attempts.as_slice().into(),
            hold: self.hold,
        }
    }

    /// The number of the current or last attempt.
    pub(in crate::shard) fn attempt(&self) -> u32 {
        self.journal.record().attempt
    }

    /// Records that the attempt may have been sent from now on. The caller writes the row; only then may it be sent.
    pub(in crate::shard) fn record_sent(&mut self, sent: SentCall) {
        self.journal = UnsettledCall::Sent(sent);
        self.not_before = None;
        self.hold = None;
        self.in_flight = true;
        self.has_result = false;
        self.is_held = false;
        self.final_failure = None;
        self.last_outcome = None;
        self.has_response = false;
    }

    /// Records that the last attempt was withdrawn or orphaned: nobody will report its outcome.
    pub(in crate::shard) fn record_unreported(
        &mut self,
        failed: FailedRetryable,
        end: AttemptEnd,
        reason: &str,
        at: Timestamp,
    ) {
        self.add_past_attempt(end, at);
        self.journal = UnsettledCall::FailedRetryable(failed);
        self.failure_reason = Some(reason.to_owned());
    }

    /// Records the reported outcome of the last attempt.
    pub(in crate::shard) fn record_outcome(&mut self, outcome: AttemptOutcome) {
        self.journal.note_outcome(outcome);
        self.last_outcome = Some(outcome);
    }

    /// Records the end of an attempt that another one may follow. Its outcome is recorded already.
    pub(in crate::shard) fn record_attempt_end(&mut self, at: Timestamp) {
        if let UnsettledCall::Sent(sent) = &self.journal {
            let failed = sent.clone().fail_retryable();
            self.add_past_attempt(attempt_end(self.last_outcome, self.has_response), at);
            self.journal = UnsettledCall::FailedRetryable(failed);
            self.failure_reason.get_or_insert_default();
        }
    }

    /// Adds the last attempt to the list of past attempts, dropping the oldest if there are too many.
    fn add_past_attempt(&mut self, end: AttemptEnd, ended_at: Timestamp) {
        let JournalRecord { attempt, sent_at, .. } = *self.journal.record();
        if self.past_attempts.len() >= PastAttempt::PER_CALL_MAX {
            self.past_attempts.remove(0);
        }
        self.past_attempts.push(PastAttempt { attempt, sent_at, ended_at, end });
    }

    /// Says in the failure for the run that an attempt may have run without an answer: by that the run decides under
    /// which key a rewind makes the call again.
    pub(in crate::shard) fn note_unanswered(&self, message: &mut Message) {
        if message.call_failure().is_some() && self.journal.record().may_have_run {
            *message = message.clone().unanswered();
        }
    }

    /// Records the last failure, for operators and the API.
    pub(in crate::shard) fn record_failure(
        &mut self,
        failure: &Failure,
        status: Option<String>,
        now: Timestamp,
    ) {
        let reason = format!("{}: {}", failure.code, failure.message);
        let cut = reason.floor_char_boundary(Self::REASON_BYTES_MAX);
        self.failure_reason = Some(reason.get(..cut).unwrap_or_default().to_owned());
        // An attempt that was not sent has no status and keeps the last known one.
        self.failure_status = status.or_else(|| self.failure_status.take());
        self.first_failure_at.get_or_insert(now);
    }

    /// Restores what a call of a loaded run was when the run began to hold this failure, so that it is settled for the
    /// same reason.
    pub(in crate::shard) fn restore_held_failure(&mut self, failure: &Failure) {
        let failed = matches!(self.journal, UnsettledCall::FailedRetryable(_));
        self.is_held = failed && self.not_before.is_none();
        let at = self.first_failure_at.unwrap_or(self.journal.record().sent_at);
        // Activities may use the same codes. The server's own failures are permanent, and the row shows which one it
        // was.
        self.final_failure = match (failure.code.as_str(), &self.journal) {
            _ if failure.retryable => None,
            (code::TIMEOUT, journal) if self.missed_deadline() => Some(journal.clone().expire(at)),
            (Self::POISON, UnsettledCall::FailedRetryable(failed))
                if failed.record.consecutive_unanswered >= CONSECUTIVE_UNANSWERED_MAX =>
            {
                Some(failed.clone().poison(at))
            }
            _ => None,
        };
    }

    /// The failure of a call whose deadline has passed. The row stores the message, and [`Self::missed_deadline`]
    /// compares its beginning: do not reword it.
    pub(in crate::shard) fn deadline_failure() -> Failure {
        Failure::permanent(code::TIMEOUT, "the step's deadline has passed")
    }

    /// The same failure of this call. It says what held the call back, if anything did.
    pub(in crate::shard) fn missed_deadline_failure(&self) -> Failure {
        let mut failure = Self::deadline_failure();
        if let Some(CallHold { reason, since, .. }) = self.hold {
            let last = self.failure_reason.as_deref().unwrap_or_default();
            let reason = hold_reason(reason).as_str();
            let why = format!("; nothing was sent since {since}, held back by {reason}: {last}");
            failure.message.push_str(&why);
        }
        failure.truncated()
    }

    /// Returns whether the row says that the deadline passed: the call was never sent, or that is its last failure.
    fn missed_deadline(&self) -> bool {
        let Failure { code, message, .. } = Self::deadline_failure();
        let ours = format!("{code}: {message}");
        let ours = self.failure_reason.as_deref().is_some_and(|reason| reason.starts_with(&ours));
        let pending = matches!(self.journal, UnsettledCall::Pending(_));
        self.journal.record().deadline_at.is_some() && (ours || pending)
    }

    /// The record of the call after its success, for the history page. An attempt that was counted as failed and
    /// responds after all counts once more.
    pub(in crate::shard) fn settle_acked(self, at: Timestamp) -> (SettledCall, CallFailures) {
        let fencing_token = self.journal.record().fencing_token;
        let attempt = match self.journal.clone().send(fencing_token, at) {
            Ok(sent) => sent.ack(at).record.attempt,
            Err(ended) => ended.record.attempt,
        };
        self.into_settled(CallEnd::Acked, attempt)
    }

    /// The record of the call after its permanent failure, for the history page.
    pub(in crate::shard) fn settle_failed(mut self, ended: &FailedFinal) -> (SettledCall, CallFailures) {
        let end = match ended.reason {
            FinalReason::RetryExhausted => CallEnd::RetryExhausted,
            FinalReason::NonRetryable => CallEnd::NonRetryable,
            FinalReason::DeadlineExpired => CallEnd::DeadlineExpired,
            FinalReason::Cancelled => CallEnd::Cancelled,
            FinalReason::Poison => CallEnd::Poison,
        };
        if let UnsettledCall::Sent(_) = self.journal {
            // A cancelled attempt was not waited for, whatever an earlier one reported.
            let outcome = self.last_outcome.filter(|_| ended.reason != FinalReason::Cancelled);
            self.add_past_attempt(attempt_end(outcome, self.has_response), ended.settled_at);
        }
        let attempt = self.journal.attempts_made().saturating_sub(1);
        self.into_settled(end, attempt)
    }

    fn into_settled(self, end: CallEnd, attempt: u32) -> (SettledCall, CallFailures) {
        let record = *self.journal.record();
        let call = SettledCall {
            command: self.command,
            idempotency_key: self.idempotency_key,
            end,
            attempt,
            created_at: record.created_at,
            sent_at: Some(record.sent_at).filter(|_| self.journal.attempts_made() > 0),
            activity: self.activity,
            step: self.step,
            target: self.target,
            failure_reason: self.failure_reason,
        };
        let Self { past_attempts, failure_status, .. } = self;
        (call, CallFailures { past_attempts, failure_status })
    }
}

/// The journal of a stored call. Reconciliation judges rows by it without loading their runs.
pub(in crate::shard) fn journal_of(row: &CallRow<'_>) -> UnsettledCall {
    let record = JournalRecord {
        attempt: row.attempt,
        consecutive_unanswered: row.unanswered_attempts,
        may_have_run: row.may_have_run || row.unanswered_attempts > 0,
        last_attempt_unsent: row.last_attempt_unsent,
        created_at: row.created_at,
        deadline_at: row.deadline_at,
        attempt_timeout_ms: row.attempt_timeout_ms,
        fencing_token: row.fencing_token,
        sent_at: row.sent_at,
    };
    match row.state {
        CallRowState::Pending => UnsettledCall::pending(record),
        CallRowState::Sent => UnsettledCall::sent(record),
        CallRowState::FailedRetryable => UnsettledCall::failed_retryable(record),
    }
}

/// The end of an attempt by its outcome: unanswered if no outcome was reported. A response that leaves the outcome
/// open, such as a bare 500, is an answer all the same.
fn attempt_end(outcome: Option<AttemptOutcome>, has_response: bool) -> AttemptEnd {
    match outcome {
        Some(AttemptOutcome::NotSent) => AttemptEnd::NotSent,
        Some(AttemptOutcome::Unknown) if has_response => AttemptEnd::Failed,
        Some(AttemptOutcome::Unknown) | None => AttemptEnd::Unanswered,
        Some(AttemptOutcome::Responded | AttemptOutcome::Rejected) => AttemptEnd::Failed,
    }
}
