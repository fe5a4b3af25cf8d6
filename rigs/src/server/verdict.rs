//! Compares what is there with what was promised: every acknowledged run ended as its definition says, with every event it should have
//! taken; every effect had one key, and every completed run its effects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::client::{Answer, Ask, Client};
use super::definitions::Kind;
use super::events;
use super::ledger::{Broken, Run};
use super::receiver::Book;
use super::world::World;

/// How long to wait before a run that has not ended is looked at again, and how often.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const LOOKS_MAX: u32 = 150;

/// Waits until every run that was not checked has ended, half a minute at most, and checks it.
pub(crate) async fn settle(world: &World) {
    let is_open = |run: &&Run| !run.checked && !run.given_up;
    let mut open: Vec<String> =
        world.ledger().runs.values().filter(is_open).map(|run| run.id.clone()).collect();
    let mut client = world.client();
    let mut last_seen: BTreeMap<String, Value> = BTreeMap::new();
    for _ in 0..LOOKS_MAX {
        let mut still_open = Vec::new();
        for id in open {
            let path = format!("/api/instances/{id}");
            match client.ask(Ask::get(&path)).await {
                Answer::Lost => {
                    let what = format!("GET {path} was not answered by a server that nobody disturbs");
                    world.ledger().find(Broken::Wrong, what);
                    still_open.push(id);
                }
                Answer::Told(status, answer) => {
                    let instance = answer.get("data").cloned().unwrap_or_default();
                    if status == 200 && !is_terminal(&instance) {
                        last_seen.insert(id.clone(), instance);
                        still_open.push(id);
                    } else {
                        check(world, &id, status, &instance);
                        check_children(world, &mut client, &id).await;
                    }
                }
            }
        }
        open = still_open;
        if open.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    for id in open {
        let seen = last_seen.remove(&id).unwrap_or_default();
        let of = |name: &str| seen.get(name).cloned().unwrap_or_default();
        let what = format!("{id}: it never ended: {} {}", of("status"), of("currentStates"));
        let mut ledger = world.ledger();
        ledger.find(Broken::Wrong, what);
        if let Some(run) = ledger.runs.get_mut(&id) {
            run.given_up = true;
        }
    }
    check_effects(world);
}

/// Looks at every run once more: what has ended must not change.
pub(crate) async fn settle_all(world: &World) {
    world.ledger().runs.values_mut().for_each(|run| run.checked = false);
    settle(world).await;
}

fn is_terminal(instance: &Value) -> bool {
    matches!(instance.get("status").and_then(Value::as_str), Some("Completed" | "Failed" | "Terminated"))
}

/// A run that is gone or has ended.
fn check(world: &World, id: &str, status: u16, instance: &Value) {
    let Some(run) = world.ledger().runs.get(id).cloned() else { return };
    let problems = match status {
        404 if run.acknowledged => {
            let what = format!("{id}: its start was acknowledged, and it is not there");
            world.ledger().find(Broken::Lost, what);
            Vec::new()
        }
        404 => Vec::new(),
        200 => problems(&run, instance, &world.receiver.book()),
        _ => vec![format!("GET was answered {status}")],
    };
    let mut ledger = world.ledger();
    for problem in problems {
        ledger.find(Broken::Wrong, format!("{id}: {problem}"));
    }
    if let Some(run) = ledger.runs.get_mut(id) {
        run.checked = true;
    }
}

/// The history of a parent tells the end of each child once.
async fn check_children(world: &World, client: &mut Client, id: &str) {
    if world.ledger().runs.get(id).is_none_or(|run| run.kind != Kind::Parent) {
        return;
    }
    let path = format!("/api/instances/{id}/history?limit=100");
    let answer = match client.ask(Ask::get(&path)).await {
        Answer::Told(200, answer) => answer,
        // A run that is not there was found missing before.
        Answer::Told(404, _) => return,
        other => return world.ledger().find(Broken::Wrong, format!("GET {path} was answered by {other:?}")),
    };
    let told = answer.pointer("/data/items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for event in told {
        let kind = event.get("eventType").and_then(Value::as_str);
        if matches!(kind, Some("SubOrchestrationInstanceCompleted" | "SubOrchestrationInstanceFailed")) {
            *ends.entry(event.get("command").cloned().unwrap_or_default().to_string()).or_default() += 1;
        }
    }
    for (command, count) in ends.into_iter().filter(|(_, count)| *count > 1) {
        let what = format!("{id}: the end of child {command} was told {count} times");
        world.ledger().find(Broken::Wrong, what);
    }
}

fn problems(run: &Run, instance: &Value, book: &Book) -> Vec<String> {
    let text = |name: &str| instance.get(name).and_then(Value::as_str).unwrap_or_default();
    let output = instance.get("output").unwrap_or(&Value::Null);
    let mut problems = told_otherwise(run, instance);
    let expected = if run.terminated { "Terminated" } else { "Completed" };
    if text("status") != expected {
        let (status, error) = (text("status"), instance.get("error").unwrap_or(&Value::Null));
        problems.push(format!("it is {status} instead of {expected}: {error}"));
    } else if run.kind == Kind::Events {
        let taken: Vec<&Value> = output.as_array().map(|all| all.iter().collect()).unwrap_or_default();
        let raised: Vec<&Value> = run.events.iter().map(|event| &event.payload).collect();
        if taken != raised {
            problems.push(format!("its events came as {output}"));
        }
    } else if run.kind == Kind::Loop {
        let taken = events::flatten(output);
        problems.extend(events::problems(&run.events, &taken));
        let calls = book.effects.get(&(run.id.clone(), 1)).map_or(0, Vec::len);
        if calls != taken.len() && (run.keyed || run.sends == 1) {
            problems.push(format!("{} runs took an event each, and had {calls} effects", taken.len()));
        }
    } else if let Some(expected) = run.kind.output(&run.id, |n| answered(run, n, text("executionId"), book))
        && *output != expected
    {
        problems.push(format!("its output is {output}, not {expected}"));
    }
    if text("status") == "Completed" {
        for n in run.kind.effects() {
            if !book.effects.contains_key(&(run.id.clone(), *n)) {
                problems.push(format!("it has completed without its effect {n}"));
            }
        }
    }
    problems
}

/// What clients were told of the run, and is not so.
fn told_otherwise(run: &Run, instance: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let execution = instance.get("executionId").and_then(Value::as_str).unwrap_or_default();
    if run.keyed && run.executions.len() > 1 {
        problems.push(format!("one start was told different runs: {:?}", run.executions));
    }
    // A start without a key that came twice may have begun two runs.
    let is_one_run = run.kind != Kind::Loop && (run.keyed || run.sends == 1);
    if is_one_run && run.executions.iter().any(|told| told != execution) {
        problems.push(format!("its start was told {:?}, and it is {execution}", run.executions));
    }
    if let Some(end) = &run.told_end {
        for name in ["status", "output", "executionId", "lastUpdatedAtUtc"] {
            if is_one_run && end.get(name) != instance.get(name) {
                let (told, is) = (end.get(name), instance.get(name));
                problems.push(format!("its end was told with {name} {told:?}, and it is {is:?}"));
            }
        }
    }
    problems
}

/// What the receiver answered for an effect of a run; a child's has an execution of its own.
fn answered(run: &Run, n: u64, execution: &str, book: &Book) -> Value {
    let keys = book.effects.get(&(run.id.clone(), n)).map(Vec::as_slice).unwrap_or_default();
    let works = || keys.iter().filter_map(|key| book.work.get(key));
    let own = works().find(|work| work.execution == execution).or_else(|| works().next_back());
    own.map(|work| work.answer.clone()).unwrap_or_default()
}

/// Every effect belongs to a run that a client wanted, and has one key.
fn check_effects(world: &World) {
    let book = world.receiver.book();
    let mut ledger = world.ledger();
    for finding in &book.findings {
        ledger.find(Broken::Wrong, finding.clone());
    }
    for ((id, n), keys) in &book.effects {
        match ledger.runs.get(id) {
            None => ledger.find(Broken::Wrong, format!("effect {n} of {id}, which nobody started")),
            Some(run) if !run.kind.effects().contains(n) => {
                ledger.find(Broken::Wrong, format!("{id} has an effect {n}"));
            }
            Some(_) => {}
        }
        let mut executions: BTreeMap<&str, u32> = BTreeMap::new();
        for work in keys.iter().filter_map(|key| book.work.get(key)) {
            *executions.entry(&work.execution).or_default() += 1;
        }
        for (execution, count) in executions {
            if count > 1 {
                ledger.find(Broken::Wrong, format!("effect {n} of {execution} had {count} keys"));
            }
        }
    }
}
