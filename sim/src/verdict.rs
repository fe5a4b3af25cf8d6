//! Judges a simulation: everything acknowledged is stored and took effect once, every run ended as its definition says,
//! the public table shows it, and fsck finds nothing in the store.

use std::collections::{BTreeMap, BTreeSet};

use abide_dispatch::call_journal::CONSECUTIVE_UNANSWERED_MAX;
use abide_runtime::fsck;
use abide_runtime::request::StartedRun;
use abide_store::rows::Scan;
use abide_store::tables::TableId;
use abide_testkit::shard_driver::poll_ready;
use serde_json::{Value, json};

use crate::clients::{ClientStep, SimClient};
use crate::cluster::Cluster;
use crate::counts::SimCounts;
use crate::model::ModelInstance;
use crate::public_index_check;
use crate::run_history::{RunEnd, RunHistory};
use crate::workload::{POISONED, WIDE_ITEMS, WorkloadKind};

/// The result of a simulation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimVerdict {
    pub violations: Vec<String>,
    pub counts: SimCounts,
    /// A digest of all events.
    pub trace: u64,
}

/// Judges a quiescent cluster.
pub fn judge(cluster: &Cluster) -> SimVerdict {
    let mut violations = cluster.violations.clone();
    let mut groups: BTreeMap<&str, Vec<&SimClient>> = BTreeMap::new();
    for client in cluster.clients.iter().filter(|client| !client.is_operator) {
        groups.entry(&client.id).or_default().push(client);
        check_client(client, &mut violations);
    }
    for (id, clients) in &groups {
        match cluster.model.instances.get(*id) {
            Some(instance) => check_instance(id, instance, clients, &mut violations),
            None if clients.iter().any(|client| !client.started_runs.is_empty()) => {
                violations.push(format!("{id}: its start was acknowledged, but it never existed"));
            }
            None => {}
        }
    }
    check_ends(cluster, &groups, &mut violations);
    check_activities(cluster, &mut violations);
    violations.extend(public_index_check::check(cluster));
    if cluster.scenario.short_retention {
        check_nothing_left(cluster, &mut violations);
    }
    match poll_ready(fsck::check(&*cluster.store, &cluster.definitions, cluster.shards)) {
        Ok(report) => violations.extend(report.findings.iter().map(|finding| {
            format!(
                "fsck: {} {}: {}",
                finding.shard,
                finding.instance_id.as_deref().unwrap_or("-"),
                finding.problem
            )
        })),
        Err(error) => violations.push(format!("fsck: {error}")),
    }
    SimVerdict { violations, counts: cluster.counts, trace: cluster.trace }
}

/// The retention of every row is over: only the heads (shard ownership) and the inbound watermarks may be left.
fn check_nothing_left(cluster: &Cluster, violations: &mut Vec<String>) {
    for partition in cluster
        .shards
        .shards()
        .filter_map(|shard| Some([shard.partition().ok()?, shard.inbound_partition().ok()?]))
    {
        for partition in partition {
            let page = cluster.store.scan_now(&partition, Scan::all());
            let rows = page.map(|page| page.rows).unwrap_or_default();
            let left = rows.iter().filter_map(|row| TableId::of_key(&row.key));
            let left: BTreeSet<TableId> =
                left.filter(|table| !matches!(table, TableId::Head | TableId::InboundWatermark)).collect();
            if !left.is_empty() {
                violations.push(format!("{partition} still has rows of {left:?}"));
            }
        }
    }
}

fn check_client(client: &SimClient, violations: &mut Vec<String>) {
    let id = &client.id;
    if let Some(step) = client.next_step() {
        violations.push(format!("{id}: its client never finished step {step:?}"));
    }
    // After the idempotency window a repeat is a new start.
    let differ = |pair: &[StartedRun]| {
        let known = pair[0].idempotent_until.is_none_or(|until| pair[1].created_at <= until);
        pair[0].run_number != pair[1].run_number && known
    };
    if client.key.is_some() && client.start_replies.windows(2).any(differ) {
        violations
            .push(format!("{id}: repeats of one start returned different runs: {:?}", client.start_replies));
    }
}

