//! The JSON of an instance's status in Durable Functions. Borrows from the runtime's view.

use std::borrow::Cow;

use abide_runtime::{RunView, ViewStatus};
use abide_workflow::{Status, Timestamp};
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusJson<'a> {
    name: &'a str,
    instance_id: &'a str,
    runtime_status: String,
    input: Option<&'a Value>,
    custom_status: Option<CustomStatus<'a>>,
    output: Option<Cow<'a, Value>>,
    created_time: String,
    last_updated_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_events: Option<Vec<Value>>,
}

/// The part that the statuses of Durable Functions cannot express.
#[derive(Debug, Serialize)]
struct CustomStatus<'a> {
    parked: &'a str,
}

impl<'a> StatusJson<'a> {
    pub(super) fn of(view: &'a RunView, show_input: bool, history_events: Option<Vec<Value>>) -> Self {
        let custom_status = match &view.status {
            ViewStatus::Parked(reason) => Some(CustomStatus { parked: reason }),
            ViewStatus::Run(_) => None,
        };
        // A failure is shown as text in place of the output.
        let failure = view.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
        let failure = failure.map(|text| Cow::Owned(Value::String(text)));
        Self {
            name: &view.workflow,
            instance_id: view.instance_id.as_str(),
            runtime_status: durable_status(view).to_string(),
            input: show_input.then_some(&*view.input),
            custom_status,
            output: failure.or_else(|| view.output.as_deref().map(Cow::Borrowed)),
            created_time: rfc3339_seconds(view.created_at),
            last_updated_time: rfc3339_seconds(view.updated_at),
            history_events,
        }
    }
}

/// The status of a run in Durable Functions. It has none for a parked run, which, like a suspended one, is continued by
/// `resume`.
pub(super) fn durable_status(view: &RunView) -> Status {
    match &view.status {
        ViewStatus::Run(status) => *status,
        ViewStatus::Parked(_) => Status::Suspended,
    }
}

/// True if the instance is live for Durable Functions: a run that continued as new is followed by the next one.
pub(super) fn is_live(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running | Status::Suspended | Status::ContinuedAsNew)
}

/// `2026-01-31T12:00:00Z`, without a fraction.
fn rfc3339_seconds(timestamp: Timestamp) -> String {
    let text = timestamp.to_string();
    match text.get(..19) {
        Some(seconds) if text.ends_with('Z') => format!("{seconds}Z"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_no_fraction_of_a_second() {
        let timestamp = Timestamp::parse("2026-01-31T12:00:00.999Z").unwrap();
        assert_eq!(rfc3339_seconds(timestamp), "2026-01-31T12:00:00Z");
    }
}
