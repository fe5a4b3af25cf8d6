//! Plants the faults that can be planted from outside a shard, in its effects and in the events it receives.
//!
//! The shard does not know of them. It knows the rows of the tables, but no run and no component.

use abide_dispatch::{CallAttempt, Metadata};
use abide_store::rows::Row;
use abide_store::tables::calls::{self, CallInput, CallRow};
use abide_store::tables::decode;
use abide_workflow::{InstanceId, Timestamp};

use crate::event::{AttemptId, Effect};

/// Another attempt of a stored call, under the number of the last one.
pub(crate) fn stale_attempt(row: &Row, now: Timestamp) -> Option<Effect> {
    let (run_id, key) = calls::read_key(&row.key).ok()?;
    let call: CallRow<'_> = decode(&row.value).ok()?;
    let instance_id = InstanceId::new(call.instance_id.as_ref()).ok()?;
    let input: serde_json::Value = match &call.input {
        CallInput::Inline(bytes) => serde_json::from_slice(bytes).ok()?,
        CallInput::Stored(_) => return None,
    };
    let metadata = Metadata {
        correlation_id: call.correlation_id.into_owned(),
        execution_id: format!("{}/{}", call.instance_id, call.run_number),
        idempotency_key: key.to_string(),
        retry_attempt: call.attempt,
        deadline: call.deadline_at,
        dispatched_at: now,
        parent_item_id: call.parent_item_key.map(|key| key.to_string()),
    };
    let attempt = CallAttempt {
        activity: call.activity.into_owned(),
        input: input.into(),
        metadata,
        attempt_timeout_ms: call.attempt_timeout_ms,
        probe_first: false,
        secret_pointers: call.secret_pointers.into_owned(),
        elapsed_since_dispatch: std::time::Duration::ZERO,
    };
    let id = AttemptId { instance_id, run_id, command: call.command, attempt: call.attempt };
    Some(Effect::StartAttempt(id, Box::new(attempt)))
}
