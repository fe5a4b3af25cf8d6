//! What a simulation must have come to: everything acknowledged is there, once in effect, every run ended as its definition says, and the
//! store is in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_runtime::fsck;
use abide_runtime::placement::ShardId;
use abide_runtime::run::RunReader;
use abide_store::rows::Batch;
use abide_store::tables::instances::{Instance as InstanceRow, RunStatus};
use abide_store::tables::{Table, decode, dispatches};
use abide_workflow::{InstanceId, Outcome, Status};
use serde_json::{Value, json};

use crate::clients::Client;
use crate::cluster::{Cluster, Counts, ready};
use crate::workload::Kind;

/// What came of a simulation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What is wrong.
    pub violations: Vec<String>,
    /// What happened how often.
    pub counts: Counts,
    /// A digest of everything that happened.
    pub trace: u64,
}

/// Looks at a commit as it is applied: a run that its row calls ended has no call left.
pub(crate) fn watch(cluster: &mut Cluster, shard: ShardId, batch: &Batch) {
    let Ok(partition) = shard.partition() else { return };
    for write in &batch.writes {
        if Table::of(&write.key) != Some(Table::Instance) {
            continue;
        }
        let Some(row) = write.value.as_ref().and_then(|value| decode::<InstanceRow>(value).ok()) else {
            continue;
        };
        let over = matches!(row.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Terminated);
        let calls = cluster.store.scan_now(&partition, dispatches::of_run(row.run));
        if over && calls.is_ok_and(|page| !page.rows.is_empty()) {
            cluster.seen.push(format!("run {} is {:?} while a call is out", row.run, row.status));
        }
    }
}

/// Whether every run that clients know of has ended.
pub(crate) fn all_ended(cluster: &Cluster) -> bool {
    cluster.clients.iter().filter(|client| client.started.is_some()).all(|client| {
        let Ok(id) = InstanceId::new(client.id.clone()) else { return false };
        let stored = read(cluster, &id);
        stored.is_none_or(|stored| stored.instance.status().is_terminal())
    })
}

/// Judges a cluster that has come to rest.
pub fn judge(cluster: &Cluster) -> Verdict {
    let mut violations = cluster.seen.clone();
    for client in &cluster.clients {
        check_client(cluster, client, &mut violations);
    }
    check_outside(cluster, &mut violations);
    match ready(fsck::check(&*cluster.store, &cluster.definitions, cluster.shards)) {
        Ok(report) => violations.extend(report.findings.iter().map(|finding| {
            format!(
                "fsck: {} {}: {}",
                finding.shard,
                finding.instance_id.as_deref().unwrap_or("-"),
                finding.what
            )
        })),
        Err(error) => violations.push(format!("fsck: {error}")),
    }
    Verdict { violations, counts: cluster.counts, trace: cluster.trace }
}

fn read(cluster: &Cluster, id: &InstanceId) -> Option<abide_runtime::run::StoredRun> {
    let reader = RunReader { store: &*cluster.store, definitions: &*cluster.definitions };
    let partition = cluster.shards.shard_of_instance(id).partition().ok()?;
    ready(reader.run(&partition, id)).ok()?.ok()?
}

fn check_client(cluster: &Cluster, client: &Client, violations: &mut Vec<String>) {
    let id = &client.id;
    if client.next != crate::clients::Step::Done {
        violations.push(format!("{id}: its client never got through ({:?})", client.next));
    }
    if client.told_runs.windows(2).any(|pair| pair[0] != pair[1]) {
        violations.push(format!("{id}: one start was told different runs: {:?}", client.told_runs));
    }
    let Ok(name) = InstanceId::new(id.clone()) else { return };
    let Some(stored) = read(cluster, &name) else {
        if client.started.is_some() {
            violations.push(format!("{id}: its start was acknowledged, and it is not there"));
        }
        return;
    };
    if let Some(run) = client.started
        && client.kind != Kind::Loop
        // A start without a key whose answer was lost may arrive after the run has ended, and then begins another.
        && (client.keyed || !client.start_unsure)
        && stored.row.run_number != run
    {
        violations.push(format!("{id}: run {run} was acknowledged, run {} is there", stored.row.run_number));
    }
    let status = stored.instance.status();
    if !status.is_terminal() {
        let states = stored.instance.current_states(&stored.plan);
        violations.push(format!("{id}: it never ended: {status}, {states:?}"));
        return;
    }
    if client.terminated && status == Status::Running {
        violations.push(format!("{id}: its end was acknowledged, and it is {status}"));
    }
    check_history(cluster, &stored, id, violations);
    if status == Status::Terminated && client.terminates {
        return;
    }
    let outcome = stored.instance.outcome();
    check_outcome(client, outcome, violations);
}

