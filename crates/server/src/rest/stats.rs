//! `GET /api/stats`: the numbers of the server's instances, shards, calls and entities. Counts nothing itself.

use std::collections::BTreeMap;

use abide_store::Store;
use abide_store::public::PublicQuery;
use abide_store::rows::{Capabilities, Durability};
use abide_store::tables::public_instances::SCHEMA;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;

use super::instance_json::STATUSES;
use super::page::{self, COUNT_MAX};
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{OperationSpec, ResponseSpec};

pub(super) const SHOW: OperationSpec = OperationSpec {
    id: "showStats",
    tag: "Server",
    about: "Shows statistics of the server.",
    responses: &[ResponseSpec::enveloped::<StatsJson>(200, "The statistics.")],
    ..OperationSpec::EMPTY
};

/// Statistics of the server.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Stats")]
#[serde(rename_all = "camelCase")]
struct StatsJson {
    instances: InstanceStatsJson,
    shards: Vec<ShardStatsJson>,
    activities: ActivityStatsJson,
    entities: EntityStatsJson,
    uptime_seconds: u64,
    version: &'static str,
    store: StoreStatsJson,
}

/// Statistics of runs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "InstanceStats")]
#[serde(rename_all = "camelCase")]
struct InstanceStatsJson {
    /// The number of runs of each status, from the public table.
    by_status: BTreeMap<&'static str, usize>,
    /// A count of this size means: this many or more.
    counted_up_to: usize,
}

/// A shard on this node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShardStats")]
#[serde(rename_all = "camelCase")]
struct ShardStatsJson {
    shard: usize,
    working: bool,
    instances_in_memory: usize,
    /// Commits sent to the store since the server started.
    commits: u64,
    /// Instances with queued work.
    waiting: usize,
}

/// Activity calls of this node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ActivityStats")]
struct ActivityStatsJson {
    running: i64,
    /// Calls that wait for a permit.
    waiting: i64,
}

/// Entities on this node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EntityStats")]
struct EntityStatsJson {
    /// Operations that changed an entity, since the server started.
    operations: u64,
}

/// The store and when it acknowledges commits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StoreStats")]
struct StoreStatsJson {
    kind: &'static str,
    /// When a commit is acknowledged.
    sync: &'static str,
}

pub(super) async fn show<S: Store>(app: &App<S>, request: &mut ApiRequest) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let mut by_status = BTreeMap::new();
    for status in STATUSES {
        let query = PublicQuery::default().filter("Status", status);
        by_status.insert(*status, page::count_rows(app, &SCHEMA, query, COUNT_MAX).await?);
    }
    let node = app.node();
    let metrics = app.node().metrics();
    let shards = metrics.shards().enumerate().map(|(shard, figures)| ShardStatsJson {
        shard,
        working: figures.is_working(),
        instances_in_memory: figures.resident_instances(),
        commits: figures.commits.get(),
        waiting: figures.queued(),
    });
    let data = StatsJson {
        instances: InstanceStatsJson { by_status, counted_up_to: COUNT_MAX },
        shards: shards.collect(),
        activities: ActivityStatsJson {
            running: metrics.calls_running.get(),
            waiting: metrics.calls_waiting.get(),
        },
        entities: EntityStatsJson { operations: metrics.entity_operations.get() },
        uptime_seconds: node.uptime().as_secs(),
        version: env!("CARGO_PKG_VERSION"),
        store: StoreStatsJson::of(&node.store().capabilities()),
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

impl StoreStatsJson {
    fn of(capabilities: &Capabilities) -> Self {
        let (kind, sync) = match capabilities.durability {
            Durability::Memory => ("memory", "none"),
            Durability::Written => ("embedded", "operating-system"),
            Durability::Synced => ("embedded", "every-commit"),
        };
        Self { kind: if capabilities.shared { "shared" } else { kind }, sync }
    }
}
