//! `/api/instances`: starts runs, shows and lists them, raises events, sends control operations and purges instances.

use std::collections::BTreeMap;

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::ApiPath;
use crate::client::Client;
use crate::history::HistoryEvent;
use crate::instance::{Instance, InstanceSummary};
use crate::pages::Pages;
use crate::request::ClientRequest;
use crate::retry::RetrySafety;
use crate::start::{NewInstance, StartOutcome, StartedInstance};

const INSTANCES: &str = "/api/instances";

/// A filter of instances. The empty filter lists all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstanceFilter {
    pub status: Option<String>,
    pub workflow: Option<String>,
    pub version: Option<String>,
    pub correlation_id: Option<String>,
    pub entity_id: Option<String>,
    /// Started at this time or later.
    pub created_from: Option<Timestamp>,
    /// Started before this time.
    pub created_to: Option<Timestamp>,
}

/// A filter of ended instances to purge. At least one of its conditions must be set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeRequest {
    /// One of these statuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Started at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_from: Option<Timestamp>,
    /// Started before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_to: Option<Timestamp>,
    /// Only count the matches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The position at which the last request stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continuation_token: Option<String>,
}

/// The outcome of one purge request. A request examines a bounded number of instances; its token continues the purge.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeOutcome {
    /// Instances that match the filter.
    pub matched: u64,
    /// Instances that were deleted.
    pub purged: u64,
    /// Set if there may be more matches.
    pub continuation_token: Option<String>,
}

/// The server's acknowledgement of an event, a control operation or a deletion.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceAck {
    pub instance_id: String,
    /// Until when the server recognises a repeat of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key_expires_at_utc: Option<Timestamp>,
}

/// A run that continues, and the steps that it does again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewoundInstance {
    pub instance_id: String,
    /// Until when the server recognises a repeat of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key_expires_at_utc: Option<Timestamp>,
    /// At most the first fifty, the failed one first. Older servers do not report them.
    #[serde(default)]
    pub steps: Vec<RewoundStep>,
}

/// A step that a rewind does again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewoundStep {
    /// The state's path in the definition.
    pub step: String,
    /// The positions of its branch in the maps and parallels around it, outermost first.
    #[serde(default)]
    pub items: Vec<u32>,
    /// `same` or `new`: the idempotency key of its call.
    pub key: String,
    /// Why: `outcomeUnknown`, `interrupted`, `outcomeKnown`, `requested`, `branchesStartAgain` or `newChild`.
    pub reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RewindBody<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    new_key: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TerminateTreeBody<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    recursive: bool,
}

/// Starts, events, control operations and deletions each carry an idempotency key, so that they can be retried safely.
impl Client {
    /// Starts a run.
    pub fn start(&self, start: &NewInstance) -> ClientRequest<StartOutcome> {
        let wait = start.wait.map(|wait| format!("PT{}.{:03}S", wait.as_secs(), wait.subsec_millis()));
        let path = ApiPath::new(INSTANCES).query("wait", wait.as_deref());
        let request = ClientRequest::new(self, Method::POST, path, RetrySafety::Unsafe)
            .json(start)
            .idempotency_key(start.idempotency_key.as_deref());
        request.server_wait(start.wait.unwrap_or_default())
    }