fn check_outcome(client: &Client, outcome: Option<&Outcome>, violations: &mut Vec<String>) {
    let id = &client.id;
    let did = |n: u32| json!({"did": n, "for": id});
    let expected = match client.kind {
        Kind::Steps => json!([did(1), did(2), did(3)]),
        Kind::Map => json!([did(1), did(2), did(3), did(4), did(5)]),
        Kind::Timer => did(1),
        Kind::Parent => json!([did(1), did(2)]),
        Kind::Undone => {
            if !matches!(outcome, Some(Outcome::Failed(failure)) if failure.code == "Undone") {
                violations.push(format!("{id}: it ended with {outcome:?}"));
            }
            return;
        }
        Kind::Patience | Kind::Events | Kind::Loop => Value::Null,
    };
    let Some(Outcome::Completed(output)) = outcome else {
        violations.push(format!("{id}: it ended with {outcome:?}"));
        return;
    };
    match client.kind {
        Kind::Events | Kind::Loop => check_events(client, output, violations),
        Kind::Patience => {
            let in_time = **output == json!("in time");
            let acknowledged = client.events.iter().any(|event| event.acknowledged);
            let sure = client.events.iter().all(|event| !event.unsure);
            if in_time && !acknowledged && sure {
                violations.push(format!("{id}: it took an event nobody sent"));
            }
        }
        _ if **output != expected => {
            violations.push(format!("{id}: its output is {output}, not {expected}"));
        }
        _ => {}
    }
}

/// Events are taken in the order they were raised, each acknowledged one once; one whose answer was lost may be there more often.
fn check_events(client: &Client, output: &Arc<Value>, violations: &mut Vec<String>) {
    let taken: Vec<&Value> = output.as_array().map(|all| all.iter().collect()).unwrap_or_default();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for event in &taken {
        *counts.entry(event.to_string()).or_default() += 1;
    }
    let unsure = client.events.iter().any(|event| event.unsure);
    for event in &client.events {
        let count = counts.get(&event.payload.to_string()).copied().unwrap_or(0);
        let wrong = if unsure { false } else { event.acknowledged && count != 1 };
        if wrong || event.refused && !event.unsure && count > 0 {
            violations.push(format!("{}: event {} was taken {count} times", client.id, event.payload));
        }
    }
    if !unsure {
        let order: Vec<String> = client.events.iter().map(|event| event.payload.to_string()).collect();
        let taken: Vec<String> = taken.iter().map(|event| event.to_string()).collect();
        if order != taken {
            violations.push(format!("{}: events came as {taken:?}", client.id));
        }
    }
}

/// Each call and each child was answered at most once; what was scheduled was answered.
fn check_history(
    cluster: &Cluster,
    stored: &abide_runtime::run::StoredRun,
    id: &str,
    violations: &mut Vec<String>,
) {
    let Ok(name) = InstanceId::new(id.to_owned()) else { return };
    let Ok(partition) = cluster.shards.shard_of_instance(&name).partition() else { return };
    let mut ends: BTreeMap<u64, u32> = BTreeMap::new();
    let mut next = Some(abide_store::tables::pages::of_run(stored.row.run));
    while let Some(scan) = next {
        let Ok(page) = cluster.store.scan_now(&partition, scan) else { return };
        for row in page.rows {
            let Ok(page) = decode::<abide_store::tables::pages::Page>(&row.value) else { continue };
            let events: Vec<Value> = serde_json::from_slice(&page.events).unwrap_or_default();
            for event in events {
                let kind = event.get("eventType").and_then(Value::as_str).unwrap_or_default();
                if kind == "SubOrchestrationInstanceCompleted" || kind == "SubOrchestrationInstanceFailed" {
                    let command = event.get("command").and_then(Value::as_u64).unwrap_or(0);
                    *ends.entry(command).or_default() += 1;
                }
            }
        }
        next = page.next;
    }
    for (command, count) in ends {
        if count > 1 {
            violations.push(format!("{id}: the end of child {command} was told {count} times"));
        }
    }
}

/// Every key is one piece of work of one run; every delivery of it had a number of its own.
fn check_outside(cluster: &Cluster, violations: &mut Vec<String>) {
    for (key, work) in &cluster.outside.work {
        let short = &key[..8];
        if work.executions.len() > 1 || work.inputs.len() > 1 {
            violations.push(format!("key {short} was used by {:?} with {:?}", work.executions, work.inputs));
        }
        let mut attempts = work.attempts.clone();
        attempts.sort_unstable();
        if attempts.windows(2).any(|pair| pair[0] == pair[1]) {
            violations.push(format!("key {short} ({}) was delivered as {:?}", work.activity, work.attempts));
        }
    }
}
