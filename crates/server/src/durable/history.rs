//! A run's history in their words: an answer carries what it answers, and turns, states and branches are left out.
//!
//! Reads the runtime's events as JSON and knows nothing of how they come about.

use std::collections::HashMap;

use abide_runtime::hands::Store;
use abide_workflow::InstanceId;
use serde_json::{Map, Value, json};

use super::answer::Otherwise;
use crate::app::App;

/// Events read at once, and in all.
const PAGE_EVENTS_MAX: usize = 1_000;
const EVENTS_MAX: usize = 10_000;
/// Bytes read in all, as they are stored.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// What of an event is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) input: bool,
    pub(super) output: bool,
}

/// The history of an instance's current run; none if the instance is gone by now.
pub(super) async fn of<S: Store>(
    app: &App<S>,
    id: &InstanceId,
    shown: Shown,
) -> Result<Option<Vec<Value>>, Otherwise> {
    let mut told = Told::new(shown);
    let (mut from, mut events, mut bytes) = (None, 0, 0);
    loop {
        let page = app.in_time(app.node().history(id, from, PAGE_EVENTS_MAX)).await??;
        let Some(page) = page else { return Ok(None) };
        for event in page.events {
            (events, bytes) = (events + 1, bytes + event.get().len());
            if let Ok(event) = serde_json::from_str(event.get()) {
                told.tell(event);
            }
        }
        match page.next {
            None => break,
            Some(_) if events >= EVENTS_MAX || bytes >= BYTES_MAX => {
                told.cut_off(id);
                break;
            }
            Some(next) => from = Some(next),
        }
    }
    Ok(Some(told.events()))
}

/// Events told so far.
#[derive(Debug)]
struct Told {
    shown: Shown,
    events: Vec<Option<Map<String, Value>>>,
    /// By command: where it was told what was asked for.
    asked: HashMap<u64, Asked>,
    last: Value,
}

/// What an answer belongs to.
#[derive(Debug)]
struct Asked {
    place: usize,
    name: Value,
    at: Value,
    input: Value,
}

impl Told {
    fn new(shown: Shown) -> Self {
        Self { shown, events: Vec::new(), asked: HashMap::new(), last: Value::Null }
    }

    fn events(self) -> Vec<Value> {
        self.events.into_iter().flatten().map(Value::Object).collect()
    }

    /// Tells one event, if they have a word for it.
    fn tell(&mut self, mut event: Map<String, Value>) {
        let mut take = |name: &str| event.remove(name).unwrap_or_default();
        let (kind, at) = (take("eventType"), take("timestamp"));
        let kind = kind.as_str().unwrap_or_default().to_owned();
        self.last = at.clone();
        let command = take("command").as_u64();
        let mut told = Map::new();
        told.insert("EventType".to_owned(), Value::String(kind.clone()));
        told.insert("Timestamp".to_owned(), at.clone());
        let mut put = |name: &str, value: Value| drop(told.insert(name.to_owned(), value));
        match kind.as_str() {
            "ExecutionStarted" => {
                put("FunctionName", take("name"));
                self.shown.input.then(|| put("Input", take("input")));
            }
            "TaskScheduled" | "SubOrchestrationInstanceCreated" => {
                let name = if kind == "TaskScheduled" { take("activity") } else { take("name") };
                let input = take("input");
                put("Name", name.clone());
                self.shown.input.then(|| put("Input", input.clone()));
                if let child @ Value::String(_) = take("instanceId") {
                    put("InstanceId", child);
                }
                let asked = Asked { place: self.events.len(), name, at, input };
                command.map(|command| self.asked.insert(command, asked));
            }
            "TaskCompleted" | "SubOrchestrationInstanceCompleted" => {
                self.shown.output.then(|| put("Result", take("result")));
                self.answer(command, &mut put);
            }
            "TaskFailed" | "SubOrchestrationInstanceFailed" => {
                put_failure(&take("error"), &mut put);
                self.answer(command, &mut put);
            }
            "TimerCreated" => {
                let due = take("fireAt");
                put("FireAt", due.clone());
                let asked = Asked { place: usize::MAX, name: Value::Null, at: due, input: Value::Null };
                command.map(|command| self.asked.insert(command, asked));
            }
            "TimerFired" => {
                if let Some(timer) = command.and_then(|command| self.asked.remove(&command)) {
                    put("FireAt", timer.at);
                }
            }
            "EventRaised" => {
                put("Name", take("name"));
                self.shown.input.then(|| put("Input", take("input")));
            }
            "ExecutionSuspended" | "ExecutionResumed" | "ExecutionRewound" => put("Reason", take("reason")),
            "ExecutionTerminated" => put("Input", take("reason")),
            "ExecutionCompleted" => {
                put("OrchestrationStatus", json!("Completed"));
                self.shown.output.then(|| put("Result", take("result")));
            }
            "ExecutionFailed" => {
                // Theirs is one event for every end.
                put("EventType", json!("ExecutionCompleted"));
                put("OrchestrationStatus", json!("Failed"));
                put_failure(&take("error"), &mut put);
            }
            "ContinueAsNew" => {
                put("OrchestrationStatus", json!("ContinuedAsNew"));
                self.shown.output.then(|| put("Result", take("input")));
            }
            "GenericEvent" => {
                event.remove("sequence");
                put("Data", Value::Object(event));
            }
            _ => return,
        }
        self.events.push(Some(told));
    }

    /// What an answer belongs to stands in the answer; asking is not told twice.
    fn answer(&mut self, command: Option<u64>, put: &mut impl FnMut(&str, Value)) {
        let Some(asked) = command.and_then(|command| self.asked.get(&command)) else { return };
        put("ScheduledTime", asked.at.clone());
        put("FunctionName", asked.name.clone());
        if self.shown.input {
            put("Input", asked.input.clone());
        }
        if let Some(event) = self.events.get_mut(asked.place) {
            *event = None;
        }
    }

    /// There is more than is shown in one piece.
    fn cut_off(&mut self, id: &InstanceId) {
        let data = format!("the history goes on; all of it is at /api/instances/{id}/history");
        let event = json!({"EventType": "GenericEvent", "Timestamp": self.last, "Data": data});
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
