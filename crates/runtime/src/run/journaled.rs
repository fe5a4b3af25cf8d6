//! One call, open or settled: the same to whoever asks, made of its record or of what the page of its last turn kept.
//!
//! Knows nothing of where either is found.

use abide_dispatch::journal::FinalReason;
use abide_store::tables::dispatches::{Dispatch, DispatchState, PastDelivery};
use abide_store::tables::pages::{CallEnd, SettledCall, Trouble};
use abide_workflow::{CommandId, RunNumber, Timestamp};

use super::NumberedRun;

/// A call, as its record or what was kept of it has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournaledCall {
    /// The instance that calls.
    pub instance_id: String,
    /// Which life of it.
    pub run: RunNumber,
    /// The command that asked for it; the history names it.
    pub command: CommandId,
    /// The receiver's dedupe key.
    pub idempotency_key: [u8; 32],
    /// The step that calls.
    pub step: String,
    /// What is called.
    pub activity: String,
    /// Where the call stands.
    pub state: CallState,
    /// Possible deliveries less one.
    pub attempt: u32,
    /// When it was promised.
    pub created_at: Timestamp,
    /// When it may have been sent last, if ever.
    pub sent_at: Option<Timestamp>,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
    /// When it is given up, retries included. Not kept of settled calls.
    pub deadline_at: Option<Timestamp>,
    /// When it may be delivered again, if it must wait.
    pub next_attempt_at: Option<Timestamp>,
    /// Why it failed last.
    pub last_error: Option<String>,
    /// What the wire said of that.
    pub last_status: Option<String>,
    /// Deliveries that are over and did not settle it, the last of them.
    pub past: Vec<PastDelivery>,
    /// A transport and an address; nothing for activities in process.
    sent_to: Option<String>,
}

/// Where a call stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallState {
    /// Promised, and surely not sent.
    Pending,
    /// May have been sent; no answer is known.
    Sent,
    /// The last delivery failed, or its outcome is unknown; it may be delivered again.
    FailedRetryable,
    /// Answered with success.
    Acked,
    /// Failed for good.
    FailedFinal(FinalReason),
}

impl JournaledCall {
    pub(super) fn of_record(idempotency_key: [u8; 32], dispatch: Dispatch) -> Self {
        let state = match dispatch.state {
            DispatchState::Pending => CallState::Pending,
            DispatchState::Sent => CallState::Sent,
            DispatchState::FailedRetryable => CallState::FailedRetryable,
        };
        let was_sent = dispatch.attempt > 0 || state != CallState::Pending && !dispatch.unsent;
        Self {
            instance_id: dispatch.instance_id,
            run: RunNumber(dispatch.run_number),
            command: CommandId(dispatch.command),
            idempotency_key,
            step: dispatch.step,
            activity: dispatch.activity,
            attempt: dispatch.attempt,
            created_at: Timestamp(dispatch.created_at),
            sent_at: Some(Timestamp(dispatch.sent_at)).filter(|_| was_sent),
            settled_at: None,
            deadline_at: dispatch.deadline_at.map(Timestamp),
            next_attempt_at: dispatch.not_before.filter(|at| *at != Dispatch::AT_ONCE).map(Timestamp),
            last_error: dispatch.reason.filter(|reason| !reason.is_empty()),
            last_status: dispatch.status,
            past: dispatch.past,
            sent_to: dispatch.target,
            state,
        }
    }

    /// Settled with the turn of this time.
    pub(super) fn of_settled(run: &NumberedRun, settled: SettledCall, trouble: Trouble, at: i64) -> Self {
        Self {
            instance_id: run.instance_id.as_str().to_owned(),
            run: run.run,
            command: CommandId(settled.command),
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
            created_at: Timestamp(settled.created_at),
            sent_at: Some(Timestamp(settled.sent_at)).filter(|at| at.0 != SettledCall::NEVER),
            settled_at: Some(Timestamp(at)),
            deadline_at: None,
            next_attempt_at: None,
            last_error: settled.reason.filter(|reason| !reason.is_empty()),
            last_status: trouble.status,
            past: trouble.past,
            sent_to: settled.target,
        }
    }

    /// How it is sent and where to; `local` and nowhere for activities in process.
    pub fn transport_and_target(&self) -> (&str, Option<&str>) {
        match self.sent_to.as_deref().and_then(|sent_to| sent_to.split_once(' ')) {
            Some((transport, target)) => (transport, Some(target)),
            None => ("local", None),
        }
    }
}
