//! Extracts the events of one call from a history page: its scheduling, each failed attempt, and its completion.
//!
//! The activity's input and result are left out: the history itself has them.

use abide_store::tables::history_pages::HistoryPageRow;
use abide_workflow::CommandId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One history event of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    /// The event's number in the history.
    pub sequence: u64,
    /// RFC 3339.
    pub timestamp: String,
    pub event_type: TaskEventType,
    /// The attempt that failed, numbered from 0.
    pub attempt: Option<u32>,
    /// The failure of that attempt.
    pub error: Option<Box<RawValue>>,
    /// The time of the next attempt, RFC 3339; none if the call is not retried.
    pub retry_at: Option<String>,
    /// True if the run no longer waited for the call.
    #[serde(default)]
    pub late: bool,
}

/// The type of a call's history event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum TaskEventType {
    /// The call was made.
    TaskScheduled,
    /// An attempt failed.
    TaskFailed,
    /// The activity returned its result.
    TaskCompleted,
}

impl TaskEventType {
    /// The name used in the history.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskScheduled => "TaskScheduled",
            Self::TaskFailed => "TaskFailed",
            Self::TaskCompleted => "TaskCompleted",
        }
    }
}

/// The fields of an event that decide if it is about the call.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskEventHeader {
    event_type: String,
    command: Option<u64>,
}

/// The events of a page that are about a call, for the API. One event that cannot be parsed fails the page.
pub(super) fn task_events(
    page: &HistoryPageRow,
    command: CommandId,
) -> Result<Vec<TaskEvent>, serde_json::Error> {
    // A page without events has no JSON at all.
    if page.event_count == 0 {
        return Ok(Vec::new());
    }
    let mut call_events = Vec::new();
    let events: Vec<&RawValue> = serde_json::from_slice(&page.events)?;
    for event in events {
        let header: TaskEventHeader = serde_json::from_str(event.get())?;
        let is_task_event =
            matches!(header.event_type.as_str(), "TaskScheduled" | "TaskFailed" | "TaskCompleted");
        if is_task_event && header.command == Some(command.0) {
            call_events.push(serde_json::from_str(event.get())?);
        }
    }
    Ok(call_events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::history::{Fact, HistoryEvent};
    use abide_workflow::ids::BranchId;
    use abide_workflow::{Failure, Timestamp};

    fn page(facts: Vec<Fact>) -> HistoryPageRow {
        let event = |(sequence, fact)| HistoryEvent { sequence, timestamp: Timestamp(0), fact };
        let events: Vec<HistoryEvent> = (1..).zip(facts).map(event).collect();
        let bytes = serde_json::to_vec(&events).unwrap();
        let events_count = u32::try_from(events.len()).unwrap();
        HistoryPageRow {
            first_event: 1,
            event_count: events_count,
            turn_at: Timestamp(0),
            events: bytes,
            part_changes: vec![],
            settled_calls: vec![],
            call_failures: vec![],
        }
    }

    #[test]
    fn only_the_events_of_the_call_are_returned_as_they_were_written() {
        let [one, other] = [CommandId(7), CommandId(8)];
        let scheduled = |command| Fact::TaskScheduled {
            command,
            branch: BranchId::ROOT,
            activity: "work".to_owned(),
            input: serde_json::json!({"command": 7}).into(),
            step: "Begin".to_owned(),
        };
        let failed = Fact::TaskFailed {
            command: one,
            attempt: 3,
            error: Failure::permanent("Broken", "it is"),
            retry_at: Some(Timestamp(1_000)),
            late: false,
        };
        let completed = Fact::TaskCompleted { command: one, result: serde_json::json!(1).into(), late: true };
        let fired = Fact::TimerFired { command: one };
        let page =
            page(vec![Fact::OrchestratorStarted, scheduled(one), scheduled(other), failed, fired, completed]);
        let call_events = task_events(&page, one).unwrap();
        let [scheduled, failed, completed] = &call_events[..] else { panic!("{call_events:?}") };
        assert_eq!((scheduled.event_type, scheduled.sequence), (TaskEventType::TaskScheduled, 2));
        assert_eq!((failed.attempt, failed.retry_at.as_deref()), (Some(3), Some("1970-01-01T00:00:01.000Z")));
        assert!(failed.error.as_ref().unwrap().get().contains("Broken"));
        assert!(completed.late && completed.error.is_none());
    }
}
