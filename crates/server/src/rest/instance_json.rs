//! An instance as clients read it. Borrows from the runtime's view; knows nothing of where it is sent.

use abide_runtime::request::Standing;
use abide_runtime::{RunView, ViewStatus};
use abide_workflow::instance::WaitingFor;
use abide_workflow::{ExecutionId, Failure, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::envelope::Text;

/// Every status a run can have.
pub(super) const STATUSES: &[&str] =
    &["Pending", "Running", "Suspended", "Completed", "Failed", "Terminated", "ContinuedAsNew", "Parked"];

/// Those of runs that live, in the order that runs come to them: one that moves on while they are asked for one after the other is not missed.
/// Continuation tokens name them by their place.
pub(super) const LIVE: [&str; 4] = ["Pending", "Running", "Suspended", "Parked"];

pub(super) fn status_schema(_schemas: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": STATUSES})
}

/// An instance and its current run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Instance")]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceJson<'a> {
    instance_id: &'a str,
    execution_id: Text<ExecutionId>,
    workflow: &'a str,
    version: &'a str,
    #[schemars(schema_with = "status_schema")]
    status: Status,
    input: &'a Value,
    output: Option<&'a Value>,
    error: Option<FailureJson<'a>>,
    correlation_id: &'a str,
    entity_id: Option<&'a str>,
    created_at_utc: Text<Timestamp>,
    last_updated_at_utc: Text<Timestamp>,
    current_states: Vec<StateJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked_reason: Option<&'a str>,
    /// Until when the start that is answered by it is recognised when it comes again, if it had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Status {
    Run(Text<abide_workflow::Status>),
    Parked(&'static str),
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
struct FailureJson<'a> {
    code: &'a str,
    message: &'a str,
    state: Option<&'a str>,
    retryable: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CurrentState")]
#[serde(rename_all = "camelCase")]
struct StateJson<'a> {
    state: &'a str,
    since: Text<Timestamp>,
    waiting_for: WaitingJson<'a>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Waiting")]
#[serde(rename_all = "camelCase")]
struct WaitingJson<'a> {
    #[serde(flatten)]
    what: What<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Text<Timestamp>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum What<'a> {
    Nothing,
    Activity { activity: Option<&'a str>, attempt: Option<u32>, failures: u32 },
    Timer,
    Event { name: &'a str },
    Child { child_instance_id: Option<&'a str> },
    Branches { total: u32, ended: u32 },
}

impl<'a> InstanceJson<'a> {
    pub(super) fn of(view: &'a RunView) -> Self {
        let (status, parked_reason) = match &view.status {
            ViewStatus::Run(status) => (Status::Run(Text(*status)), None),
            ViewStatus::Parked(reason) => (Status::Parked("Parked"), Some(reason.as_str())),
        };
        Self {
            instance_id: view.instance_id.as_str(),
            execution_id: Text(ExecutionId { instance: view.instance_id.clone(), run: view.run }),
            workflow: &view.workflow,
            version: &view.version,
            status,
            input: &view.input,
            output: view.output.as_deref(),
            error: view.error.as_ref().map(FailureJson::of),
            correlation_id: &view.correlation_id,
            entity_id: view.entity_id.as_deref(),
            created_at_utc: Text(view.created_at),
            last_updated_at_utc: Text(view.updated_at),
            current_states: view.current_states.iter().map(StateJson::of).collect(),
            parked_reason,
            idempotency_key_expires_at_utc: None,
        }
    }
}

impl<'a> FailureJson<'a> {
    fn of(failure: &'a Failure) -> Self {
        let Failure { code, message, state, retryable } = failure;
        Self { code, message, state: state.as_deref(), retryable: *retryable }
    }
}

impl<'a> StateJson<'a> {
    fn of(standing: &'a Standing) -> Self {
        let what = match &standing.state.waiting_for {
            WaitingFor::Nothing => What::Nothing,
            WaitingFor::Activity { failures, .. } => What::Activity {
                activity: standing.activity.as_deref(),
                attempt: standing.attempt,
                failures: *failures,
            },
            WaitingFor::Timer { .. } => What::Timer,
            WaitingFor::Event { name } => What::Event { name },
            WaitingFor::Child { .. } => {
                What::Child { child_instance_id: standing.child.as_ref().map(|child| child.as_str()) }
            }
            WaitingFor::Branches { total, ended } => What::Branches { total: *total, ended: *ended },
        };
        Self {
            state: &standing.state.state,
            since: Text(standing.state.since),
            waiting_for: WaitingJson { what, until: standing.until.map(Text) },
        }
    }
}

/// Where a branch is and what it waits for, in one line.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Standing")]
#[serde(rename_all = "camelCase")]
pub(super) struct StandingJson {
    state: String,
    /// `nothing`, `activity`, `timer`, `event`, `child` or `branches`.
    kind: &'static str,
    since: Text<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<String>,
    /// The delivery that is out, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    child: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Text<Timestamp>>,
}

impl StandingJson {
    pub(super) fn of(standing: &Standing) -> Self {
        let (kind, event) = match &standing.state.waiting_for {
            WaitingFor::Nothing => ("nothing", None),
            WaitingFor::Activity { .. } => ("activity", None),
            WaitingFor::Timer { .. } => ("timer", None),
            WaitingFor::Event { name } => ("event", Some(name.clone())),
            WaitingFor::Child { .. } => ("child", None),
            WaitingFor::Branches { .. } => ("branches", None),
        };
        Self {
            state: standing.state.state.clone(),
            kind,
            since: Text(standing.state.since),
            event,
            activity: standing.activity.clone(),
            attempt: standing.attempt,
            child: standing.child.as_ref().map(|child| child.as_str().to_owned()),
            until: standing.until.map(Text),
        }
    }
}
