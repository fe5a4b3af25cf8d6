//! Compares the public table, and the lookup of runs by number, with the model of a quiescent cluster.

use std::collections::BTreeMap;

use abide_runtime::run::RunReader;
use abide_store::public::{PublicKey, PublicQuery, PublicRow, PublicTables};
use abide_store::tables::instances::RunStatus;
use abide_store::tables::public_instances::{self, SCHEMA};
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::InstanceId;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::model::ModelRun;
use crate::run_history::RunEnd;

/// Every retained run has a public row with its state and is found by its run number. No other run has a row or is
/// found.
pub(crate) fn check(cluster: &Cluster) -> Vec<String> {
    let mut violations = Vec::new();
    let mut rows = public_rows(cluster);
    for (id, instance) in &cluster.model.instances {
        for (place, run) in instance.runs.iter().enumerate() {
            let key = public_instances::key(id, run.number);
            // A run number that was used again after the instance was deleted belongs to the later run.
            let again = instance.runs.iter().skip(place + 1).any(|later| later.number == run.number);
            if again {
                continue;
            }
            let row = rows.remove(&key);
            let last = place + 1 == instance.runs.len();
            let gone = run.status == RunStatus::Purged
                || last && instance.deleted
                || cluster.scenario.short_retention;
            violations.extend(check_run_number(cluster, id, run, gone));
            match row {
                None if !gone => violations.push(format!("{id}/{} has no public row", run.number)),
                // A row that a former owner wrote after the deletion is removed when the instance is deleted.
                Some(_) if gone && !cluster.scenario.short_retention && cluster.stale_rows.contains(&key) => {
                }
                Some(row) if gone => {
                    let status = row.text("Status").unwrap_or_default();
                    violations.push(format!(
                        "{id}/{} was deleted, but has a public row with status {status}",
                        run.number
                    ));
                }
                Some(row) => violations.extend(compare_row(id, run, &row)),
                None => {}
            }
        }
    }
    violations.extend(
        rows.into_keys().map(|key| format!("{key:?} has a public row, but no such run ever existed")),
    );
    violations
}

/// Describes a run that is not found by its number, or is found although it was deleted.
fn check_run_number(cluster: &Cluster, id: &str, run: &ModelRun, gone: bool) -> Option<String> {
    let reader = RunReader { store: &*cluster.store, definitions: &*cluster.definitions };
    let name = InstanceId::new(id).ok()?;
    let partition = cluster.shards.shard_of_instance(&name).partition().ok()?;
    let found = match poll_ready(reader.find_run(&partition, &name, Some(run.number))) {
        Ok(found) => found.map(|found| found.run_id),
        Err(error) => return Some(format!("{id}/{}: {error}", run.number)),
    };
    let expected = (!gone).then_some(run.run_id);
    (found != expected).then(|| {
        format!("{id}/{}: the lookup by number returned {found:?}; expected {expected:?}", run.number)
    })
}

fn compare_row(id: &str, run: &ModelRun, row: &PublicRow) -> Option<String> {
    let shown = row.text("Status").unwrap_or_default();
    let Some((end, _)) = &run.outcome else {
        return Some(format!("{id}/{} is public as {shown}, but has not ended", run.number));
    };
    let error: Option<Value> = row.text("Error").and_then(|error| serde_json::from_str(error).ok());
    let code = error.as_ref().and_then(|error| error.get("code")).and_then(Value::as_str);
    let expected = if let RunEnd::Failed(code) = end { Some(code.as_str()) } else { None };
    let right = shown == end.status().to_string() && code == expected;
    (!right).then(|| format!("{id}/{} is public as {shown} {error:?}; its history says {end:?}", run.number))
}

fn public_rows(cluster: &Cluster) -> BTreeMap<PublicKey, PublicRow> {
    let mut rows = BTreeMap::new();
    let mut query = PublicQuery::default().limit(PublicQuery::LIMIT_MAX);
    while let Ok(page) = poll_ready(cluster.store.query(&SCHEMA, &query)) {
        rows.extend(page.rows.into_iter().map(|row| (row.key.clone(), row)));
        if page.continuation.is_none() {
            break;
        }
        query = query.continue_from(page.continuation);
    }
    rows
}
