//! `GET /api/stats`: what the server has and does, in numbers.

use std::collections::BTreeMap;

use abide_runtime::hands::Store;
use abide_store::public::Query;
use abide_store::rows::{Capabilities, Durability};
use abide_store::tables::public_instances::SCHEMA;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::instance_json::STATUSES;
use super::page::{self, COUNTED_MAX};
use crate::app::App;
use crate::asked::Asked;
use crate::error::ApiError;
use crate::openapi::{Answer, Operation};

pub(super) const SHOW: Operation = Operation {
    id: "showStats",
    tag: "Server",
    about: "Shows what the server has and does, in numbers.",
    answers: &[Answer::data::<StatsJson>(200, "The numbers.")],
    ..Operation::NONE
};

/// The server in numbers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Stats")]
#[serde(rename_all = "camelCase")]
struct StatsJson {
    instances: InstancesJson,
    shards: Vec<ShardJson>,
    activities: ActivitiesJson,
    entities: EntitiesJson,
    uptime_seconds: u64,
    version: &'static str,
    store: StoreJson,
}

/// Runs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "InstanceStats")]
#[serde(rename_all = "camelCase")]
struct InstancesJson {
    /// How many of each status, from the public table.
    by_status: BTreeMap<&'static str, usize>,
    /// A number that is as large as this means: so many or more.
    counted_up_to: usize,
}

/// A shard on this node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShardStats")]
#[serde(rename_all = "camelCase")]
struct ShardJson {
    shard: usize,
    working: bool,
    instances_in_memory: usize,
    /// Commits it has sent to the store since the server began.
    commits: u64,
    /// Instances with work that waits.
    waiting: usize,
}

/// Activity calls of this node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityStats")]
struct ActivitiesJson {
    running: i64,
    /// Calls that wait for others to end.
    waiting: i64,
}

/// Entities on this node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EntityStats")]
struct EntitiesJson {
    /// Operations that changed one, since the server began.
    operations: u64,
}

/// Where everything is kept.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StoreStats")]
struct StoreJson {
    kind: &'static str,
    /// When a commit is acknowledged.
    sync: &'static str,
}

/// Shows them.
pub(super) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let mut by_status = BTreeMap::new();
    for status in STATUSES {
        let query = Query::default().equal("Status", status);
        by_status.insert(*status, page::count(app, &SCHEMA, query, COUNTED_MAX).await?);
    }
    let (node, metrics) = (app.node(), app.node().metrics());
    let shards = metrics.shards().enumerate().map(|(shard, figures)| ShardJson {
        shard,
        working: figures.working(),
        instances_in_memory: figures.instances_in_memory(),
        commits: figures.commits.get(),
        waiting: figures.waiting(),
    });
    let data = StatsJson {
        instances: InstancesJson { by_status, counted_up_to: COUNTED_MAX },
        shards: shards.collect(),
        activities: ActivitiesJson {
            running: metrics.calls_running.get(),
            waiting: metrics.calls_waiting.get(),
        },
        entities: EntitiesJson { operations: metrics.operated.get() },
        uptime_seconds: node.uptime().as_secs(),
        version: env!("CARGO_PKG_VERSION"),
        store: StoreJson::of(&node.store().capabilities()),
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

impl StoreJson {
    fn of(capabilities: &Capabilities) -> Self {
        let (kind, sync) = match capabilities.durability {
            Durability::Memory => ("memory", "none"),
            Durability::Written => ("embedded", "operating-system"),
            Durability::Synced => ("embedded", "every-commit"),
        };
        Self { kind: if capabilities.shared { "shared" } else { kind }, sync }
    }
}
