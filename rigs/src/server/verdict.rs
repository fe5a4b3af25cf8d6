//! Compares the server's state with the acknowledgements: every acknowledged run ended as its definition says and
//! consumed its events, every effect had one key, and every completed run has its effects.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_testkit::effect_ledger::EffectLedger;
use abide_testkit::http_client::HttpRequest;
use serde_json::Value;

use super::client::{RigClient, RigResponse};
use super::definitions::RunKind;
use super::events;
use super::ledger::{BrokenPromise, RunEntry};
use super::receiver::ReceiverLog;
use super::rig::ServerRig;

/// How long to wait before a run that has not ended is read again, and how often.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
const LOOKS_MAX: u32 = 150;
const CONTROL_LOOKS_MAX: u32 = 10;

/// Waits until every unchecked run has ended, at most half a minute (two seconds in a control), and checks it.
pub(crate) async fn settle(rig: &ServerRig) {
    let is_open = |run: &&RunEntry| !run.checked && !run.timed_out;
    let mut open: Vec<String> =
        rig.ledger().runs.values().filter(is_open).map(|run| run.id.clone()).collect();
    let mut client = rig.client();
    let mut last_seen: BTreeMap<String, Value> = BTreeMap::new();
    for _ in 0..if rig.control { CONTROL_LOOKS_MAX } else { LOOKS_MAX } {
        let mut still_open = Vec::new();
        for id in open {
            let path = format!("/api/instances/{id}");
            match client.send(&HttpRequest::get(&path)).await {
                RigResponse::Lost => {
                    let what = format!("GET {path} got no response from a server that was not killed");
                    rig.ledger().findings.add(BrokenPromise::Wrong, what);
                    still_open.push(id);
                }
                RigResponse::Received(status, body) => {
                    let instance = body.get("data").cloned().unwrap_or_default();
                    if status == 200 && !is_terminal(&instance) {
                        last_seen.insert(id.clone(), instance);
                        still_open.push(id);
                    } else {
                        check(rig, &id, status, &instance);
                        check_children(rig, &mut client, &id).await;
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
        let mut ledger = rig.ledger();
        ledger.findings.add(BrokenPromise::Wrong, what);
        if let Some(run) = ledger.runs.get_mut(&id) {
            run.timed_out = true;
        }
    }
    check_effects(rig);
}

/// Checks every run once more: an ended run must not change.
pub(crate) async fn settle_all(rig: &ServerRig) {
    rig.ledger().runs.values_mut().for_each(|run| run.checked = false);
    settle(rig).await;
}

fn is_terminal(instance: &Value) -> bool {
    matches!(instance.get("status").and_then(Value::as_str), Some("Completed" | "Failed" | "Terminated"))
}

/// Checks a run that has ended or is missing.
fn check(rig: &ServerRig, id: &str, status: u16, instance: &Value) {
    let Some(run) = rig.ledger().runs.get(id).cloned() else { return };
    let problems = match status {
        404 if run.acknowledged => {
            let what = format!("{id}: its start was acknowledged, but it does not exist");
            rig.ledger().findings.add(BrokenPromise::Lost, what);
            Vec::new()
        }
        404 => Vec::new(),
        200 => problems(&run, instance, &rig.receiver.log()),
        _ => vec![format!("GET returned {status}")],
    };
    let mut ledger = rig.ledger();
    for problem in problems {
        ledger.findings.add(BrokenPromise::Wrong, format!("{id}: {problem}"));
    }
    if let Some(run) = ledger.runs.get_mut(id) {
        run.checked = true;
    }
}

/// Checks that the history of a parent records the end of each child once.
async fn check_children(rig: &ServerRig, client: &mut RigClient, id: &str) {
    if rig.ledger().runs.get(id).is_none_or(|run| run.kind != RunKind::Parent) {
        return;
    }
    let path = format!("/api/instances/{id}/history?limit=100");
    let history = match client.send(&HttpRequest::get(&path)).await {
        RigResponse::Received(200, body) => body,
        // A missing run is a finding already.
        RigResponse::Received(404, _) => return,
        other => {
            return rig.ledger().findings.add(BrokenPromise::Wrong, format!("GET {path} returned {other:?}"));
        }
    };
    let events =
        history.pointer("/data/items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_end = |event: &&Value| {
        let kind = event.get("eventType").and_then(Value::as_str);
        matches!(kind, Some("SubOrchestrationInstanceCompleted" | "SubOrchestrationInstanceFailed"))
    };
    let command = |event: &Value| event.get("command").cloned().unwrap_or_default().to_string();
    let ends: EffectLedger<String> = events.iter().filter(is_end).map(command).collect();
    for (command, count) in ends.doubled() {
        let what = format!("{id}: the end of child {command} was recorded {count} times");
        rig.ledger().findings.add(BrokenPromise::Wrong, what);
    }
}

fn problems(run: &RunEntry, instance: &Value, log: &ReceiverLog) -> Vec<String> {
    let text = |name: &str| instance.get(name).and_then(Value::as_str).unwrap_or_default();
    let output = instance.get("output").unwrap_or(&Value::Null);
    let mut problems = told_otherwise(run, instance);
    let expected = if run.terminated { "Terminated" } else { "Completed" };
    if text("status") != expected {
        let status = text("status");
        let error = instance.get("error").unwrap_or(&Value::Null);
        problems.push(format!("its status is {status}; expected {expected}: {error}"));
    } else if run.kind == RunKind::Events {
        let consumed: Vec<&Value> = output.as_array().map(|all| all.iter().collect()).unwrap_or_default();
        let raised: Vec<&Value> = run.events.iter().map(|event| &event.payload).collect();
        if consumed != raised {
            problems.push(format!("its events were consumed as {output}"));
        }
    } else if run.kind == RunKind::Loop {
        let consumed = events::flatten_loop_output(output);
        problems.extend(events::event_violations(&run.events, &consumed));
        let calls = log.effects.get(&(run.id.clone(), 1)).map_or(0, Vec::len);
        if calls != consumed.len() && (run.keyed || run.sends == 1) {
            problems
                .push(format!("{} runs consumed one event each, but had {calls} effects", consumed.len()));
        }
    } else if let Some(expected) = run.kind.output(&run.id, |n| answered(run, n, text("executionId"), log))
        && *output != expected
    {
        problems.push(format!("its output is {output}; expected {expected}"));
    }
    if text("status") == "Completed" {
        for n in run.kind.effects() {
            if !log.effects.contains_key(&(run.id.clone(), *n)) {
                problems.push(format!("it has completed without its effect {n}"));
            }
        }
    }
    problems
}

/// Responses to clients that contradict the run.
fn told_otherwise(run: &RunEntry, instance: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let execution = instance.get("executionId").and_then(Value::as_str).unwrap_or_default();
    if run.keyed && run.executions.len() > 1 {
        problems.push(format!("repeats of one start returned different runs: {:?}", run.executions));
    }
    // A start without a key that arrived twice may have started two runs.
    let is_one_run = run.kind != RunKind::Loop && (run.keyed || run.sends == 1);
    if is_one_run && run.executions.iter().any(|reported| reported != execution) {
        problems.push(format!("its start returned {:?}, but it is {execution}", run.executions));
    }
    if let Some(end) = &run.reported_end {
        for name in ["status", "output", "executionId", "lastUpdatedAtUtc"] {
            if is_one_run && end.get(name) != instance.get(name) {
                let reported = end.get(name);
                let is = instance.get(name);
                problems.push(format!("its end was reported with {name} {reported:?}, but it is {is:?}"));
            }
        }
    }
    problems
}

/// The receiver's result for an effect of a run. An effect of a child has the child's execution id.
fn answered(run: &RunEntry, n: u64, execution: &str, log: &ReceiverLog) -> Value {
    let keys = log.effects.get(&(run.id.clone(), n)).map(Vec::as_slice).unwrap_or_default();
    let works = || keys.iter().filter_map(|key| log.work.get(key));
    let own = works().find(|work| work.execution == execution).or_else(|| works().next_back());
    own.map(|work| work.answer.clone()).unwrap_or_default()
}

/// Checks that every effect belongs to a run that a client started, and has one key.
fn check_effects(rig: &ServerRig) {
    let log = rig.receiver.log();
    let mut ledger = rig.ledger();
    for finding in &log.findings {
        ledger.findings.add(BrokenPromise::Wrong, finding.clone());
    }
    for ((id, n), keys) in &log.effects {
        match ledger.runs.get(id) {
            None => ledger
                .findings
                .add(BrokenPromise::Wrong, format!("effect {n} of {id}, which no client started")),
            Some(run) if !run.kind.effects().contains(n) => {
                ledger.findings.add(BrokenPromise::Wrong, format!("{id} has an unexpected effect {n}"));
            }
            Some(_) => {}
        }
        let works = keys.iter().filter_map(|key| log.work.get(key));
        let executions: EffectLedger<&str> = works.map(|work| work.execution.as_str()).collect();
        for (execution, count) in executions.doubled() {
            ledger.findings.add(BrokenPromise::Wrong, format!("effect {n} of {execution} had {count} keys"));
        }
    }
}
