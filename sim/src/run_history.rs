//! Reads the history of one run: its calls and children with their results, and how it ended.

use std::collections::BTreeMap;

use abide_ids::RunId;
use abide_store::memory::MemoryStore;
use abide_store::rows::Partition;
use abide_store::tables::decode;
use abide_store::tables::history_pages::{self, HistoryPageRow};
use abide_workflow::{CommandId, Status};
use serde_json::Value;

/// A summary of the history of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunHistory {
    pub(crate) calls: BTreeMap<CommandId, HistoryCall>,
    /// How often the end of each child was recorded, by command id.
    children: BTreeMap<CommandId, u32>,
    /// How often the run was rewound.
    pub(crate) rewinds: u32,
    /// `None` if it has not ended.
    pub(crate) end: Option<RunEnd>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum RunEnd {
    Completed(Value),
    /// With this error code.
    Failed(String),
    Terminated,
    Continued,
}

impl RunEnd {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Terminated => Status::Terminated,
            Self::Continued => Status::ContinuedAsNew,
        }
    }
}

/// A call according to the history.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistoryCall {
    pub(crate) activity: String,
    pub(crate) input: String,
    /// Final results that were applied.
    pub(crate) applied_results: u32,
    /// Successful results, late ones included.
    pub(crate) completed: u32,
    /// How often its settled record was written.
    settled_records: u32,
    /// It failed permanently, but a retry was scheduled.
    retried: bool,
    /// It was scheduled before the run failed and was rewound, so it may have been cancelled.
    before_rewind: bool,
}

impl RunHistory {
    /// Loads the history of a run.
    pub(crate) fn load(store: &MemoryStore, partition: &Partition, run: RunId) -> Self {
        let mut history = Self::default();
        let mut next = Some(history_pages::of_run(run));
        while let Some(scan) = next {
            let Ok(page) = store.scan_now(partition, scan) else { return history };
            for row in page.rows {
                let Ok(page) = decode::<HistoryPageRow>(&row.value) else { continue };
                let events: Vec<Value> = serde_json::from_slice(&page.events).unwrap_or_default();
                events.iter().for_each(|event| history.apply_event(event));
                for settled in page.settled_calls {
                    history.calls.entry(settled.command).or_default().settled_records += 1;
                }
            }
            next = page.next;
        }
        history
    }

    fn apply_event(&mut self, event: &Value) {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let is = |name: &str| event.get(name).is_some_and(|value| *value != Value::Bool(false));
        let command = CommandId(event.get("command").and_then(Value::as_u64).unwrap_or(0));
        let kind = text("eventType");
        match kind {
            "TaskScheduled" => {
                let input = event.get("input").map(ToString::to_string).unwrap_or_default();
                let call =
                    HistoryCall { activity: text("activity").to_owned(), input, ..HistoryCall::default() };
                self.calls.insert(command, call);
            }
            "TaskCompleted" => {
                let call = self.calls.entry(command).or_default();
                call.completed += 1;
                call.applied_results += u32::from(!is("late"));
            }
            "TaskFailed" if is("retryAt") => {
                let code = event.get("error").and_then(|error| error.get("code")).and_then(Value::as_str);
                self.calls.entry(command).or_default().retried |= code == Some("Refused");
            }
            "TaskFailed" if !is("late") => {
                self.calls.entry(command).or_default().applied_results += 1;
            }
            "SubOrchestrationInstanceCompleted" | "SubOrchestrationInstanceFailed" => {
                *self.children.entry(command).or_default() += 1;
            }
            "ExecutionRewound" => {
                self.rewinds += 1;
                self.calls.values_mut().for_each(|call| call.before_rewind = true);
                self.end = None;
            }
            "ExecutionCompleted" => {
                self.end = event.get("result").cloned().map(RunEnd::Completed);
            }
            "ExecutionFailed" => {
                let code = event.get("error").and_then(|error| error.get("code")).and_then(Value::as_str);
                self.end = Some(RunEnd::Failed(code.unwrap_or_default().to_owned()));
            }
            "ExecutionTerminated" => self.end = Some(RunEnd::Terminated),
            "ContinueAsNew" => self.end = Some(RunEnd::Continued),
            _ => {}
        }
    }

    /// Checks that each call and each child has at most one result, and that in a completed run each call has one.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let whole = matches!(self.end, Some(RunEnd::Completed(_) | RunEnd::Continued));
        for (command, call) in &self.calls {
            let HistoryCall {
                activity,
                applied_results: results,
                completed,
                settled_records: settled,
                retried,
                before_rewind,
                ..
            } = call;
            if *retried {
                violations.push(format!("call {command} ({activity}) failed permanently and is retried"));
            }
            if *settled > 1 || *settled == 0 && self.end.is_some() {
                violations.push(format!("call {command} ({activity}) has {settled} settled records"));
            }
            if activity.is_empty() {
                violations.push(format!("call {command} has a result, but was never scheduled"));
            }
            if *results > 1 || *completed > 1 {
                violations.push(format!(
                    "call {command} ({activity}) has {results} applied results and was completed {completed} times"
                ));
            }
            if whole && *results == 0 && !before_rewind {
                violations
                    .push(format!("call {command} ({activity}) has no result, but the run has completed"));
            }
        }
        for (command, count) in &self.children {
            if *count > 1 {
                violations.push(format!("the end of child {command} was recorded {count} times"));
            }
        }
        violations
    }
}
