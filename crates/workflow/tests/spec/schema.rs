//! `workflow-schema-v1.json` and the reader accept the same definitions: they agree on every single change of a
//! definition that has all fields.

use abide_workflow::{ParsedDefinition, WORKFLOW_SCHEMA};
use serde_json::{Value, json};

use crate::bench::{definition, findings};

/// Findings that are about shape, which a schema can express.
const STRUCTURAL: [&str; 8] = [
    "missing-field",
    "unknown-field",
    "wrong-type",
    "invalid-value",
    "invalid-time",
    "invalid-path",
    "invalid-reference",
    "invalid-schema",
];

/// A definition with every field of every type of state.
fn everything() -> Value {
    let mut definition = definition(
        "Task",
        json!({
            "Task": {"type": "task", "description": "d", "activity": "A", "input": {"a": ["$.input.x", "$$y"], "o": "$.state.maybe?", "k": {"secretRef": "env://K"}}, "output": "$.state.a",
                     "retryPolicy": {"maxAttempts": 2, "initialInterval": "PT1S", "backoffCoefficient": 1.5, "maxInterval": "PT1M", "nonRetryable": ["X"]},
                     "timeout": "PT1H", "timeoutNext": "Fail", "attemptTimeout": "PT10S", "onError": [{"match": ["X"], "next": "Fail", "output": "$.state.e"}],
                     "compensateWith": {"activity": "B", "input": {"q": "$.state.list[?@.x == 1]"}}, "next": "Duration"},
            "Duration": {"type": "wait", "waitType": "duration", "duration": "$.input.d", "onError": "Fail", "next": "Timestamp"},
            "Timestamp": {"type": "wait", "waitType": "timestamp", "timestamp": "2026-01-01T00:00:00Z", "next": "Event"},
            "Event": {"type": "wait", "waitType": "externalEvent", "eventName": "E", "timeout": "PT1H", "timeoutNext": "Fail", "output": "$.state.ev",
                      "match": {"and": [{"path": "$.event.x", "op": "eq", "valuePath": "$.input.x"}, {"not": {"path": "$.event.y", "op": "isNull"}}]}, "next": "Choice"},
            "Choice": {"type": "choice", "choices": [{"when": {"or": [{"path": "$.state.a", "op": "in", "value": [1, "$$"]}]}, "next": "Parallel"}], "default": "Map"},
            "Parallel": {"type": "parallel", "branches": [{"startAt": "D", "states": {"D": {"type": "succeed", "output": 1}}}], "join": {"atLeast": 1},
                         "output": "$.state.p", "onError": "Compensation", "next": "Map"},
            "Map": {"type": "map", "items": "$.state.items[*]", "maxConcurrency": 3, "iterator": {"startAt": "D", "states": {"D": {"type": "succeed"}}},
                    "join": {"atLeast": 1}, "output": "$.state.m", "next": "Child"},
            "Child": {"type": "workflow", "workflow": "w", "version": "^1.2", "input": {"a": 1}, "output": "$.state.w", "onParentClose": "abandon", "spread": true,
                      "timeout": "PT1H", "timeoutNext": "Fail", "onError": "Compensation", "next": "Pick"},
            "Pick": {"type": "choice", "choices": [{"when": {"path": "$.state.a", "op": "isPresent"}, "next": "Succeed"}], "default": "Again"},
            "Again": {"type": "continueAsNew", "input": {"n": "$.state.a"}},
            "Compensation": {"type": "compensation", "steps": [{"activity": "C", "input": 1, "retryPolicy": {"maxAttempts": 1}, "timeout": "PT1M", "attemptTimeout": "PT1S"}], "next": "Fail"},
            "Succeed": {"type": "succeed", "output": {"x": "$.state.a"}},
            "Fail": {"type": "fail", "error": "Code", "message": "$.error.message"},
        }),
    );
    definition["description"] = "d".into();
    definition["input"] = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    definition["configuration"] = json!({
        "defaultTimeout": "PT1H", "timeout": "P1D", "stuckAfter": "P2D", "maxTransitions": 100, "retryPolicy": {"maxAttempts": 3},
        "escalation": {"notify": {"activity": "N", "input": {"id": "$.system.instanceId"}}, "recover": "Compensation", "recoverWithin": "PT1H"}});
    definition
}

/// Every definition that differs from this one in one place.
fn mutants(value: &Value) -> Vec<(String, Value)> {
    let mut pointers = Vec::new();
    collect(value, String::new(), &mut pointers);
    let mut mutants = Vec::new();
    for pointer in pointers {
        for replacement in [
            json!(null),
            json!(true),
            json!(7),
            json!(0),
            json!(-1),
            json!(2.5),
            json!(""),
            json!("text"),
            json!("$.state.ok"),
            json!("$.input.x"),
            json!("$5"),
            json!("PT5S"),
            json!("PT0S"),
            json!("P1M"),
            json!([]),
            json!(["text"]),
            json!({}),
            json!({"unknown": 1}),
        ] {
            let mut mutant = value.clone();
            *mutant.pointer_mut(&pointer).unwrap() = replacement.clone();
            mutants.push((format!("{pointer} = {replacement}"), mutant));
        }
        let mut mutant = value.clone();
        if let Some(object) = mutant.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            object.insert("unknown".to_owned(), json!(1));
            mutants.push((format!("{pointer} + unknown"), mutant));
        }
        if let Some((parent, name)) = pointer.rsplit_once('/') {
            let mut mutant = value.clone();
            match mutant.pointer_mut(parent) {
                Some(Value::Object(object)) => {
                    drop(object.remove(&name.replace("~1", "/").replace("~0", "~")))
                }
                Some(Value::Array(array)) => drop(array.remove(name.parse().unwrap())),
                _ => continue,
            }
            mutants.push((format!("- {pointer}"), mutant));
        }
    }
    mutants
}

fn collect(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| collect(field, format!("{pointer}/{name}"), pointers));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| collect(item, format!("{pointer}/{n}"), pointers));
        }
        _ => {}
    }
    pointers.push(pointer);
}

#[test]
fn the_schema_and_the_reader_agree_on_every_change() {
    let schema = jsonschema::validator_for(&serde_json::from_str(WORKFLOW_SCHEMA).unwrap()).unwrap();
    let everything = everything();
    let shape = |definition: &Value| {
        findings(definition, None)
            .iter()
            .filter(|f| STRUCTURAL.contains(&f.code.as_str()))
            .map(|f| format!("{f:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(shape(&everything), Vec::<String>::new());
    assert!(schema.is_valid(&everything));
    let mutants = mutants(&everything);
    assert!(mutants.len() > 3_000, "{}", mutants.len());
    let mut differences = Vec::new();
    for (change, mutant) in &mutants {
        let by_reader = shape(mutant).is_empty();
        let by_schema = schema.is_valid(mutant);
        if by_reader != by_schema {
            differences
                .push(format!("{change}: reader {by_reader}, schema {by_schema}; {:?}", shape(mutant)));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {}:\n{}",
        differences.len(),
        mutants.len(),
        differences.join("\n")
    );
}

#[test]
fn every_example_fits_the_schema() {
    let schema = jsonschema::validator_for(&serde_json::from_str(WORKFLOW_SCHEMA).unwrap()).unwrap();
    for example in crate::examples::definitions() {
        let value: Value = serde_json::from_str(&example).unwrap();
        assert!(schema.is_valid(&value), "{}", value["id"]);
        assert!(ParsedDefinition::parse(&example).definition().is_some());
    }
}
