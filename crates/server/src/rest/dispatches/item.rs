//! The JSON of a call. The call's input is not shown: it may contain data that operators must not see.

use abide_runtime::run::{CallRecord, CallState};
use abide_workflow::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::response::Text;
use crate::rest::hold_json::HoldJson;

pub(super) const STATES: &[&str] = &["PENDING", "SENT", "FAILED_RETRYABLE", "ACKED", "FAILED_FINAL"];

pub(super) fn parse_state(name: &str) -> Option<&'static str> {
    STATES.iter().copied().find(|state| *state == name)
}

/// True if a call in this state may still be sent.
pub(super) fn is_open(state: &str) -> bool {
    !matches!(state, "ACKED" | "FAILED_FINAL")
}

pub(super) fn state_name(call: &CallRecord) -> &'static str {
    match call.state {
        CallState::Pending => "PENDING",
        CallState::Sent => "SENT",
        CallState::FailedRetryable => "FAILED_RETRYABLE",
        CallState::Acked => "ACKED",
        CallState::FailedFinal(_) => "FAILED_FINAL",
    }
}

/// An activity call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DispatchItem")]
#[serde(rename_all = "camelCase")]
pub(super) struct CallItemJson {
    execution_id: String,
    instance_id: String,
    /// The path of the state that makes the call.
    step: String,
    activity: String,
    /// The key by which receivers recognise a repeated attempt.
    idempotency_key: String,
    #[schemars(extend("enum" = STATES))]
    state: &'static str,
    /// The number of the last attempt that may have been sent, from 0, as receivers see it.
    attempt: u32,
    created_at_utc: Text<Timestamp>,
    /// When it may have been sent last; null if it certainly was not sent.
    sent_at_utc: Option<Text<Timestamp>>,
    settled_at_utc: Option<Text<Timestamp>>,
    /// When the call fails permanently, retries included; not retained for settled calls.
    deadline_at_utc: Option<Text<Timestamp>>,
    /// When the next attempt is due, if the call waits for one.
    next_attempt_at_utc: Option<Text<Timestamp>>,
    /// What holds the call back; null if nothing does.
    held: Option<HoldJson>,
    /// `local` means in the server itself.
    transport: String,
    target: Option<String>,
    /// The last failure, even if a later attempt succeeded.
    last_error: Option<String>,
    /// The wire status of the last failure.
    last_status: Option<String>,
    /// Why the call failed permanently: `retry_exhausted`, `non_retryable`, `deadline_expired`, `cancelled` or
    /// `poison`.
    terminal_reason: Option<&'static str>,
}

impl CallItemJson {
    /// The item for one call, in the list and in the answer for one call. A record does not have the call's input.
    pub(super) fn of(call: &CallRecord) -> Self {
        let (transport, target) = call.transport_and_target();
        let terminal_reason = match &call.state {
            CallState::FailedFinal(reason) => Some(reason.as_str()),
            _ => None,
        };
        Self {
            execution_id: format!("{}/{}", call.instance_id, call.run_number),
            instance_id: call.instance_id.clone(),
            step: call.step.clone(),
            activity: call.activity.clone(),
            idempotency_key: call.idempotency_key.to_string(),
            state: state_name(call),
            attempt: call.attempt,
            created_at_utc: Text(call.created_at),
            sent_at_utc: call.sent_at.map(Text),
            settled_at_utc: call.settled_at.map(Text),
            deadline_at_utc: call.deadline_at.map(Text),
            next_attempt_at_utc: call.next_attempt_at.map(Text),
            held: call.held.map(HoldJson::of),
            transport: transport.to_owned(),
            target: target.map(str::to_owned),
            last_error: call.last_error.clone(),
            last_status: call.last_status.clone(),
            terminal_reason,
        }
    }
}
