//! The scenarios, by what they are about.

pub(crate) mod crashes;
pub(crate) mod deadlines;
pub(crate) mod duplicates;
pub(crate) mod failures;
pub(crate) mod identity;
pub(crate) mod probes;
pub(crate) mod schemas;
pub(crate) mod statuses;

use std::sync::Arc;

use abide_dispatch::{Call, Failure, Metadata};
use abide_runtime::{RunView, ViewStatus};
use abide_workflow::Status;
use serde_json::{Value, json};

use crate::over::WORK;
use crate::work::Arrival;

/// The delivery that arrived, once more.
fn again(arrival: &Arrival, input: &Value) -> Call {
    call_of(arrival.metadata(), input)
}

fn call_of(metadata: Metadata, input: &Value) -> Call {
    let (activity, input) = (WORK.to_owned(), Arc::new(input.clone()));
    Call {
        activity,
        input,
        metadata,
        attempt_timeout_ms: 10_000,
        ask_first: false,
        secrets: Vec::new(),
        waited: std::time::Duration::ZERO,
    }
}

/// What an activity answers that did its work once.
fn once(step: &Value) -> Value {
    json!({"step": step, "times": 1})
}

fn status(view: &RunView) -> &'static str {
    match &view.status {
        ViewStatus::Run(Status::Completed) => "Completed",
        ViewStatus::Run(Status::Failed) => "Failed",
        ViewStatus::Run(Status::Terminated) => "Terminated",
        ViewStatus::Run(_) => "live",
        ViewStatus::Parked(_) => "parked",
    }
}

/// Code, and whether another delivery may help.
fn told(failure: &Failure) -> (&str, bool) {
    (&failure.code, failure.retryable)
}

/// Code of what a run failed with, and whether another delivery might have helped.
fn error(view: &RunView) -> (&str, bool) {
    let error = view.error.as_ref().expect("the run failed");
    (&error.code, error.retryable)
}
