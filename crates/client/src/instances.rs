//! `/api/instances`: starting runs, looking at them, telling them something, forgetting them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::history::HistoryEvent;
use crate::pages::Pages;
use crate::retry::Repeat;

const INSTANCES: &str = "/api/instances";

/// A run to be started.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Start {
    workflow: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entity_id: Option<String>,
    #[serde(skip)]
    wait: Option<Duration>,
    #[serde(skip)]
    key: Option<String>,
}

impl Start {
    /// Of this definition, in its default version, with no input.
    pub fn of(workflow: impl Into<String>) -> Self {
        Self {
            workflow: workflow.into(),
            version: None,
            instance_id: None,
            input: None,
            correlation_id: None,
            entity_id: None,
            wait: None,
            key: None,
        }
    }

    /// In the newest version of this range.
    pub fn version(self, range: impl Into<String>) -> Self {
        Self { version: Some(range.into()), ..self }
    }

    /// Under this instance id.
    pub fn id(self, instance_id: impl Into<String>) -> Self {
        Self { instance_id: Some(instance_id.into()), ..self }
    }

    /// With this input.
    pub fn input(self, input: Value) -> Self {
        Self { input: Some(input), ..self }
    }

    /// As a part of this trace.
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// For this entity.
    pub fn entity_id(self, id: impl Into<String>) -> Self {
        Self { entity_id: Some(id.into()), ..self }
    }

    /// Answered when the run has ended, or after so long.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Recognised by this key if it comes again, also from another process. Without it every start has a new one.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }
}

/// A run that has begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The instance.
    pub instance_id: String,
    /// The run.
    pub execution_id: String,
    /// When it was taken.
    pub created_at_utc: Timestamp,
}

/// What became of a start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StartOutcome {
    /// It has ended within the wait.
    Ended(Box<Instance>),
    /// It goes on.
    Running(Started),
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Status {
    /// Taken, and has not moved yet.
    Pending,
    /// It moves, or waits for something.
    Running,
    /// It takes messages and does not move.
    Suspended,
    /// It cannot go on and was set aside.
    Parked,
    /// It ended well.
    Completed,
    /// It ended with an error.
    Failed,
    /// It was ended by an order.
    Terminated,
    /// It ended and the next run began.
    ContinuedAsNew,
    /// Of the vocabulary; no run of a JSON workflow has it.
    Canceled,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// Whether the run has ended.
    pub fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Terminated | Self::ContinuedAsNew | Self::Canceled
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names are the vocabulary itself.
        fmt::Debug::fmt(self, f)
    }
}

/// An instance and its current run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The instance.
    pub instance_id: String,
    /// The run.
    pub execution_id: String,
    /// The definition.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// What it began with.
    pub input: Value,
    /// What it ended with.
    pub output: Option<Value>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// The trace it belongs to.
    pub correlation_id: String,
    /// The entity it is about.
    pub entity_id: Option<String>,
    /// When it began.
    pub created_at_utc: Timestamp,
    /// When it moved last.
    pub last_updated_at_utc: Timestamp,
    /// Where its branches are.
    #[serde(default)]
    pub current_states: Vec<CurrentState>,
    /// Why it was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked_reason: Option<String>,
}

/// An instance as lists show it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSummary {
    /// The instance.
    pub instance_id: String,
    /// The run.
    pub execution_id: String,
    /// The definition.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// The trace it belongs to.
    pub correlation_id: Option<String>,
    /// The entity it is about.
    pub entity_id: Option<String>,
    /// When it began.
    pub created_at_utc: Timestamp,
    /// When it moved last.
    pub last_updated_at_utc: Timestamp,
    /// Why it failed, as the list has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// What goes wrong inside a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// The state that raised it.
    #[serde(default)]
    pub state: Option<String>,
    /// Whether another delivery may help.
    #[serde(default)]
    pub retryable: bool,
}

/// Where a branch is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentState {
    /// The state's path in the definition.
    pub state: String,
    /// Since when.
    pub since: Timestamp,
    /// What it waits for.
    pub waiting_for: WaitingFor,
}

/// What a branch waits for. `kind` says which of the others are there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitingFor {
    /// `nothing`, `activity`, `timer`, `event`, `child` or `branches`.
    pub kind: String,
    /// The activity's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Which delivery of it is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How many have failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<u32>,
    /// The event's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The instance that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_instance_id: Option<String>,
    /// How many branches there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// How many of them have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<u32>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

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
}

impl Client {
    /// Starts a run. Repeated safely: it has a key.
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

    /// Raises an event.
    pub fn raise(&self, id: &str, event: &str, payload: &Value) -> Call<Named> {
        let path = instance(id).segment("events").segment(event);
        Call::new(self, Method::POST, path, Repeat::Unsafe).json(payload)
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
        Call::new(self, Method::DELETE, instance(id), Repeat::Unsafe)
    }

    /// Forgets ended instances by filter, a bounded number per call.
    pub fn purge_matching(&self, purge: &Purge) -> Call<Purged> {
        Call::new(self, Method::POST, Path::of("/api/instances/purge"), Repeat::Unsafe).json(purge)
    }

    fn order<T>(&self, id: &str, order: &str, reason: Option<&str>) -> Call<T> {
        let body: BTreeMap<&str, &str> = reason.map(|reason| ("reason", reason)).into_iter().collect();
        Call::new(self, Method::POST, instance(id).segment(order), Repeat::Unsafe).json(&body)
    }
}

fn instance(id: &str) -> Path {
    Path::of(INSTANCES).segment(id)
}
