//! The server itself: whether it lives, what it counts, what it can call, what stands still.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::error::ClientError;
use crate::pages::Pages;

/// How the server is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Health {
    /// `alive` or `ready`.
    pub health: String,
}

/// What the server counts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Instances.
    pub instances: InstanceStats,
    /// Shards.
    pub shards: Vec<ShardStats>,
    /// Activity calls.
    pub activities: ActivityStats,
    /// Entities.
    #[serde(default)]
    pub entities: EntityStats,
    /// Seconds since the server began.
    pub uptime_seconds: u64,
    /// The server's version.
    pub version: String,
    /// Where everything is kept.
    pub store: StoreStats,
}

/// Instances, counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStats {
    /// How many of each status.
    pub by_status: BTreeMap<String, u64>,
    /// A number as large as this means: so many or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_up_to: Option<u64>,
}

/// A shard, counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardStats {
    /// Which.
    pub shard: u32,
    /// Whether it is at work.
    pub working: bool,
    /// Instances in memory.
    pub instances_in_memory: u64,
    /// Commits it has sent to the store.
    pub commits: u64,
    /// Instances with work that waits.
    pub waiting: u64,
}

/// Activity calls, counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ActivityStats {
    /// Under way.
    pub running: u64,
    /// Waiting for their turn.
    pub waiting: u64,
}

/// Entities, counted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EntityStats {
    /// Operations done.
    pub operations: u64,
}

/// Where everything is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoreStats {
    /// Which backend.
    pub kind: String,
    /// When a commit is acknowledged.
    pub sync: String,
}

/// An activity that definitions may name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// Its name.
    pub name: String,
    /// What it is about.
    #[serde(default)]
    pub category: Option<String>,
    /// How it is called.
    #[serde(default)]
    pub transport: Option<String>,
    /// Who says so: the server itself, its configuration or whoever declared it by the interface.
    #[serde(default)]
    pub source: Option<String>,
    /// Which version, if it was declared by the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Where it is, if another service runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<String>,
    /// Why it cannot be called as the server is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// Whether its target is asked: `closed`, `open` or `halfOpen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<String>,
}

/// A run that has been alive for longer than it should be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stuck {
    /// The instance.
    pub instance_id: String,
    /// The definition.
    pub workflow: String,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
    /// When it began.
    #[serde(default)]
    pub created_at_utc: Option<Timestamp>,
    /// How long past its time.
    pub stuck_for_seconds: u64,
    /// What its branches wait for.
    #[serde(default)]
    pub waiting_for: Vec<StuckAt>,
}

/// Where a branch of a stuck run is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StuckAt {
    /// The state's path in the definition.
    pub state: String,
    /// What it waits for: as [`crate::WaitingFor::kind`].
    pub kind: String,
    /// Since when.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The event's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// The activity's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Which delivery of it is out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The instance that was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Client {
    /// Whether the server lives.
    pub fn health(&self) -> Call<Health> {
        Call::get(self, Path::of("/healthz"))
    }

    /// What time it is at the server.
    pub async fn server_time(&self) -> Result<Timestamp, ClientError> {
        #[derive(Deserialize)]
        struct Stamped {
            timestamp: Timestamp,
        }
        let answer = Call::<Health>::get(self, Path::of("/healthz")).exchange().await?;
        let stamped: Result<Stamped, _> = serde_json::from_slice(&answer.body);
        stamped.map(|stamped| stamped.timestamp).map_err(|error| self.unexpected(&answer, &error.to_string()))
    }

    /// Whether the server can do what it is asked; refused with the reason if not.
    pub fn readiness(&self) -> Call<Health> {
        Call::get(self, Path::of("/readyz"))
    }

    /// What the server counts.
    pub fn stats(&self) -> Call<Stats> {
        Call::get(self, Path::of("/api/stats"))
    }

    /// Runs that have been alive for longer than they should be.
    pub fn stuck(&self) -> Pages<Stuck> {
        Pages::new(self, Path::of("/api/stuck"))
    }

    /// Activities that definitions may name.
    pub fn activities(&self) -> Pages<Activity> {
        Pages::new(self, Path::of("/api/activities"))
    }

    /// Counters and gauges in Prometheus's text format.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let answer = Call::<Value>::get(self, Path::of("/metrics")).exchange().await?;
        let text = std::str::from_utf8(&answer.body);
        text.map(str::to_owned).map_err(|error| self.unexpected(&answer, &error.to_string()))
    }

    /// The description of the whole interface.
    pub async fn openapi(&self) -> Result<Value, ClientError> {
        let answer = Call::<Value>::get(self, Path::of("/api/openapi.json")).exchange().await?;
        serde_json::from_slice(&answer.body).map_err(|error| self.unexpected(&answer, &error.to_string()))
    }
}
