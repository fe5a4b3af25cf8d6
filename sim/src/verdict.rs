//! What a simulation must have come to: everything acknowledged is there, once in effect, every run ended as its definition says, the public
//! table shows it, and the store is in order.

use std::collections::{BTreeMap, BTreeSet};

use abide_dispatch::journal::UNANSWERED_MAX;
use abide_runtime::fsck;
use abide_runtime::request::Started;
use abide_store::rows::Scan;
use abide_store::tables::Table;
use serde_json::{Value, json};

use crate::clients::{Client, Step};
use crate::cluster::{Cluster, ready};
use crate::counts::Counts;
use crate::history::{Ending, Story};
use crate::shown;
use crate::truth::Instance;
use crate::workload::{Kind, WIDE};

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

/// Judges a cluster that has come to rest.
pub fn judge(cluster: &Cluster) -> Verdict {
    let mut violations = cluster.seen.clone();
    let mut groups: BTreeMap<&str, Vec<&Client>> = BTreeMap::new();
    for client in &cluster.clients {
        groups.entry(&client.id).or_default().push(client);
        check_client(client, &mut violations);
    }
    for (id, clients) in &groups {
        match cluster.truth.instances.get(*id) {
            Some(instance) => check_instance(id, instance, clients, &mut violations),
            None if clients.iter().any(|client| !client.begun.is_empty()) => {
                violations.push(format!("{id}: its start was acknowledged, and it never was"));
            }
            None => {}
        }
    }
    check_ends(cluster, &groups, &mut violations);
    check_outside(cluster, &mut violations);
    violations.extend(shown::check(cluster));
    if cluster.scenario.short {
        check_nothing_left(cluster, &mut violations);
    }
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

/// Everything has been kept long enough: what is left is who owns the shards, and what they took from each other.
fn check_nothing_left(cluster: &Cluster, violations: &mut Vec<String>) {
    for partition in
        cluster.shards.shards().filter_map(|shard| Some([shard.partition().ok()?, shard.inbox().ok()?]))
    {
        for partition in partition {
            let page = cluster.store.scan_now(&partition, Scan::all());
            let rows = page.map(|page| page.rows).unwrap_or_default();
            let left = rows.iter().filter_map(|row| Table::of(&row.key));
            let left: BTreeSet<Table> =
                left.filter(|table| !matches!(table, Table::Head | Table::Source)).collect();
            if !left.is_empty() {
                violations.push(format!("{partition} still has rows of {left:?}"));
            }
        }
    }
}

fn check_client(client: &Client, violations: &mut Vec<String>) {
    let id = &client.id;
    if let Some(step) = client.next() {
        violations.push(format!("{id}: its client never got through ({step:?})"));
    }
    // When the time in which a repeat is recognised is over, it is a start of its own.
    let differ = |pair: &[Started]| {
        let known = pair[0].repeat_until.is_none_or(|until| pair[1].created_at <= until);
        pair[0].run != pair[1].run && known
    };
    if client.key.is_some() && client.told.windows(2).any(differ) {
        violations.push(format!("{id}: one start was told different runs: {:?}", client.told));
    }
}

/// What all clients of one instance were told, against what it came to.
fn check_instance(id: &str, instance: &Instance, clients: &[&Client], violations: &mut Vec<String>) {
    let mut begun = BTreeSet::new();
    for run in clients.iter().flat_map(|client| &client.begun) {
        // Numbers may begin again when an id has been forgotten.
        if !begun.insert(run) && !instance.forgotten {
            violations.push(format!("{id}: run {run} was begun for two"));
        }
    }
    let unsure: u32 = clients.iter().map(|client| client.begins_unsure).sum();
    let ended = || instance.runs.iter().filter_map(|run| run.end.as_ref());
    let ends: Vec<&Ending> = ended().map(|(end, _)| end).collect();
    let began = instance.runs.len() - ends.iter().filter(|end| ***end == Ending::Continued).count();
    if began > begun.len() + unsure as usize {
        violations.push(format!("{id}: {began} runs began, {} for somebody, {unsure} perhaps", begun.len()));
    }
    let accepted = |step: Step| clients.iter().any(|client| client.accepted.contains(&step));
    if accepted(Step::Terminate) && !ends.contains(&&Ending::Terminated) {
        violations.push(format!("{id}: its end by order was acknowledged, and it came to {ends:?}"));
    }
    if accepted(Step::Rewind) && ended().all(|(_, story)| story.rewinds == 0) {
        violations.push(format!("{id}: that it goes on was acknowledged, and it never did"));
    }
    // What was raised while there was one run is in its output.
    if began == 1
        && let Some(Ending::Completed(output)) = ends.last()
    {
        clients.iter().for_each(|client| check_events(client, output, violations));
    }
}

/// Every run has ended, and as its definition says.
fn check_ends(cluster: &Cluster, groups: &BTreeMap<&str, Vec<&Client>>, violations: &mut Vec<String>) {
    for (id, instance) in &cluster.truth.instances {
        let family = &instance.family;
        let Some(clients) = groups.get(family.as_str()) else {
            violations.push(format!("{id}: nobody wanted it"));
            continue;
        };
        let orders = clients.iter().any(|client| client.may_have(Step::Terminate));
        let forgets = clients.iter().any(|client| client.may_have(Step::Purge));
        if instance.purged && !forgets && !cluster.scenario.short {
            violations.push(format!("{id}: it was purged, and nobody asked for it"));
        }
        for run in &instance.runs {
            let execution = format!("{id}/{}", run.number);
            let Some((end, story)) = &run.end else {
                violations.push(format!("{id}: run {} never ended: {:?}", run.number, run.status));
                continue;
            };
            let right = match end {
                Ending::Terminated => orders,
                // So many crashes in a row are rare, and then it is right to give up.
                Ending::Failed(code) if code == "Poison" => {
                    cluster.truth.recorded.get(&execution).is_some_and(|recorded| *recorded >= UNANSWERED_MAX)
                }
                Ending::Continued => clients.iter().any(|client| client.kind == Kind::Loop),
                end if family != id => is_child_output(family, end),
                end => clients.first().is_some_and(|client| is_expected(client, end, story)),
            };
            if !right {
                violations.push(format!("{id}: run {} ended with {end:?}", run.number));
            }
        }
    }
}

fn is_child_output(parent: &str, end: &Ending) -> bool {
    [1, 2].iter().any(|n| *end == Ending::Completed(json!({"did": n, "for": parent})))
}

fn is_expected(client: &Client, end: &Ending, story: &Story) -> bool {
    let did = |n: u32| json!({"did": n, "for": client.id});
    let all = |count: u32| Value::Array((1..=count).map(did).collect());
    let failed = |code: &str| *end == Ending::Failed(code.to_owned());
    let output = if let Ending::Completed(output) = end { output } else { &Value::Null };
    match client.kind {
        Kind::Steps => *output == all(3),
        Kind::Map => *output == all(5),
        Kind::Wide => *output == all(WIDE),
        Kind::Timer => *output == did(1),
        Kind::Parent => *output == all(2),
        Kind::Undone => failed("Undone"),
        Kind::Deadline => failed("Timeout"),
        Kind::Mended => {
            if story.rewinds > 0 {
                *output == all(2)
            } else {
                failed("Refused")
            }
        }
        Kind::Patience => {
            let raised = client.events.iter().any(|event| event.acknowledged || event.unsure);
            *output == json!("late") || *output == json!("in time") && raised
        }
        Kind::Hurry => *output == did(1) || *output == json!("late"),
        // Which events it took is looked at where all of them are known.
        Kind::Events | Kind::Loop => output.is_array(),
    }
}

/// Events are taken in the order they were raised, each acknowledged one once; one whose answer was lost may be there more often.
fn check_events(client: &Client, output: &Value, violations: &mut Vec<String>) {
    if !matches!(client.kind, Kind::Events | Kind::Loop) || client.events.is_empty() {
        return;
    }
    let taken: Vec<String> = output.as_array().into_iter().flatten().map(ToString::to_string).collect();
    let unsure = client.events.iter().any(|event| event.unsure);
    for event in &client.events {
        let payload = event.payload.to_string();
        let count = taken.iter().filter(|taken| **taken == payload).count();
        let wrong = !unsure && event.acknowledged && count != 1;
        if wrong || event.refused && !event.unsure && count > 0 {
            violations.push(format!("{}: event {payload} was taken {count} times", client.id));
        }
    }
    let order: Vec<String> = client.events.iter().map(|event| event.payload.to_string()).collect();
    if !unsure && order != taken {
        violations.push(format!("{}: events came as {taken:?}", client.id));
    }
}

/// Every key is one piece of work of one run; every delivery of it had a number of its own; history knows of each and says of none that it is
/// done that never took effect.
fn check_outside(cluster: &Cluster, violations: &mut Vec<String>) {
    let mut effects: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
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
        let (Some(execution), Some(input)) = (work.executions.first(), work.inputs.first()) else { continue };
        *effects.entry((execution, &work.activity, input)).or_default() += work.effects as usize;
    }
    for (id, instance) in &cluster.truth.instances {
        for run in &instance.runs {
            let Some((_, story)) = &run.end else { continue };
            let execution = format!("{id}/{}", run.number);
            let mut told: BTreeSet<(&str, &str)> = BTreeSet::new();
            for call in story.calls.values() {
                let count = effects.get(&(&execution, &call.activity, &call.input)).copied().unwrap_or(0);
                if call.completed > 0 && count == 0 {
                    violations.push(format!("{execution}: {} is told as done and never was", call.activity));
                }
                if count > 1 + story.rewinds as usize {
                    violations.push(format!("{execution}: {} took effect {count} times", call.activity));
                }
                told.insert((&call.activity, &call.input));
            }
            let untold = effects.iter().filter(|((of, activity, input), _)| {
                *of == execution && !told.contains(&(*activity, *input))
            });
            for ((_, activity, _), _) in untold {
                violations
                    .push(format!("{execution}: {activity} was called, and its history says nothing of it"));
            }
        }
    }
}
