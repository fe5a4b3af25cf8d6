//! The scenarios by topic, and what they share.

pub(crate) mod crashes;
pub(crate) mod deadlines;
pub(crate) mod duplicates;
pub(crate) mod failures;
pub(crate) mod identity;
pub(crate) mod probes;
pub(crate) mod schemas;
pub(crate) mod statuses;

use std::sync::Arc;

use abide_dispatch::{CallAttempt, CallFailure, Metadata};
use abide_runtime::{RunView, ViewStatus};
use abide_workflow::Status;
use serde_json::{Value, json};

use crate::counting_handler::ReceivedRequest;
use crate::transport::WORK;

/// The same attempt as the received one.
fn again(request: &ReceivedRequest, input: &Value) -> CallAttempt {
    call_of(request.metadata(), input)
}

fn call_of(metadata: Metadata, input: &Value) -> CallAttempt {
    let activity = WORK.to_owned();
    let input = Arc::new(input.clone());
    CallAttempt {
        activity,
        input,
        metadata,
        attempt_timeout_ms: 10_000,
        probe_first: false,
        secret_pointers: Vec::new(),
        elapsed_since_dispatch: std::time::Duration::ZERO,
    }
}

/// The output of an activity that had its effect once.
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

/// The code, and whether the failure is retryable.
fn told(failure: &CallFailure) -> (&str, bool) {
    (&failure.code, failure.retryable)
}

/// The code of a run's error, and whether it was retryable.
fn error(view: &RunView) -> (&str, bool) {
    let error = view.error.as_ref().expect("the run should have failed");
    (&error.code, error.retryable)
}
