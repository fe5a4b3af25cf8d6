//! A call as clients read it. What the activity was given is not shown: it may hold what operators must not see.

use abide_dispatch::IdempotencyKey;
use abide_runtime::run::{CallState, JournaledCall};
use abide_workflow::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::envelope::Text;

/// Every state a call can have.
pub(super) const STATES: &[&str] = &["PENDING", "SENT", "FAILED_RETRYABLE", "ACKED", "FAILED_FINAL"];

/// The state of this name.
pub(super) fn state(name: &str) -> Option<&'static str> {
    STATES.iter().copied().find(|state| *state == name)
}

/// Whether a call in this state may still be delivered.
pub(super) fn is_open(state: &str) -> bool {
    !matches!(state, "ACKED" | "FAILED_FINAL")
}

/// The name of a call's state.
pub(super) fn state_of(call: &JournaledCall) -> &'static str {
    match call.state {
        CallState::Pending => "PENDING",
        CallState::Sent => "SENT",
        CallState::FailedRetryable => "FAILED_RETRYABLE",
        CallState::Acked => "ACKED",
        CallState::FailedFinal(_) => "FAILED_FINAL",
    }
}

/// A call of an activity.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DispatchItem")]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemJson {
    execution_id: String,
    instance_id: String,
    /// The path of the state that calls.
    step: String,
    activity: String,
    /// By which receivers tell a repeat from new work.
    idempotency_key: String,
    #[schemars(extend("enum" = STATES))]
    state: &'static str,
    /// The last delivery there may have been, from 0, as receivers are told it.
    attempt: u32,
    created_at_utc: Text<Timestamp>,
    /// When it may have been sent last; null if it surely was not.
    sent_at_utc: Option<Text<Timestamp>>,
    settled_at_utc: Option<Text<Timestamp>>,
    /// When it is given up, retries included; not kept of settled calls.
    deadline_at_utc: Option<Text<Timestamp>>,
    /// When it is delivered again, if it waits for that.
    next_attempt_at_utc: Option<Text<Timestamp>>,
    /// How it is sent; `local` is in the server itself.
    transport: String,
    target: Option<String>,
    /// Why it failed last, also if it succeeded then.
    last_error: Option<String>,
    /// What the wire said of that.
    last_status: Option<String>,
    /// Why it was given up: `retry_exhausted`, `non_retryable`, `deadline_expired`, `cancelled` or `poison`.
    terminal_reason: Option<&'static str>,
}

impl ItemJson {
    pub(super) fn of(call: &JournaledCall) -> Self {
        let (transport, target) = call.transport_and_target();
        let terminal_reason = match &call.state {
            CallState::FailedFinal(reason) => Some(reason.as_str()),
            _ => None,
        };
        Self {
            execution_id: format!("{}/{}", call.instance_id, call.run.0),
            instance_id: call.instance_id.clone(),
            step: call.step.clone(),
            activity: call.activity.clone(),
            idempotency_key: IdempotencyKey(call.idempotency_key).to_string(),
            state: state_of(call),
            attempt: call.attempt,
            created_at_utc: Text(call.created_at),
            sent_at_utc: call.sent_at.map(Text),
            settled_at_utc: call.settled_at.map(Text),
            deadline_at_utc: call.deadline_at.map(Text),
            next_attempt_at_utc: call.next_attempt_at.map(Text),
            transport: transport.to_owned(),
            target: target.map(str::to_owned),
            last_error: call.last_error.clone(),
            last_status: call.last_status.clone(),
            terminal_reason,
        }
    }
}
