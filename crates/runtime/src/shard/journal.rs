//! Between the stored record of a call and its typed journal: where a call stands is changed here and nowhere else, so that only transitions
//! of the journal are ever written.
//!
//! Knows neither runs nor commits.

use abide_dispatch::journal::{FailedFinal, FailedRetryable, FinalReason, Open, Record, Sent, Stage};
use abide_store::tables::dispatches::{DeliveryEnd, Dispatch, DispatchState, PastDelivery};
use abide_store::tables::pages::{CallEnd, SettledCall, Trouble};

use super::slot::Came;

/// What is kept of a settled call.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) call: SettledCall,
    pub(super) trouble: Trouble,
}

/// Where a recorded call stands.
pub(super) fn open(dispatch: &Dispatch) -> Open {
    let record = Record {
        attempt: dispatch.attempt,
        unanswered: dispatch.unanswered,
        may_have_run: dispatch.may_have_run || dispatch.unanswered > 0,
        unsent: dispatch.unsent,
        created_at: dispatch.created_at,
        deadline_at: dispatch.deadline_at,
    };
    let stage = match dispatch.state {
        DispatchState::Pending => Stage::Pending,
        DispatchState::FailedRetryable => {
            Stage::FailedRetryable { reason: dispatch.reason.clone().unwrap_or_default() }
        }
        DispatchState::Sent => Stage::Sent {
            fencing_token: dispatch.fencing_token,
            sent_at: dispatch.sent_at,
            attempt_timeout_ms: dispatch.attempt_timeout_ms,
        },
    };
    Open::restore(record, stage)
}

/// It may have been sent from now on.
pub(super) fn note_sent(dispatch: &mut Dispatch, sent: &Sent) {
    note(dispatch, DispatchState::Sent, &sent.record);
    dispatch.fencing_token = sent.fencing_token;
    dispatch.sent_at = sent.sent_at;
    dispatch.not_before = None;
}

/// The last delivery failed, or will not be answered.
pub(super) fn note_failed(dispatch: &mut Dispatch, failed: FailedRetryable, end: DeliveryEnd, at: i64) {
    note_past(dispatch, end, at);
    note(dispatch, DispatchState::FailedRetryable, &failed.record);
    dispatch.reason = Some(failed.reason);
}

/// What came of the delivery that was out is kept.
fn note_past(dispatch: &mut Dispatch, end: DeliveryEnd, ended_at: i64) {
    let Dispatch { attempt, sent_at, .. } = *dispatch;
    if dispatch.past.len() >= PastDelivery::KEPT_MAX {
        dispatch.past.remove(0);
    }
    dispatch.past.push(PastDelivery { attempt, sent_at, ended_at, end });
}

/// What came of the delivery that is out; nothing that anybody heard of if it was not told.
fn end_of(came: Option<Came>) -> DeliveryEnd {
    match came {
        Some(Came::Back) => DeliveryEnd::NotSent,
        Some(Came::Nothing) | None => DeliveryEnd::Unanswered,
        Some(Came::Answer | Came::TurnedAway) => DeliveryEnd::Failed,
    }
}

fn note(dispatch: &mut Dispatch, state: DispatchState, record: &Record) {
    dispatch.state = state;
    dispatch.attempt = record.attempt;
    dispatch.unanswered = record.unanswered;
    dispatch.may_have_run = record.may_have_run;
    dispatch.unsent = record.unsent;
}

/// A delivery of which it was noted what came of it is not the last one.
pub(super) fn note_ended(dispatch: &mut Dispatch, came: Option<Came>, at: i64) {
    let Open::Sent(sent) = open(dispatch) else { return };
    let reason = dispatch.reason.take().unwrap_or_default();
    let failed = match (dispatch.unsent, dispatch.may_have_run) {
        (true, _) => sent.not_sent(reason),
        (false, true) => sent.fail_unknown(reason),
        (false, false) => sent.fail_retryable(reason),
    };
    note_failed(dispatch, failed, end_of(came), at);
}

/// What is known of the delivery that was out, whether there is another or not.
pub(super) fn note_came(dispatch: &mut Dispatch, came: Came) {
    match came {
        // Whoever answers knows of all deliveries before.
        Came::Answer => (dispatch.may_have_run, dispatch.unanswered) = (false, 0),
        Came::Nothing => dispatch.may_have_run = true,
        Came::Back => dispatch.unsent = true,
        Came::TurnedAway => {}
    }
}

/// Deliveries there may have been.
pub(super) fn deliveries(dispatch: &Dispatch) -> u32 {
    let pending = dispatch.state == DispatchState::Pending;
    open(dispatch).record().deliveries(pending)
}

/// What is kept of a call that was answered with success. A delivery that was given up and answers after all counts as one more.
pub(super) fn acked(key: [u8; 32], dispatch: Dispatch, at: i64) -> Kept {
    let sending = abide_dispatch::journal::Sending {
        fencing_token: dispatch.fencing_token,
        at,
        attempt_timeout_ms: dispatch.attempt_timeout_ms,
    };
    let attempt = match open(&dispatch).send(sending) {
        Ok(sent) => sent.ack(at).record.attempt,
        Err(ended) => ended.record.attempt,
    };
    kept(key, dispatch, CallEnd::Acked, attempt)
}

/// What is kept of a call that failed for good.
pub(super) fn failed(key: [u8; 32], mut dispatch: Dispatch, came: Option<Came>, ended: &FailedFinal) -> Kept {
    let end = match ended.reason {
        FinalReason::RetryExhausted => CallEnd::RetryExhausted,
        FinalReason::NonRetryable => CallEnd::NonRetryable,
        FinalReason::DeadlineExpired => CallEnd::DeadlineExpired,
        FinalReason::Cancelled => CallEnd::Cancelled,
        FinalReason::Poison => CallEnd::Poison,
    };
    if dispatch.state == DispatchState::Sent {
        note_past(&mut dispatch, end_of(came), ended.settled_at);
    }
    let attempt = deliveries(&dispatch).saturating_sub(1);
    kept(key, dispatch, end, attempt)
}

fn kept(idempotency_key: [u8; 32], dispatch: Dispatch, end: CallEnd, attempt: u32) -> Kept {
    let sent_at = if deliveries(&dispatch) == 0 { SettledCall::NEVER } else { dispatch.sent_at };
    let call = SettledCall {
        command: dispatch.command,
        idempotency_key,
        activity: dispatch.activity,
        step: dispatch.step,
        end,
        attempt,
        created_at: dispatch.created_at,
        sent_at,
        target: dispatch.target,
        reason: dispatch.reason,
    };
    Kept { call, trouble: Trouble { past: dispatch.past, status: dispatch.status } }
}
