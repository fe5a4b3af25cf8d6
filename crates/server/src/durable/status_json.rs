//! An instance as Durable Functions shows it. Borrows from the runtime's view.

use std::borrow::Cow;

use abide_runtime::{RunView, ViewStatus};
use abide_workflow::{Status, Timestamp};
use serde::Serialize;
use serde_json::Value;

/// How an instance stands.
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

/// What their words cannot say.
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
        // A failure is told where the output would be, as text.
        let failure = view.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
        let failure = failure.map(|text| Cow::Owned(Value::String(text)));
        Self {
            name: &view.workflow,
            instance_id: view.instance_id.as_str(),
            runtime_status: status_of(view).to_string(),
            input: show_input.then_some(&*view.input),
            custom_status,
            output: failure.or_else(|| view.output.as_deref().map(Cow::Borrowed)),
            created_time: to_the_second(view.created_at),
            last_updated_time: to_the_second(view.updated_at),
            history_events,
        }
    }
}

/// A run's status in their words. They have none for a run that is parked; like a suspended one it is resumed by order.
pub(super) fn status_of(view: &RunView) -> Status {
    match &view.status {
        ViewStatus::Run(status) => *status,
        ViewStatus::Parked(_) => Status::Suspended,
    }
}

/// Whether it goes on, as they count: a run that continues as new is followed by the next one.
pub(super) fn goes_on(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running | Status::Suspended | Status::ContinuedAsNew)
}

/// `2026-01-31T12:00:00Z`, without a fraction.
fn to_the_second(moment: Timestamp) -> String {
    let text = moment.to_string();
    match text.get(..19) {
        Some(seconds) if text.ends_with('Z') => format!("{seconds}Z"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_to_the_second() {
        let moment = Timestamp::parse("2026-01-31T12:00:00.999Z").unwrap();
        assert_eq!(to_the_second(moment), "2026-01-31T12:00:00Z");
    }
}
