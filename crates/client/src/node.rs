//! The server itself: its health, its statistics, the activities it can call and the stuck runs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::ApiPath;
use crate::calls::HoldView;
use crate::client::Client;
use crate::error::ClientError;
use crate::pages::Pages;
use crate::request::ClientRequest;

/// The health of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeHealth {
    /// `alive` or `ready`.
    pub health: String,
}

/// The statistics of the server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStats {
    pub instances: InstanceStats,
    pub shards: Vec<ShardStats>,
    pub activities: ActivityStats,
    #[serde(default)]
    pub entities: EntityStats,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// The server's version.
    pub version: String,
    pub store: StoreStats,
}

/// The numbers of instances.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStats {
    /// The number of instances of each status.
    pub by_status: BTreeMap<String, u64>,
    /// The limit of counting: a number as large as this means "so many or more".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_up_to: Option<u64>,
}

/// The statistics of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardStats {
    /// The number of the shard.
    pub shard: u32,
    /// True if the shard is active.
    pub working: bool,
    /// Instances in memory.
    pub instances_in_memory: u64,
    /// Commits it has sent to the store.
    pub commits: u64,
    /// Instances with queued work.
    pub waiting: u64,
}

/// The numbers of activity calls.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ActivityStats {
    /// Calls in flight.
    pub running: u64,
    /// Calls that wait for a permit.
    pub waiting: u64,
}

/// The statistics of entities.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EntityStats {
    /// The number of executed operations.
    pub operations: u64,
}

/// The store of the server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreStats {
    pub kind: String,
    /// When the store acknowledges a commit.
    pub sync: String,
}

/// An activity that definitions may use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub name: String,
    #[serde(default)]
    pub category: Option<String>,
    /// The transport by which it is called.
    #[serde(default)]
    pub transport: Option<String>,
    /// The origin of the declaration: the server itself, its configuration or the API.
    #[serde(default)]
    pub source: Option<String>,
    /// The version of a declaration made through the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Its URL, if another service runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The schema of its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The schema of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The activity that compensates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<String>,
    /// Why the server cannot call it in its present configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// The circuit breaker of its target: `closed`, `open` or `halfOpen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<String>,
}

/// A run that has not ended in the time it should.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StuckRun {
    pub instance_id: String,
    pub workflow: String,
    #[serde(default)]
    pub version: Option<String>,
    #[serde(default)]
    pub created_at_utc: Option<Timestamp>,
    /// How long the run is overdue.
    pub stuck_for_seconds: u64,
    /// The states its branches wait in.
    #[serde(default)]
    pub waiting_for: Vec<StuckState>,
}

/// A state in which a branch of a stuck run waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StuckState {
    /// The state's path in the definition.
    pub state: String,
    /// The kind of wait, one of [`crate::WaitingFor::kind`].
    pub kind: String,
    /// When the branch entered the state.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The event's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The activity's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// The number of the attempt in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The instance of the child run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// When a timer fires, or an event times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What holds the call back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HoldView>,
}

impl Client {
    /// Checks that the server responds.
    pub fn health(&self) -> ClientRequest<NodeHealth> {
        ClientRequest::get(self, ApiPath::new("/healthz"))
    }

    /// The clock of the server.
    pub async fn server_time(&self) -> Result<Timestamp, ClientError> {
        #[derive(Deserialize)]
        struct TimestampedBody {
            timestamp: Timestamp,
        }
        let response = ClientRequest::<NodeHealth>::get(self, ApiPath::new("/healthz")).exchange().await?;
        let body: Result<TimestampedBody, _> = serde_json::from_slice(&response.body);
        body.map(|body| body.timestamp)
            .map_err(|error| self.unexpected_response(&response, &error.to_string()))
    }

    /// Checks that the server can do its work. If it cannot, it refuses with the reason.
    pub fn readiness(&self) -> ClientRequest<NodeHealth> {
        ClientRequest::get(self, ApiPath::new("/readyz"))
    }

    pub fn stats(&self) -> ClientRequest<NodeStats> {
        ClientRequest::get(self, ApiPath::new("/api/stats"))
    }

    /// Lists runs that have not ended in the time they should.
    pub fn stuck_runs(&self) -> Pages<StuckRun> {
        Pages::new(self, ApiPath::new("/api/stuck"))
    }

    /// Lists the activities that definitions may use.
    pub fn activities(&self) -> Pages<Activity> {
        Pages::new(self, ApiPath::new("/api/activities"))
    }

    /// Counters and gauges in Prometheus's text format.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let response = ClientRequest::<Value>::get(self, ApiPath::new("/metrics")).exchange().await?;
        let text = std::str::from_utf8(&response.body);
        text.map(str::to_owned).map_err(|error| self.unexpected_response(&response, &error.to_string()))
    }

    /// The OpenAPI description of the API.
    pub async fn openapi(&self) -> Result<Value, ClientError> {
        let response =
            ClientRequest::<Value>::get(self, ApiPath::new("/api/openapi.json")).exchange().await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| self.unexpected_response(&response, &error.to_string()))
    }
}
