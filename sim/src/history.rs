//! What the history of one run tells: calls and children, and how each was answered.

use std::collections::BTreeMap;

use abide_store::memory::MemoryStore;
use abide_store::rows::Partition;
use abide_store::tables::decode;
use abide_store::tables::pages::{self, Page};
use abide_workflow::Status;
use serde_json::Value;

/// What a run told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// Calls by command.
    pub(crate) calls: BTreeMap<u64, ToldCall>,
    /// How often the end of each child was told.
    children: BTreeMap<u64, u32>,
    /// How often the run was rewound.
    pub(crate) rewinds: u32,
    /// How it ended, if it did.
    pub(crate) end: Option<Ending>,
}

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ending {
    /// With this output.
    Completed(Value),
    /// With an error of this code.
    Failed(String),
    /// By order.
    Terminated,
    /// Another run goes on.
    Continued,
}

impl Ending {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Terminated => Status::Terminated,
            Self::Continued => Status::ContinuedAsNew,
        }
    }
}

/// A call, as history tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldCall {
    pub(crate) activity: String,
    pub(crate) input: String,
    /// Answers that were applied and final.
    pub(crate) answers: u32,
    /// Answers that it is done, late ones included.
    pub(crate) completed: u32,
    /// How often what is kept of its journal record was written.
    settled: u32,
    /// It was refused for good, and yet it is to be made again.
    retried: bool,
}

impl Story {
    /// The story of a run.
    pub(crate) fn of(store: &MemoryStore, partition: &Partition, run: u64) -> Self {
        let mut story = Self::default();
        let mut next = Some(pages::of_run(run));
        while let Some(scan) = next {
            let Ok(page) = store.scan_now(partition, scan) else { return story };
            for row in page.rows {
                let Ok(page) = decode::<Page>(&row.value) else { continue };
                let events: Vec<Value> = serde_json::from_slice(&page.events).unwrap_or_default();
                events.iter().for_each(|event| story.tell(event));
                for settled in page.settled {
                    story.calls.entry(settled.command).or_default().settled += 1;
                }
            }
            next = page.next;
        }
        story
    }

    fn tell(&mut self, event: &Value) {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let is = |name: &str| event.get(name).is_some_and(|value| *value != Value::Bool(false));
        let command = event.get("command").and_then(Value::as_u64).unwrap_or(0);
        let kind = text("eventType");
        match kind {
            "TaskScheduled" => {
                let input = event.get("input").map(ToString::to_string).unwrap_or_default();
                let call = ToldCall { activity: text("activity").to_owned(), input, ..ToldCall::default() };
                self.calls.insert(command, call);
            }
            "TaskCompleted" => {
                let call = self.calls.entry(command).or_default();
                call.completed += 1;
                call.answers += u32::from(!is("late"));
            }
            "TaskFailed" if is("retryAt") => {
                let code = event.get("error").and_then(|error| error.get("code")).and_then(Value::as_str);
                self.calls.entry(command).or_default().retried |= code == Some("Refused");
            }
            "TaskFailed" if !is("late") => {
                self.calls.entry(command).or_default().answers += 1;
            }
            "SubOrchestrationInstanceCompleted" | "SubOrchestrationInstanceFailed" => {
                *self.children.entry(command).or_default() += 1;
            }
            "ExecutionRewound" => {
                self.rewinds += 1;
                self.end = None;
            }
            "ExecutionCompleted" => {
                self.end = event.get("result").cloned().map(Ending::Completed);
            }
            "ExecutionFailed" => {
                let code = event.get("error").and_then(|error| error.get("code")).and_then(Value::as_str);
                self.end = Some(Ending::Failed(code.unwrap_or_default().to_owned()));
            }
            "ExecutionTerminated" => self.end = Some(Ending::Terminated),
            "ContinueAsNew" => self.end = Some(Ending::Continued),
            _ => {}
        }
    }

    /// Each call and each child is answered at most once, and all of them in a run that completed.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let whole = matches!(self.end, Some(Ending::Completed(_) | Ending::Continued));
        for (command, call) in &self.calls {
            let ToldCall { activity, answers, completed, settled, retried, .. } = call;
            if *retried {
                wrong.push(format!("call {command} ({activity}) was refused for good and is made again"));
            }
            if *settled > 1 || *settled == 0 && self.end.is_some() {
                wrong.push(format!("call {command} ({activity}) was settled {settled} times in the journal"));
            }
            if activity.is_empty() {
                wrong.push(format!("call {command} was answered and never made"));
            }
            if *answers > 1 || *completed > 1 {
                wrong.push(format!(
                    "call {command} ({activity}) was answered {answers} times, done {completed} times"
                ));
            }
            if whole && *answers == 0 {
                wrong.push(format!(
                    "call {command} ({activity}) was never answered, and the run has completed"
                ));
            }
        }
        for (command, count) in &self.children {
            if *count > 1 {
                wrong.push(format!("the end of child {command} was told {count} times"));
            }
        }
        wrong
    }
}
