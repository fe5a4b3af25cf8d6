//! What a page of history tells of one call: that it was asked for, each delivery that failed, and its answer.
//!
//! What the activity was given and what it answered is left out: the history itself has it.

use abide_store::tables::pages::Page;
use abide_workflow::CommandId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One fact about a call, as its history has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    /// Its place in the history.
    pub sequence: u64,
    /// When, RFC 3339.
    pub timestamp: String,
    /// What.
    pub event_type: TaskEventType,
    /// The delivery that failed, from 0.
    pub attempt: Option<u32>,
    /// Why it failed.
    pub error: Option<Box<RawValue>>,
    /// When it is delivered again, RFC 3339; nothing if it is not.
    pub retry_at: Option<String>,
    /// Nobody waited for it any more.
    #[serde(default)]
    pub late: bool,
}

/// What can be told of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum TaskEventType {
    /// It was asked for.
    TaskScheduled,
    /// A delivery failed.
    TaskFailed,
    /// It was answered.
    TaskCompleted,
}

impl TaskEventType {
    /// As the history spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskScheduled => "TaskScheduled",
            Self::TaskFailed => "TaskFailed",
            Self::TaskCompleted => "TaskCompleted",
        }
    }
}

/// As much of an event as says whether it is wanted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    event_type: String,
    command: Option<u64>,
}

/// The events of a page that are about a call.
pub(super) fn task_events(page: &Page, command: CommandId) -> Result<Vec<TaskEvent>, serde_json::Error> {
    if page.events_count == 0 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let events: Vec<&RawValue> = serde_json::from_slice(&page.events)?;
    for event in events {
        let head: Head = serde_json::from_str(event.get())?;
        let is_told = matches!(head.event_type.as_str(), "TaskScheduled" | "TaskFailed" | "TaskCompleted");
        if is_told && head.command == Some(command.0) {
            found.push(serde_json::from_str(event.get())?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_workflow::history::{Fact, HistoryEvent};
    use abide_workflow::ids::BranchId;
    use abide_workflow::{Failure, Timestamp};

    fn page(facts: Vec<Fact>) -> Page {
        let event = |(sequence, fact)| HistoryEvent { sequence, timestamp: Timestamp(0), fact };
        let events: Vec<HistoryEvent> = (1..).zip(facts).map(event).collect();
        let bytes = serde_json::to_vec(&events).unwrap();
        let events_count = u32::try_from(events.len()).unwrap();
        Page {
            first_event: 1,
            events_count,
            at: 0,
            events: bytes,
            changes: vec![],
            settled: vec![],
            troubled: vec![],
        }
    }

    #[test]
    fn only_what_is_about_the_call_is_told_and_as_it_was_written() {
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
            error: Failure::last("Broken", "it is"),
            retry_at: Some(Timestamp(1_000)),
            late: false,
        };
        let completed = Fact::TaskCompleted { command: one, result: serde_json::json!(1).into(), late: true };
        let fired = Fact::TimerFired { command: one };
        let page =
            page(vec![Fact::OrchestratorStarted, scheduled(one), scheduled(other), failed, fired, completed]);
        let told = task_events(&page, one).unwrap();
        let [asked, failed, completed] = &told[..] else { panic!("{told:?}") };
        assert_eq!((asked.event_type, asked.sequence), (TaskEventType::TaskScheduled, 2));
        assert_eq!((failed.attempt, failed.retry_at.as_deref()), (Some(3), Some("1970-01-01T00:00:01.000Z")));
        assert!(failed.error.as_ref().unwrap().get().contains("Broken"));
        assert!(completed.late && completed.error.is_none());
    }
}
