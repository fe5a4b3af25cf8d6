//! Definitions that the benchmarks share, and runs of them before their first turn. Nothing here measures or asserts.

pub mod bad_target;
pub mod three_steps;

use abide_workflow::{Instance, InstanceId, ParsedDefinition, Plan, RunNumber, RunOrigin, Timestamp};
use serde_json::{Map, Value, json};

/// Compiles a workload's definition.
///
/// # Panics
/// If the definition is not valid, which is a bug in this file.
pub fn compile(definition: &Value) -> Plan {
    match ParsedDefinition::parse(&definition.to_string()).validate(None) {
        Ok(validated) => validated.compile(),
        Err(rejected) => unreachable!("a workload is rejected: {:?}", rejected.findings),
    }
}

/// A definition with these states.
pub fn definition(start: &str, states: &Value) -> Value {
    json!({
        "$schema": "workflow-schema-v1.json", "id": "workload", "version": "1.0.0",
        "startAt": start, "states": states,
    })
}

/// Three tasks, one after the other.
pub fn three_tasks() -> Value {
    three_tasks_of("Work")
}

/// [`three_tasks`] with another activity.
pub fn three_tasks_of(activity: &str) -> Value {
    let task = |output: &str, next: &str| json!({"type": "task", "activity": activity, "input": {"id": "$.input.id", "before": "$.state.a?"}, "output": output, "next": next});
    definition(
        "A",
        &json!({
            "A": task("$.state.a", "B"), "B": task("$.state.b", "C"), "C": task("$.state.c", "End"),
            "End": {"type": "succeed", "output": "$.state.c"},
        }),
    )
}

/// A parallel state with so many branches, each with one task.
pub fn parallel(branches: usize) -> Value {
    parallel_of("Work", branches)
}

/// [`parallel`] with another activity.
pub fn parallel_of(activity: &str, branches: usize) -> Value {
    let branch = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": activity, "input": {"id": "$.input.id"}, "output": "$.state.x", "next": "Done"},
        "Done": {"type": "succeed", "output": "$.state.x"}}});
    definition(
        "Fan",
        &json!({
            "Fan": {"type": "parallel", "branches": vec![branch; branches], "output": "$.state.all", "next": "End"},
            "End": {"type": "succeed"},
        }),
    )
}

/// Waits for an event; the output is its payload.
pub fn waiting(event: &str) -> Value {
    definition(
        "Wait",
        &json!({
            "Wait": {"type": "wait", "waitType": "externalEvent", "eventName": event, "output": "$.state.event", "next": "End"},
            "End": {"type": "succeed", "output": "$.state.event"},
        }),
    )
}

/// A map over items with one task for each.
pub fn map() -> Value {
    definition(
        "Each",
        &json!({
            "Each": {"type": "map", "items": "$.input.items", "output": "$.state.all", "next": "End", "iterator": {
                "startAt": "Do", "states": {
                    "Do": {"type": "task", "activity": "Work", "input": "$.item", "output": "$.state.x", "next": "Done"},
                    "Done": {"type": "succeed", "output": "$.state.x"}}}},
            "End": {"type": "succeed"},
        }),
    )
}

/// So many states in a row, including choices, retries, error handlers and a compensation.
pub fn long(states: usize) -> Value {
    let mut all: Map<String, Value> = Map::new();
    let name = |n: usize| format!("S{n:04}");
    for n in 0..states.saturating_sub(3) {
        let next = if n + 4 >= states { "End".to_owned() } else { name(n + 1) };
        let state = match n % 3 {
            0 => {
                json!({"type": "choice", "choices": [{"when": {"path": "$.state.x", "op": "eq", "value": n}, "next": next}], "default": next})
            }
            1 => {
                json!({"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "PT1H", "timeoutNext": "Undo", "next": next})
            }
            _ => {
                json!({"type": "task", "activity": "Work", "input": {"x": "$.state.x", "all": "$.state.list[?@.n > 1]"}, "output": "$.state.x",
                "retryPolicy": {"maxAttempts": 3}, "timeout": "PT1H", "onError": "Undo", "compensateWith": {"activity": "Undo", "input": "$.state.x"}, "next": next})
            }
        };
        all.insert(name(n), state);
    }
    all.insert("Undo".to_owned(), json!({"type": "compensation", "next": "Failed"}));
    all.insert("Failed".to_owned(), json!({"type": "fail"}));
    all.insert("End".to_owned(), json!({"type": "succeed"}));
    definition("S0000", &Value::Object(all))
}

/// A run of a plan before its first turn.
pub fn pending(plan: &Plan, input: Value) -> Instance {
    let id = InstanceId::new("bench-1").unwrap_or_else(|error| unreachable!("{error}"));
    let mut origin = RunOrigin::new(id, RunNumber(1), plan);
    origin.input = input.into();
    Instance::pending(origin, Timestamp(0))
}
