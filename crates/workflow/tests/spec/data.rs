//! Data: roots, assignment, precision, and the system fields of a run.

use serde_json::json;

use crate::bench::{case, check, definition, finds, story};

#[test]
fn the_system_root_has_ids_and_times() {
    let output = json!([
        "$.system.instanceId",
        "$.system.executionId",
        "$.system.correlationId",
        "$.system.entityId",
        "$.system.startTime",
        "$.system.currentTime"
    ]);
    let states = json!({
        "Wait": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "End"},
        "End": {"type": "succeed", "output": output},
    });
    check(
        "system",
        &case("Wait", states),
        &[
            "Wait",
            "timer PT1H",
            "fired",
            "End",
            "Completed [\"rehearsal\",\"rehearsal/1\",\"rehearsal\",null,\"2026-01-01T00:00:00.000Z\",\"2026-01-01T01:00:00.000Z\"]",
        ],
    );
}

#[test]
fn new_ids_are_the_same_for_every_attempt_and_different_for_every_visit() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "input": ["$.system.newId", "$.system.newId"], "output": "$.state.n", "next": "Pause"},
        "Pause": {"type": "wait", "waitType": "duration", "duration": "PT1S", "next": "Check"},
        "Check": {"type": "choice", "choices": [{"when": {"path": "$.state.n", "op": "eq", "value": 2}, "next": "End"}], "default": "Work"},
        "End": {"type": "succeed"},
    });
    let case = case("Work", states)
        .mock("Work", json!([{"error": {"code": "Busy", "retryable": true}}, {"result": 1}, {"result": 2}]));
    let playback = case.play(case.limits.turn, true);
    let inputs: Vec<&serde_json::Value> = playback.attempts.iter().map(|attempt| &attempt.input).collect();
    assert_eq!(inputs.len(), 3);
    assert_eq!(inputs[0][0], inputs[0][1]);
    assert_eq!(inputs[0], inputs[1], "a retry");
    assert_ne!(inputs[1], inputs[2], "a second visit");
}

#[test]
fn new_ids_differ_between_branches() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "output": "$.state.ids", "next": "End", "iterator": {
            "startAt": "Done", "states": {"Done": {"type": "succeed", "output": "$.system.newId"}}}},
        "End": {"type": "succeed", "output": "$.state.ids"},
    });
    let case = case("Each", states).input(json!({"items": [1, 2]}));
    let playback = case.play(case.limits.turn, true);
    let Some(abide_workflow::Outcome::Completed(ids)) = playback.outcome else { panic!() };
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn integers_keep_their_precision_through_everything() {
    let states = json!({
        "Work": {"type": "task", "activity": "Echo", "input": {"n": "$.input.n", "m": 18446744073709551615_u64}, "output": "$.state.x", "next": "End"},
        "End": {"type": "succeed", "output": "$.state.x"},
    });
    let case =
        case("Work", states).input(json!({"n": 9007199254740993_i64})).mock("Echo", json!({"echo": true}));
    assert_eq!(
        story(&case.play(case.limits.turn, true)).last().unwrap(),
        "Completed {\"m\":18446744073709551615,\"n\":9007199254740993}"
    );
}

#[test]
fn results_are_written_below_names_and_into_elements() {
    let states = json!({
        "A": {"type": "task", "activity": "List", "output": "$.state.a.list", "next": "B"},
        "B": {"type": "task", "activity": "Two", "output": "$.state.a.list[1]", "next": "C"},
        "C": {"type": "task", "activity": "Two", "output": "$.state.a['odd name']", "next": "End"},
        "End": {"type": "succeed", "output": "$.state"},
    });
    let case = case("A", states).mock("List", json!({"result": [1, 1]})).mock("Two", json!({"result": 2}));
    assert_eq!(
        story(&case.play(case.limits.turn, true)).last().unwrap(),
        "Completed {\"a\":{\"list\":[1,2],\"odd name\":2}}"
    );
}

#[test]
fn secret_references_pass_through_untouched() {
    let states = json!({
        "Call": {"type": "task", "activity": "Call", "input": {"key": {"secretRef": "env://KEY"}}, "next": "End"},
        "End": {"type": "succeed"},
    });
    check(
        "secretRef",
        &case("Call", states),
        &["Call", "Call({\"key\":{\"secretRef\":\"env://KEY\"}})", "= null", "End", "Completed null"],
    );
}

#[test]
fn bad_paths_references_and_templates_are_refused_at_their_place() {
    let task = |field: &str, value: serde_json::Value| {
        let mut states =
            json!({"Work": {"type": "task", "activity": "Work", "next": "End"}, "End": {"type": "succeed"}});
        states["Work"][field] = value;
        definition("Work", states)
    };
    for (rule, field, value, code, pointer) in [
        ("an unknown root", "input", json!({"a": ["$.nobody"]}), "invalid-path", "/states/Work/input/a/0"),
        ("not a path", "input", json!({"a/b": "$5"}), "invalid-path", "/states/Work/input/a~1b"),
        ("too costly", "input", json!("$.state..a..b"), "invalid-path", "/states/Work/input"),
        ("an optional query", "input", json!("$.state.list[*]?"), "invalid-path", "/states/Work/input"),
        ("an unknown system field", "input", json!("$.system.now"), "invalid-path", "/states/Work/input"),
        ("output outside state", "output", json!("$.input.x"), "invalid-reference", "/states/Work/output"),
        ("output as a query", "output", json!("$.state.x[*]"), "invalid-reference", "/states/Work/output"),
        ("output of the whole state", "output", json!("$.state"), "invalid-reference", "/states/Work/output"),
        ("output as a number", "output", json!(1), "wrong-type", "/states/Work/output"),
    ] {
        finds(rule, &task(field, value), None, &[(code, pointer)]);
    }
    finds("a literal dollar", &task("input", json!({"price": "$$5"})), None, &[]);
}