/// Compares the replies to all clients of one instance with its runs.
fn check_instance(id: &str, instance: &ModelInstance, clients: &[&SimClient], violations: &mut Vec<String>) {
    let mut begun = BTreeSet::new();
    for run in clients.iter().flat_map(|client| &client.started_runs) {
        // Run numbers may start again once an instance was deleted.
        if !begun.insert(run) && !instance.deleted {
            violations.push(format!("{id}: run {run} was started by two requests"));
        }
    }
    let unconfirmed: u32 = clients.iter().map(|client| client.unconfirmed_starts).sum();
    let ended = || instance.runs.iter().filter_map(|run| run.outcome.as_ref());
    let ends: Vec<&RunEnd> = ended().map(|(end, _)| end).collect();
    let began = instance.runs.len() - ends.iter().filter(|end| ***end == RunEnd::Continued).count();
    if began > begun.len() + unconfirmed as usize {
        violations.push(format!(
            "{id}: {began} runs began; {} starts were acknowledged and {unconfirmed} got no reply",
            begun.len()
        ));
    }
    let accepted =
        |step: ClientStep| clients.iter().any(|client| client.acknowledged_controls.contains(&step));
    let terminates = accepted(ClientStep::Terminate) || accepted(ClientStep::TerminateTree);
    if terminates && !ends.contains(&&RunEnd::Terminated) {
        violations.push(format!("{id}: a terminate was acknowledged, but its runs ended with {ends:?}"));
    }
    if accepted(ClientStep::Rewind) && ended().all(|(_, history)| history.rewinds == 0) {
        violations.push(format!("{id}: a rewind was acknowledged, but no run was rewound"));
    }
    // If there was only one run, its output has all events.
    if began == 1
        && let Some(RunEnd::Completed(output)) = ends.last()
    {
        clients.iter().for_each(|client| check_events(client, output, violations));
    }
}

/// Checks that every run has ended as its definition says.
fn check_ends(cluster: &Cluster, groups: &BTreeMap<&str, Vec<&SimClient>>, violations: &mut Vec<String>) {
    for (id, instance) in &cluster.model.instances {
        let root = &instance.root_instance;
        let Some(clients) = groups.get(root.as_str()) else {
            violations.push(format!("{id}: no client started it"));
            continue;
        };
        let terminates = [ClientStep::Terminate, ClientStep::TerminateTree];
        let may_terminate =
            clients.iter().any(|client| terminates.into_iter().any(|step| client.may_have_done(step)));
        let may_purge = clients.iter().any(|client| client.may_have_done(ClientStep::Purge));
        if instance.purged && !may_purge && !cluster.scenario.short_retention {
            violations.push(format!("{id}: it was purged without a request"));
        }
        for run in &instance.runs {
            let execution = format!("{id}/{}", run.number);
            let Some((end, history)) = &run.outcome else {
                violations.push(format!("{id}: run {} never ended: {:?}", run.number, run.status));
                continue;
            };
            let right = match end {
                RunEnd::Terminated => may_terminate || cluster.scenario.poisoned && id == POISONED,
                // So many crashes in a row are rare; failing the run is then correct.
                RunEnd::Failed(code) if code == "Poison" => cluster
                    .model
                    .recorded_attempts
                    .get(&execution)
                    .is_some_and(|recorded| *recorded >= CONSECUTIVE_UNANSWERED_MAX),
                RunEnd::Failed(code) if code == "ServerEnded" => {
                    // The id of a child on another shard does not tell its parent, but such a child never began.
                    let unknown = |named: &str| !cluster.model.instances.contains_key(named);
                    let mut named = cluster.model.named_at_end.iter();
                    named.any(|named| is_child_of(named, id) || unknown(named))
                }
                RunEnd::Continued => clients.iter().any(|client| client.kind == WorkloadKind::Loop),
                end if root != id => is_child_output(root, end),
                end => clients.first().is_some_and(|client| is_expected(client, end, history)),
            };
            if !right {
                violations.push(format!("{id}: run {} ended with {end:?}", run.number));
            }
        }
    }
}

fn is_child_of(id: &str, parent: &str) -> bool {
    id.strip_prefix(parent).is_some_and(|rest| rest.starts_with('~'))
}

fn is_child_output(parent: &str, end: &RunEnd) -> bool {
    [1, 2].iter().any(|n| *end == RunEnd::Completed(json!({"did": n, "for": parent})))
}

