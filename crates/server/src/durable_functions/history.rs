//! Translates a run's history into that of Durable Functions: a completion event includes its scheduling event, and
//! turns, states and branches are left out.
//!
//! [`load`] reads the stored history page by page; the translator takes the runtime's events as JSON, one by one.

use std::collections::HashMap;

use abide_store::Store;
use abide_workflow::InstanceId;
use serde_json::{Map, Value, json};

use super::response::DurableError;
use crate::app::App;

/// Events read at once, and in total.
const PAGE_EVENTS_MAX: usize = 1_000;
const EVENTS_MAX: usize = 10_000;
/// Bytes read in total, in stored form.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The parts of an event that are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryOptions {
    pub(super) show_input: bool,
    pub(super) show_output: bool,
}

/// The history of an instance's current run, for the status with `showHistory`; none if the instance no longer exists.
/// An event that is not a JSON object is left out, and a long history is cut off with a note.
pub(super) async fn load<S: Store>(
    app: &App<S>,
    id: &InstanceId,
    options: HistoryOptions,
) -> Result<Option<Vec<Value>>, DurableError> {
    let mut translator = HistoryTranslator::new(options);
    let mut from = None;
    let mut events = 0;
    let mut bytes = 0;
    loop {
        let page = app.with_timeout(app.node().history(id, from, PAGE_EVENTS_MAX)).await??;
        let Some(page) = page else { return Ok(None) };
        for event in page.events {
            (events, bytes) = (events + 1, bytes + event.get().len());
            if let Ok(event) = serde_json::from_str(event.get()) {
                translator.translate(event);
            }
        }
        match page.next_cursor {
            None => break,
            Some(_) if events >= EVENTS_MAX || bytes >= BYTES_MAX => {
                translator.mark_truncated(id);
                break;
            }
            Some(next) => from = Some(next),
        }
    }
    Ok(Some(translator.into_events()))
}

/// Collects the translated events.
#[derive(Debug)]
struct HistoryTranslator {
    options: HistoryOptions,
    events: Vec<Option<Map<String, Value>>>,
    /// By command: what was scheduled, for its completion event.
    scheduled: HashMap<u64, ScheduledCommand>,
    last_timestamp: Value,
}

/// The scheduled work that a completion event belongs to.
#[derive(Debug)]
struct ScheduledCommand {
    event_index: usize,
    name: Value,
    scheduled_at: Value,
    input: Value,
}

impl HistoryTranslator {
    fn new(options: HistoryOptions) -> Self {
        Self { options, events: Vec::new(), scheduled: HashMap::new(), last_timestamp: Value::Null }
    }

    fn into_events(self) -> Vec<Value> {
        self.events.into_iter().flatten().map(Value::Object).collect()
    }

    /// Translates one event, if Durable Functions has an equivalent.
    fn translate(&mut self, mut event: Map<String, Value>) {
        let mut take = |name: &str| event.remove(name).unwrap_or_default();
        let kind = take("eventType");
        let at = take("timestamp");
        let kind = kind.as_str().unwrap_or_default().to_owned();
        self.last_timestamp = at.clone();
        let command = take("command").as_u64();
        let mut translated = Map::new();
        translated.insert("EventType".to_owned(), Value::String(kind.clone()));
        translated.insert("Timestamp".to_owned(), at.clone());
        let mut put = |name: &str, value: Value| drop(translated.insert(name.to_owned(), value));
        match kind.as_str() {
            "ExecutionStarted" => {
                put("FunctionName", take("name"));
                self.options.show_input.then(|| put("Input", take("input")));
            }
            "TaskScheduled" | "SubOrchestrationInstanceCreated" => {
                let name = if kind == "TaskScheduled" { take("activity") } else { take("name") };
                let input = take("input");
                put("Name", name.clone());
                self.options.show_input.then(|| put("Input", input.clone()));
                if let child @ Value::String(_) = take("instanceId") {
                    put("InstanceId", child);
                }
                let scheduled =
                    ScheduledCommand { event_index: self.events.len(), name, scheduled_at: at, input };
                command.map(|command| self.scheduled.insert(command, scheduled));
            }
            "TaskCompleted" | "SubOrchestrationInstanceCompleted" => {
                self.options.show_output.then(|| put("Result", take("result")));
                self.complete_scheduled(command, &mut put);
            }
            "TaskFailed" | "SubOrchestrationInstanceFailed" => {
                put_failure(&take("error"), &mut put);
                self.complete_scheduled(command, &mut put);
            }
            "TimerCreated" => {
                let due = take("fireAt");
                put("FireAt", due.clone());
                let scheduled = ScheduledCommand {
                    event_index: usize::MAX,
                    name: Value::Null,
                    scheduled_at: due,
                    input: Value::Null,
                };
                command.map(|command| self.scheduled.insert(command, scheduled));
            }
            "TimerFired" => {
                if let Some(timer) = command.and_then(|command| self.scheduled.remove(&command)) {
                    put("FireAt", timer.scheduled_at);
                }
            }
            "EventRaised" => {
                put("Name", take("name"));
                self.options.show_input.then(|| put("Input", take("input")));
            }
            "ExecutionSuspended" | "ExecutionResumed" | "ExecutionRewound" => put("Reason", take("reason")),
            "ExecutionTerminated" => put("Input", take("reason")),
            "ExecutionCompleted" => {
                put("OrchestrationStatus", json!("Completed"));
                self.options.show_output.then(|| put("Result", take("result")));
            }
            "ExecutionFailed" => {
                // Durable Functions has one event type for every end.
                put("EventType", json!("ExecutionCompleted"));
                put("OrchestrationStatus", json!("Failed"));
                put_failure(&take("error"), &mut put);
            }
            "ContinueAsNew" => {
                put("OrchestrationStatus", json!("ContinuedAsNew"));
                self.options.show_output.then(|| put("Result", take("input")));
            }
            "GenericEvent" => {
                event.remove("sequence");
                put("Data", Value::Object(event));
            }
            _ => return,
        }
        self.events.push(Some(translated));
    }

    /// Copies the scheduling event into the completion event, and removes the former. The command stays known, because
    /// each failed attempt of a call has a completion event of its own.
    fn complete_scheduled(&mut self, command: Option<u64>, put: &mut impl FnMut(&str, Value)) {
        let Some(scheduled) = command.and_then(|command| self.scheduled.get(&command)) else { return };
        put("ScheduledTime", scheduled.scheduled_at.clone());
        put("FunctionName", scheduled.name.clone());
        if self.options.show_input {
            put("Input", scheduled.input.clone());
        }
        if let Some(event) = self.events.get_mut(scheduled.event_index) {
            *event = None;
        }
    }

    /// Adds a note that the history is longer than shown.
    fn mark_truncated(&mut self, id: &InstanceId) {
        let data = format!("truncated; the complete history is at /api/instances/{id}/history");
        let event = json!({"EventType": "GenericEvent", "Timestamp": self.last_timestamp, "Data": data});
        if let Value::Object(event) = event {
            self.events.push(Some(event));
        }
    }
}

fn put_failure(error: &Value, put: &mut impl FnMut(&str, Value)) {
    let text = |name: &str| error.get(name).cloned().unwrap_or_default();
    put("Reason", text("message"));
    put("Details", text("code"));
    put("FailureDetails", json!({"ErrorType": text("code"), "ErrorMessage": text("message")}));
}
