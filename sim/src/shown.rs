//! The public table, and where run numbers lead, against the truth, when everything has come to rest.

use std::collections::BTreeMap;

use abide_runtime::run::RunReader;
use abide_store::public::{PublicKey, PublicRow, PublicTables, Query};
use abide_store::tables::instances::RunStatus;
use abide_store::tables::public_instances::{self, SCHEMA};
use abide_workflow::{InstanceId, RunNumber};
use serde_json::Value;

use crate::cluster::{Cluster, ready};
use crate::history::Ending;
use crate::truth::Run;

/// Every run that is kept has its row, which says what the run says, and is found by its number; nothing else has one, or is.
pub(crate) fn check(cluster: &Cluster) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rows = all(cluster);
    for (id, instance) in &cluster.truth.instances {
        for (place, run) in instance.runs.iter().enumerate() {
            let key = public_instances::key(id, run.number);
            // A number that was used again after the id was forgotten belongs to the later run.
            let again = instance.runs.iter().skip(place + 1).any(|later| later.number == run.number);
            if again {
                continue;
            }
            let row = rows.remove(&key);
            let last = place + 1 == instance.runs.len();
            let gone =
                run.status == RunStatus::Purged || last && instance.forgotten || cluster.scenario.short;
            wrong.extend(find(cluster, id, run, gone));
            match row {
                None if !gone => wrong.push(format!("{id}/{} is not shown", run.number)),
                // What a former owner wrote after the deletion goes when the id is forgotten.
                Some(_) if gone && !cluster.scenario.short && cluster.late_rows.contains(&key) => {}
                Some(row) if gone => {
                    let status = row.text("Status").unwrap_or_default();
                    wrong.push(format!("{id}/{} is gone, and shown as {status}", run.number));
                }
                Some(row) => wrong.extend(compare(id, run, &row)),
                None => {}
            }
        }
    }
    wrong.extend(rows.into_keys().map(|key| format!("{key:?} is shown and never was")));
    wrong
}

/// What is wrong with where the number of a run leads.
fn find(cluster: &Cluster, id: &str, run: &Run, gone: bool) -> Option<String> {
    let reader = RunReader { store: &*cluster.store, definitions: &*cluster.definitions };
    let name = InstanceId::new(id).ok()?;
    let partition = cluster.shards.shard_of_instance(&name).partition().ok()?;
    let found = match ready(reader.numbered(&partition, &name, Some(RunNumber(run.number)))) {
        Ok(found) => found.map(|found| found.number),
        Err(error) => return Some(format!("{id}/{}: {error}", run.number)),
    };
    let expected = (!gone).then_some(run.run);
    (found != expected).then(|| format!("{id}/{} is found as {found:?}, not as {expected:?}", run.number))
}

fn compare(id: &str, run: &Run, row: &PublicRow) -> Option<String> {
    let shown = row.text("Status").unwrap_or_default();
    let Some((end, _)) = &run.end else {
        return Some(format!("{id}/{} is shown as {shown} and has not ended", run.number));
    };
    let error: Option<Value> = row.text("Error").and_then(|error| serde_json::from_str(error).ok());
    let code = error.as_ref().and_then(|error| error.get("code")).and_then(Value::as_str);
    let expected = if let Ending::Failed(code) = end { Some(code.as_str()) } else { None };
    let right = shown == end.status().to_string() && code == expected;
    (!right).then(|| format!("{id}/{} is shown as {shown} {error:?}; it is {end:?}", run.number))
}

fn all(cluster: &Cluster) -> BTreeMap<PublicKey, PublicRow> {
    let mut rows = BTreeMap::new();
    let mut query = Query::default().limit(Query::LIMIT_MAX);
    while let Ok(page) = ready(cluster.store.query(&SCHEMA, &query)) {
        rows.extend(page.rows.into_iter().map(|row| (row.key.clone(), row)));
        if page.continuation.is_none() {
            break;
        }
        query = query.after(page.continuation);
    }
    rows
}
