//! The JSON of what holds a call back, in calls and in the states of runs.

use abide_dispatch::HoldReason;
use abide_runtime::run::HeldBack;
use abide_workflow::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::response::Text;

/// What holds a call back: nothing of its next attempt has been sent, and it uses up no attempt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Hold")]
#[serde(rename_all = "camelCase")]
pub(super) struct HoldJson {
    #[schemars(schema_with = "reason_schema")]
    reason: &'static str,
    /// Since when nothing could be sent.
    since_utc: Text<Timestamp>,
    /// When it was to be tried again, as of the time when the reason was recorded. After that it is tried again as
    /// often as the reason allows.
    until_utc: Text<Timestamp>,
}

impl HoldJson {
    pub(super) fn of(held: HeldBack) -> Self {
        let HeldBack { reason, since, until } = held;
        Self { reason: reason.as_str(), since_utc: Text(since), until_utc: Text(until) }
    }
}

fn reason_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": HoldReason::ALL.map(HoldReason::as_str)})
}
