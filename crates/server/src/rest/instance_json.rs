//! The JSON of an instance. Borrows from the runtime's view; knows nothing about requests.

use abide_runtime::request::BranchView;
use abide_runtime::{RunView, ViewStatus};
use abide_workflow::instance::{CompensationCounts, WaitingFor};
use abide_workflow::{ExecutionId, Failure, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::response::Text;
use crate::rest::hold_json::HoldJson;

pub(super) const STATUSES: &[&str] =
    &["Pending", "Running", "Suspended", "Completed", "Failed", "Terminated", "ContinuedAsNew", "Parked"];

/// The statuses of live runs, in the order in which runs reach them: a run that moves on while the statuses are queried
/// one after the other is not missed. A run that is resumed meanwhile may be, because it goes back to Running.
/// Continuation tokens contain the index of a status.
pub(super) const LIVE_STATUSES: [&str; 4] = ["Pending", "Running", "Suspended", "Parked"];

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
    status: InstanceStatusJson,
    input: &'a Value,
    output: Option<&'a Value>,
    error: Option<FailureJson<'a>>,
    correlation_id: &'a str,
    entity_id: Option<&'a str>,
    created_at_utc: Text<Timestamp>,
    last_updated_at_utc: Text<Timestamp>,
    current_states: Vec<CurrentStateJson<'a>>,
    /// The steps of the run's compensations, if any have begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    compensation: Option<CompensationJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked_reason: Option<&'a str>,
    /// Until when a repeated start request is recognised, if the request had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idempotency_key_expires_at_utc: Option<Text<Timestamp>>,
}

/// How many compensation steps have ended well, have failed for good, and have not ended.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Compensation")]
struct CompensationJson {
    done: u32,
    failed: u32,
    pending: u32,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum InstanceStatusJson {
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
struct CurrentStateJson<'a> {
    state: &'a str,
    since: Text<Timestamp>,
    waiting_for: WaitingForJson<'a>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Waiting")]
#[serde(rename_all = "camelCase")]
struct WaitingForJson<'a> {
    #[serde(flatten)]
    reason: WaitReasonJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Text<Timestamp>>,
    /// What holds the call back; absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HoldJson>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum WaitReasonJson<'a> {
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
            ViewStatus::Run(status) => (InstanceStatusJson::Run(Text(*status)), None),
            ViewStatus::Parked(reason) => (InstanceStatusJson::Parked("Parked"), Some(reason.as_str())),
        };
        Self {
            instance_id: view.instance_id.as_str(),
            execution_id: Text(ExecutionId { instance: view.instance_id.clone(), run: view.run_number }),
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
            current_states: view.current_states.iter().map(CurrentStateJson::of).collect(),
            compensation: view.compensation.map(|CompensationCounts { done, failed, pending }| {
                CompensationJson { done, failed, pending }
            }),
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

impl<'a> CurrentStateJson<'a> {
    fn of(branch: &'a BranchView) -> Self {
        let reason = match &branch.state.waiting_for {
            WaitingFor::Nothing => WaitReasonJson::Nothing,
            WaitingFor::Activity { failures, .. } => WaitReasonJson::Activity {
                activity: branch.activity.as_deref(),
                attempt: branch.attempt,
                failures: *failures,
            },
            WaitingFor::Timer { .. } => WaitReasonJson::Timer,
            WaitingFor::Event { name } => WaitReasonJson::Event { name },
            WaitingFor::Child { .. } => {
                WaitReasonJson::Child { child_instance_id: branch.child.as_ref().map(|child| child.as_str()) }
            }
            WaitingFor::Branches { total, ended } => {
                WaitReasonJson::Branches { total: *total, ended: *ended }
            }
        };
        Self {
            state: &branch.state.state,
            since: Text(branch.state.since),
            waiting_for: WaitingForJson {
                reason,
                until: branch.until.map(Text),
                held: branch.held.map(HoldJson::of),
            },
        }
    }
}

/// The state of a branch and what it waits for.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Standing")]
#[serde(rename_all = "camelCase")]
pub(super) struct BranchWaitJson {
    state: String,
    /// `nothing`, `activity`, `timer`, `event`, `child` or `branches`.
    kind: &'static str,
    since: Text<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<String>,
    /// The number of the attempt in flight, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    child: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Text<Timestamp>>,
    /// What holds the call back; absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HoldJson>,
}

impl BranchWaitJson {
    pub(super) fn of(branch: &BranchView) -> Self {
        let (kind, event) = match &branch.state.waiting_for {
            WaitingFor::Nothing => ("nothing", None),
            WaitingFor::Activity { .. } => ("activity", None),
            WaitingFor::Timer { .. } => ("timer", None),
            WaitingFor::Event { name } => ("event", Some(name.clone())),
            WaitingFor::Child { .. } => ("child", None),
            WaitingFor::Branches { .. } => ("branches", None),
        };
        Self {
            state: branch.state.state.clone(),
            kind,
            since: Text(branch.state.since),
            event,
            activity: branch.activity.clone(),
            attempt: branch.attempt,
            child: branch.child.as_ref().map(|child| child.as_str().to_owned()),
            until: branch.until.map(Text),
            held: branch.held.map(HoldJson::of),
        }
    }
}