fn is_expected(client: &SimClient, end: &RunEnd, history: &RunHistory) -> bool {
    let did = |n: u32| json!({"did": n, "for": client.id});
    let all = |count: u32| Value::Array((1..=count).map(did).collect());
    let failed = |code: &str| *end == RunEnd::Failed(code.to_owned());
    let output = if let RunEnd::Completed(output) = end { output } else { &Value::Null };
    match client.kind {
        WorkloadKind::Steps => *output == all(3),
        WorkloadKind::Map => *output == all(5),
        WorkloadKind::Wide => *output == all(WIDE_ITEMS),
        WorkloadKind::Timer => *output == did(1),
        WorkloadKind::Parent => *output == all(2),
        WorkloadKind::Compensated => failed("Undone"),
        WorkloadKind::WorkflowTimeout => failed("Timeout"),
        // Only a control operation ends it.
        WorkloadKind::Tree => false,
        WorkloadKind::Rewound => {
            if history.rewinds > 0 {
                *output == all(2)
            } else {
                failed("Refused")
            }
        }
        WorkloadKind::EventTimeout => {
            let raised = client.events.iter().any(|event| event.acknowledged || event.unconfirmed);
            *output == json!("late") || *output == json!("in time") && raised
        }
        WorkloadKind::TaskTimeout => *output == did(1) || *output == json!("late"),
        // The events themselves are compared in `check_events`, where all of them are known.
        WorkloadKind::Events | WorkloadKind::Loop => output.is_array(),
    }
}

/// Events are consumed in the order in which they were raised, and each acknowledged event once. An event whose reply
/// was lost may be consumed more often.
fn check_events(client: &SimClient, output: &Value, violations: &mut Vec<String>) {
    if !matches!(client.kind, WorkloadKind::Events | WorkloadKind::Loop) || client.events.is_empty() {
        return;
    }
    let consumed: Vec<String> = output.as_array().into_iter().flatten().map(ToString::to_string).collect();
    let unconfirmed = client.events.iter().any(|event| event.unconfirmed);
    for event in &client.events {
        let payload = event.payload.to_string();
        let count = consumed.iter().filter(|consumed| **consumed == payload).count();
        let wrong = !unconfirmed && event.acknowledged && count != 1;
        if wrong || event.refused && !event.unconfirmed && count > 0 {
            violations.push(format!("{}: event {payload} was consumed {count} times", client.id));
        }
    }
    let order: Vec<String> = client.events.iter().map(|event| event.payload.to_string()).collect();
    if !unconfirmed && order != consumed {
        violations.push(format!("{}: events were consumed in the order {consumed:?}", client.id));
    }
}

/// How often this run was rewound.
fn rewinds(cluster: &Cluster, execution: &str) -> usize {
    let Some((id, number)) = execution.rsplit_once('/') else { return 0 };
    let runs = cluster.model.instances.get(id).into_iter().flat_map(|instance| &instance.runs);
    let ended = runs.filter(|run| run.number.to_string() == number).filter_map(|run| run.outcome.as_ref());
    ended.map(|(_, history)| history.rewinds as usize).sum()
}

/// Every key belongs to one piece of work of one run, and each of its attempts has a different number. The history of
/// the run has every call, and none is completed in it that never took effect.
fn check_activities(cluster: &Cluster, violations: &mut Vec<String>) {
    let mut effects: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for (key, work) in &cluster.activities.work {
        let short = &key[..8];
        if work.executions.len() > 1 || work.inputs.len() > 1 {
            violations.push(format!(
                "key {short} was used by {:?} with the inputs {:?}",
                work.executions, work.inputs
            ));
        }
        let mut attempts = work.attempts.clone();
        attempts.sort_unstable();
        // A rewind makes a call of unknown outcome again under its key, from attempt 0.
        let allowed = 1 + work.executions.first().map_or(0, |execution| rewinds(cluster, execution));
        if attempts.chunk_by(|a, b| a == b).any(|same| same.len() > allowed) {
            violations.push(format!(
                "key {short} ({}) was sent with the attempt numbers {:?}",
                work.activity, work.attempts
            ));
        }
        let (Some(execution), Some(input)) = (work.executions.first(), work.inputs.first()) else { continue };
        *effects.entry((execution, &work.activity, input)).or_default() += work.effects as usize;
    }
    for (id, instance) in &cluster.model.instances {
        for run in &instance.runs {
            let Some((_, history)) = &run.outcome else { continue };
            let execution = format!("{id}/{}", run.number);
            let mut recorded: BTreeSet<(&str, &str)> = BTreeSet::new();
            for call in history.calls.values() {
                let count = effects.get(&(&execution, &call.activity, &call.input)).copied().unwrap_or(0);
                if call.completed > 0 && count == 0 {
                    violations.push(format!(
                        "{execution}: {} is completed in the history, but never took effect",
                        call.activity
                    ));
                }
                if count > 1 + history.rewinds as usize {
                    violations.push(format!("{execution}: {} took effect {count} times", call.activity));
                }
                recorded.insert((&call.activity, &call.input));
            }
            let unrecorded = effects.iter().filter(|((of, activity, input), _)| {
                *of == execution && !recorded.contains(&(*activity, *input))
            });
            for ((_, activity, _), _) in unrecorded {
                violations.push(format!("{execution}: {activity} was called, but is not in the history"));
            }
        }
    }
}
