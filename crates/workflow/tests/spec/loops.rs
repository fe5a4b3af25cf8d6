//! Loops and reachability: invalid loops, loops that get a warning, valid loops, and states without an end.

use serde_json::{Value, json};

use crate::bench::{definition, findings, finds};

fn choice(next: &str, other: &str) -> Value {
    json!({"type": "choice", "choices": [{"when": {"path": "$.input.x", "op": "isPresent"}, "next": next}], "default": other})
}

#[test]
fn a_loop_that_never_waits_is_an_error() {
    let spins = json!({"A": choice("B", "End"), "B": choice("A", "End"), "End": {"type": "succeed"}});
    finds("two choices", &definition("A", spins), None, &[("loop-without-rest", "/states/A")]);
    let itself = json!({"A": choice("A", "End"), "End": {"type": "succeed"}});
    finds("one choice", &definition("A", itself), None, &[("loop-without-rest", "/states/A")]);
    let hidden = json!({"A": choice("B", "Work"), "B": choice("A", "End"), "Work": {"type": "task", "activity": "W", "next": "A"}, "End": {"type": "succeed"}});
    finds(
        "a path round the loop without a wait beside one with",
        &definition("A", hidden),
        None,
        &[("loop-without-rest", "/states/A")],
    );
    let empty_map = json!({
        "Each": {"type": "map", "items": "$.input.items", "next": "A", "iterator": {"startAt": "D", "states": {"D": {"type": "succeed"}}}},
        "A": choice("Each", "End"), "End": {"type": "succeed"}});
    finds(
        "a map in which nothing waits",
        &definition("Each", empty_map),
        None,
        &[("loop-without-rest", "/states/A")],
    );
}

#[test]
fn a_loop_without_a_wait_or_a_limit_is_a_warning() {
    let unpaced = json!({"Work": {"type": "task", "activity": "W", "next": "A"}, "A": choice("Work", "End"), "End": {"type": "succeed"}});
    finds("unpaced", &definition("Work", unpaced.clone()), None, &[("loop-without-wait", "/states/A")]);
    let mut limited = definition("Work", unpaced.clone());
    limited["configuration"] = json!({"maxTransitions": 100});
    finds("a limit", &limited, None, &[]);
    let mut paced = unpaced;
    paced["Work"]["next"] = "Pause".into();
    paced["Pause"] = json!({"type": "wait", "waitType": "duration", "duration": "PT1S", "next": "A"});
    finds("a wait", &definition("Work", paced), None, &[]);
}

#[test]
fn every_state_must_have_a_way_to_an_end() {
    let trap = json!({
        "A": choice("Trap", "End"), "End": {"type": "succeed"},
        "Trap": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "Trap"}});
    finds("a trap", &definition("A", trap), None, &[("no-way-to-end", "/states/Trap")]);
    let forever = json!({
        "Pause": {"type": "wait", "waitType": "duration", "duration": "PT1H", "next": "Again"}, "Again": {"type": "continueAsNew"}});
    finds("continueAsNew is an end", &definition("Pause", forever), None, &[]);
}

#[test]
fn unreachable_states_are_errors_or_consequences() {
    let island = json!({"A": {"type": "succeed"}, "Island": {"type": "succeed"}});
    finds("island", &definition("A", island), None, &[("unreachable-state", "/states/Island")]);
    let dangling =
        json!({"A": {"type": "task", "activity": "W", "next": "B"}, "Island": {"type": "succeed"}});
    let definition = definition("A", dangling);
    finds("dangling", &definition, None, &[("dangling-target", "/states/A/next")]);
    let found = findings(&definition, None);
    assert_eq!(found[0].consequences, ["so state \"Island\" (/states/Island) cannot be reached"]);
}

#[test]
fn an_empty_start_is_a_dangling_target_and_not_a_broken_run() {
    finds(
        "empty",
        &definition("", json!({"A": {"type": "succeed"}})),
        None,
        &[("dangling-target", "/startAt")],
    );
}

#[test]
fn a_misspelt_target_is_suggested() {
    let states =
        json!({"A": {"type": "task", "activity": "W", "next": "Finish"}, "Finished": {"type": "succeed"}});
    let found = findings(&definition("A", states), None);
    assert!(found[0].hint.contains("did you mean \"Finished\"?"), "{}", found[0].hint);
}