    /// Lists instances, newest first.
    pub fn instances(&self, filter: &InstanceFilter) -> Pages<InstanceSummary> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let path = ApiPath::new(INSTANCES)
            .query("status", filter.status.as_deref())
            .query("workflow", filter.workflow.as_deref())
            .query("version", filter.version.as_deref())
            .query("correlationId", filter.correlation_id.as_deref())
            .query("entityId", filter.entity_id.as_deref())
            .query("createdFrom", time(filter.created_from).as_deref())
            .query("createdTo", time(filter.created_to).as_deref());
        Pages::new(self, path)
    }

    /// Shows an instance.
    pub fn instance(&self, id: &str) -> ClientRequest<Instance> {
        ClientRequest::get(self, instance_path(id))
    }

    /// The history of an instance's current run, oldest event first.
    pub fn history(&self, id: &str) -> Pages<HistoryEvent> {
        Pages::new(self, instance_path(id).segment("history"))
    }

    /// The history of the run with this number, oldest event first, if the server still has it.
    pub fn history_of_run(&self, id: &str, run: u32) -> Pages<HistoryEvent> {
        Pages::new(self, instance_path(id).segment("history").query("run", Some(&run.to_string())))
    }

    /// Raises an event in an instance.
    pub fn raise_event(&self, id: &str, event: &str, payload: &Value) -> ClientRequest<InstanceAck> {
        let path = instance_path(id).segment("events").segment(event);
        ClientRequest::new(self, Method::POST, path, RetrySafety::Unsafe).json(payload).idempotency_key(None)
    }

    /// Suspends a run. Events and results that reach it meanwhile are kept.
    pub fn suspend(&self, id: &str, reason: Option<&str>) -> ClientRequest<InstanceAck> {
        self.control(id, "suspend", reason)
    }

    /// Resumes a suspended or parked run.
    pub fn resume(&self, id: &str, reason: Option<&str>) -> ClientRequest<InstanceAck> {
        self.control(id, "resume", reason)
    }

    /// Terminates a run.
    pub fn terminate(&self, id: &str, reason: Option<&str>) -> ClientRequest<InstanceAck> {
        self.control(id, "terminate", reason)
    }

    /// Terminates a run and all its descendants, those included that were abandoned.
    pub fn terminate_tree(&self, id: &str, reason: Option<&str>) -> ClientRequest<InstanceAck> {
        let body = TerminateTreeBody { reason, recursive: true };
        ClientRequest::new(self, Method::POST, instance_path(id).segment("terminate"), RetrySafety::Unsafe)
            .json(&body)
            .idempotency_key(None)
    }

    /// Continues a failed run at the state that failed.
    /// A call whose outcome is unknown keeps its idempotency key, unless `new_key`.
    pub fn rewind(&self, id: &str, reason: Option<&str>, new_key: bool) -> ClientRequest<RewoundInstance> {
        let body = RewindBody { reason, new_key };
        ClientRequest::new(self, Method::POST, instance_path(id).segment("rewind"), RetrySafety::Unsafe)
            .json(&body)
            .idempotency_key(None)
    }

    /// Runs the failed compensation steps of an ended run again.
    pub fn retry_compensation(&self, id: &str, reason: Option<&str>) -> ClientRequest<InstanceAck> {
        let body: BTreeMap<&str, &str> = reason.map(|reason| ("reason", reason)).into_iter().collect();
        let path = instance_path(id).segment("compensation").segment("retry");
        ClientRequest::new(self, Method::POST, path, RetrySafety::Unsafe).json(&body).idempotency_key(None)
    }

    /// Starts a new run with the input and the version of the last one.
    pub fn restart(&self, id: &str, reason: Option<&str>) -> ClientRequest<StartedInstance> {
        self.control(id, "restart", reason)
    }

    /// Deletes an instance whose last run has ended.
    pub fn purge(&self, id: &str) -> ClientRequest<InstanceAck> {
        ClientRequest::new(self, Method::DELETE, instance_path(id), RetrySafety::Unsafe).idempotency_key(None)
    }

    /// Deletes the ended instances that match a filter, a bounded number per request.
    pub fn purge_matching(&self, purge: &PurgeRequest) -> ClientRequest<PurgeOutcome> {
        ClientRequest::new(self, Method::POST, ApiPath::new("/api/instances/purge"), RetrySafety::Unsafe)
            .json(purge)
    }

    fn control<T>(&self, id: &str, operation: &str, reason: Option<&str>) -> ClientRequest<T> {
        let body: BTreeMap<&str, &str> = reason.map(|reason| ("reason", reason)).into_iter().collect();
        ClientRequest::new(self, Method::POST, instance_path(id).segment(operation), RetrySafety::Unsafe)
            .json(&body)
            .idempotency_key(None)
    }
}

fn instance_path(id: &str) -> ApiPath {
    ApiPath::new(INSTANCES).segment(id)
}
