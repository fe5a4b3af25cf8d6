//! `/api/instances`: starting runs, looking at them, telling them something, forgetting them.

use std::collections::BTreeMap;

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::history::HistoryEvent;
use crate::instance::{Instance, InstanceSummary};
use crate::pages::Pages;
use crate::retry::Repeat;
use crate::start::{Start, StartOutcome, Started};

const INSTANCES: &str = "/api/instances";

/// Which instances to list. Nothing means all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstanceFilter {
    /// Where they stand.
    pub status: Option<String>,
    /// Of this definition.
    pub workflow: Option<String>,
    /// Of this version.
    pub version: Option<String>,
    /// Of this trace.
    pub correlation_id: Option<String>,
    /// About this entity.
    pub entity_id: Option<String>,
    /// Begun then or later.
    pub created_from: Option<Timestamp>,
    /// Begun before then.
    pub created_to: Option<Timestamp>,
}

/// Which ended instances to forget. At least one of the filters must be there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Purge {
    /// How they ended: one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<String>,
    /// Of this definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Begun then or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_from: Option<Timestamp>,
    /// Begun before then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_to: Option<Timestamp>,
    /// Only say how many there are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Where the last call stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continuation_token: Option<String>,
}

/// What a purge came to. One call looks at a bounded number; the token goes into the next.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purged {
    /// Instances that the filters let through.
    pub matched: u64,
    /// Instances that are gone.
    pub purged: u64,
    /// There may be more.
    pub continuation_token: Option<String>,
}

/// The instance that something was done to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// The instance.
    pub instance_id: String,
    /// Until when the request is recognised if it comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key_expires_at_utc: Option<Timestamp>,
}

/// Starts, events, orders and deletions each have a key by which the server recognises a copy, so that they can be repeated safely.
impl Client {
    /// Starts a run.
    pub fn start(&self, start: &Start) -> Call<StartOutcome> {
        let wait = start.wait.map(|wait| format!("PT{}.{:03}S", wait.as_secs(), wait.subsec_millis()));
        let path = Path::of(INSTANCES).query("wait", wait.as_deref());
        let call =
            Call::new(self, Method::POST, path, Repeat::Unsafe).json(start).keyed(start.key.as_deref());
        call.patience(start.wait.unwrap_or_default())
    }

    /// Lists instances, newest first.
    pub fn instances(&self, filter: &InstanceFilter) -> Pages<InstanceSummary> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let path = Path::of(INSTANCES)
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
    pub fn instance(&self, id: &str) -> Call<Instance> {
        Call::get(self, instance(id))
    }

    /// The events of an instance's current run, oldest first.
    pub fn history(&self, id: &str) -> Pages<HistoryEvent> {
        Pages::new(self, instance(id).segment("history"))
    }

    /// The events of an instance's run of this number, oldest first, if it is still kept.
    pub fn history_of_run(&self, id: &str, run: u32) -> Pages<HistoryEvent> {
        Pages::new(self, instance(id).segment("history").query("run", Some(&run.to_string())))
    }

    /// Raises an event.
    pub fn raise(&self, id: &str, event: &str, payload: &Value) -> Call<Named> {
        let path = instance(id).segment("events").segment(event);
        Call::new(self, Method::POST, path, Repeat::Unsafe).json(payload).keyed(None)
    }

    /// Stops a run where it is; it keeps what reaches it.
    pub fn suspend(&self, id: &str, reason: Option<&str>) -> Call<Named> {
        self.order(id, "suspend", reason)
    }

    /// Lets a suspended or parked run go on.
    pub fn resume(&self, id: &str, reason: Option<&str>) -> Call<Named> {
        self.order(id, "resume", reason)
    }

    /// Ends a run.
    pub fn terminate(&self, id: &str, reason: Option<&str>) -> Call<Named> {
        self.order(id, "terminate", reason)
    }

    /// Lets a failed run go on at the state that failed.
    pub fn rewind(&self, id: &str, reason: Option<&str>) -> Call<Named> {
        self.order(id, "rewind", reason)
    }

    /// Begins a new run with the input and the version of the last one.
    pub fn restart(&self, id: &str, reason: Option<&str>) -> Call<Started> {
        self.order(id, "restart", reason)
    }

    /// Forgets an instance whose last run has ended.
    pub fn purge(&self, id: &str) -> Call<Named> {
        Call::new(self, Method::DELETE, instance(id), Repeat::Unsafe).keyed(None)
    }

    /// Forgets ended instances by filter, a bounded number per call.
    pub fn purge_matching(&self, purge: &Purge) -> Call<Purged> {
        Call::new(self, Method::POST, Path::of("/api/instances/purge"), Repeat::Unsafe).json(purge)
    }

    fn order<T>(&self, id: &str, order: &str, reason: Option<&str>) -> Call<T> {
        let body: BTreeMap<&str, &str> = reason.map(|reason| ("reason", reason)).into_iter().collect();
        Call::new(self, Method::POST, instance(id).segment(order), Repeat::Unsafe).json(&body).keyed(None)
    }
}

fn instance(id: &str) -> Path {
    Path::of(INSTANCES).segment(id)
}
