//! The `compensation` state: explicit steps, or the compensations recorded by completed tasks, newest first; a failed
//! step does not stop the others.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds, story};

fn saga(undo: Value) -> Value {
    json!({
        "A": {"type": "task", "activity": "DoA", "output": "$.state.a", "onError": "Undo", "next": "B",
              "compensateWith": {"activity": "UndoA", "input": {"a": "$.state.a"}}},
        "B": {"type": "task", "activity": "DoB", "output": "$.state.b", "onError": "Undo", "next": "C",
              "compensateWith": {"activity": "UndoB", "input": {"b": "$.state.b"}}},
        "C": {"type": "task", "activity": "DoC", "onError": "Undo", "next": "End"},
        "Undo": undo,
        "End": {"type": "succeed"}, "Failed": {"type": "fail"},
    })
}

fn automatic() -> Value {
    json!({"type": "compensation", "next": "Failed"})
}

const FINAL: fn() -> Value = || json!({"error": {"code": "Boom"}});

#[test]
fn only_completed_tasks_are_compensated_newest_first() {
    let base =
        case("A", saga(automatic())).mock("DoA", json!({"result": 1})).mock("DoB", json!({"result": 2}));
    check(
        "both",
        &base.clone().mock("DoC", FINAL()),
        &[
            "A",
            "DoA(null)",
            "= 1",
            "B",
            "DoB(null)",
            "= 2",
            "C",
            "DoC(null)",
            "! Boom",
            "Boom -> Undo",
            "Undo",
            "note: compensating 2",
            "UndoB({\"b\":2})",
            "= null",
            "UndoA({\"a\":1})",
            "= null",
            "note: compensated 2, failed 0",
            "Failed",
            "Boom is not caught",
            "Failed Boom in C",
        ],
    );
    check(
        "one",
        &base.clone().mock("DoB", FINAL()),
        &[
            "A",
            "DoA(null)",
            "= 1",
            "B",
            "DoB(null)",
            "! Boom",
            "Boom -> Undo",
            "Undo",
            "note: compensating 1",
            "UndoA({\"a\":1})",
            "= null",
            "note: compensated 1, failed 0",
            "Failed",
            "Boom is not caught",
            "Failed Boom in B",
        ],
    );
    check(
        "none",
        &base.clone().mock("DoA", FINAL()),
        &[
            "A",
            "DoA(null)",
            "! Boom",
            "Boom -> Undo",
            "Undo",
            "note: compensating 0",
            "note: compensated 0, failed 0",
            "Failed",
            "Boom is not caught",
            "Failed Boom in A",
        ],
    );
    check(
        "not needed",
        &base.mock("DoC", json!({"result": 3})),
        &["A", "DoA(null)", "= 1", "B", "DoB(null)", "= 2", "C", "DoC(null)", "= 3", "End", "Completed null"],
    );
}

#[test]
fn a_compensation_is_retried_and_a_permanent_failure_does_not_stop_the_others() {
    let case = case("A", saga(automatic()))
        .mock("DoA", json!({"result": 1}))
        .mock("DoB", json!({"result": 2}))
        .mock("DoC", FINAL())
        .mock("UndoB", json!([{"error": {"code": "Busy", "retryable": true}}, {"error": {"code": "Stuck"}}]));
    let lines = story(&case.play(case.limits.turn, true));
    let compensation: Vec<&str> =
        lines.iter().map(String::as_str).skip_while(|line| *line != "Undo").collect();
    assert_eq!(
        compensation,
        [
            "Undo",
            "note: compensating 2",
            "UndoB({\"b\":2})",
            "! Busy, again",
            "! Stuck",
            "note: UndoB failed to compensate: Stuck",
            "UndoA({\"a\":1})",
            "= null",
            "note: compensated 1, failed 1",
            "Failed",
            "Boom is not caught",
            "Failed Boom in C",
        ]
    );
}

#[test]
fn explicit_steps_run_in_their_order_whatever_was_recorded() {
    let undo = json!({"type": "compensation", "next": "Failed", "steps": [
        {"activity": "First", "input": {"a": "$.state.a"}}, {"activity": "Second", "input": {"b": "$.state.b"}}]});
    let case = case("A", saga(undo)).mock("DoA", json!({"result": 1})).mock("DoB", FINAL());
    check(
        "explicit",
        &case,
        &[
            "A",
            "DoA(null)",
            "= 1",
            "B",
            "DoB(null)",
            "! Boom",
            "Boom -> Undo",
            "Undo",
            "note: compensating 2",
            "First({\"a\":1})",
            "= null",
            "note: compensation input of Undo/steps/1 is incomplete",
            "Second({\"b\":null})",
            "= null",
            "note: compensated 2, failed 0",
            "Failed",
            "Boom is not caught",
            "Failed Boom in B",
        ],
    );
}

#[test]
fn a_registered_compensation_gets_the_task_s_input_and_result() {
    let states = json!({
        "A": {"type": "task", "activity": "Create", "input": {"id": "$.input.id", "at": "$.system.currentTime"}, "next": "B"},
        "B": {"type": "task", "activity": "Check", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "next": "Failed"},
        "End": {"type": "succeed"}, "Failed": {"type": "fail"},
    });
    let case = case("A", states)
        .registry(json!([
            {"name": "Create", "category": "database", "compensation": "Remove"},
            {"name": "Remove", "category": "database"}, {"name": "Check", "category": "externalApi"}]))
        .input(json!({"id": 7}))
        .mock("Create", json!({"after": "PT5S", "result": "rec-1"}))
        .mock("Check", FINAL());
    let lines = story(&case.play(case.limits.turn, true));
    let given = "{\"at\":\"2026-01-01T00:00:00.000Z\",\"id\":7}";
    assert!(lines.contains(&format!("Remove({{\"input\":{given},\"output\":\"rec-1\"}})")), "{lines:#?}");
}

#[test]
fn work_of_joined_and_of_cancelled_branches_is_compensated_too() {
    let branch = |activity: &str| {
        json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": activity, "next": "More", "compensateWith": {"activity": "Undo", "input": activity}},
        "More": {"type": "task", "activity": format!("{activity}More"), "next": "Done"},
        "Done": {"type": "succeed"}}})
    };
    let states = json!({
        "Fan": {"type": "parallel", "branches": [branch("A"), branch("B")], "onError": "Undo", "next": "Next"},
        "Next": {"type": "task", "activity": "Next", "onError": "Undo", "next": "End"},
        "Undo": {"type": "compensation", "next": "Failed"},
        "End": {"type": "succeed"}, "Failed": {"type": "fail"},
    });
    let base =
        case("Fan", states).mock("A", json!({"result": 1})).mock("B", json!({"after": "PT1S", "result": 2}));
    let undo_calls = |case: &crate::bench::Case| {
        let lines = story(&case.play(case.limits.turn, true));
        lines.into_iter().filter(|line| line.starts_with("Undo(")).collect::<Vec<_>>()
    };
    assert_eq!(
        undo_calls(&base.clone().mock("Next", FINAL())),
        ["Undo(\"B\")", "Undo(\"A\")"],
        "after the join"
    );
    let cancelled = base.mock("BMore", FINAL()).mock("AMore", json!({"never": true}));
    assert_eq!(undo_calls(&cancelled), ["Undo(\"B\")", "Undo(\"A\")"], "after a branch was cancelled");
}

#[test]
fn a_compensation_inside_a_branch_compensates_only_that_branch() {
    let branch = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "Do", "input": "$.index", "next": "Check", "compensateWith": {"activity": "Undo", "input": "$.index"}},
        "Check": {"type": "task", "activity": "Check", "onError": "Back", "next": "Done"},
        "Back": {"type": "compensation", "next": "Done"},
        "Done": {"type": "succeed"}}});
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "iterator": branch, "next": "End"},
        "End": {"type": "succeed"},
    });
    let case = case("Each", states)
        .input(json!({"items": [0, 1]}))
        .mock("Do", json!({"result": null}))
        .mock("Check", json!([{"result": 1}, {"error": {"code": "Boom"}}]));
    let lines = story(&case.play(case.limits.turn, true));
    let undo_calls: Vec<&String> = lines.iter().filter(|line| line.starts_with("Undo(")).collect();
    assert_eq!(undo_calls, ["Undo(1)"]);
}

#[test]
fn a_task_whose_result_cannot_be_stored_is_still_compensated() {
    let states = json!({
        "A": {"type": "task", "activity": "Do", "output": "$.state.a", "onError": "Undo", "next": "End",
              "compensateWith": {"activity": "Undo", "input": "$.state.a"}},
        "Undo": {"type": "compensation", "next": "Failed"},
        "End": {"type": "succeed"}, "Failed": {"type": "fail"},
    });
    let case = case("A", states)
        .mock("Do", json!({"result": "x".repeat(500)}))
        .limits(|limits| limits.data_bytes_max = 100);
    let lines = story(&case.play(case.limits.turn, true));
    assert!(lines.contains(&"DataLimitExceeded -> Undo".to_owned()), "{lines:?}");
    assert!(lines.contains(&"note: compensation input of A is incomplete".to_owned()), "{lines:?}");
    assert!(lines.contains(&"Undo(null)".to_owned()), "{lines:?}");
}

#[test]
fn gaps_and_empty_compensations_are_warnings() {
    finds("no gap", &definition("A", saga(automatic())), None, &[]);
    let mut gap = saga(automatic());
    gap["C"].as_object_mut().unwrap().remove("onError");
    finds(
        "a later task whose errors are not compensated",
        &definition("A", gap),
        None,
        &[("compensation-gap", "/states/C")],
    );
    let mut partly = saga(automatic());
    partly["C"]["onError"] = json!([{"match": ["X"], "next": "Undo"}]);
    finds(
        "a later task that compensates on some errors only",
        &definition("A", partly),
        None,
        &[("compensation-gap", "/states/C")],
    );
    let mut never = saga(automatic());
    for state in ["A", "B", "C"] {
        never[state]["onError"] = "Failed".into();
    }
    never.as_object_mut().unwrap().remove("Undo");
    finds(
        "compensateWith and no compensation",
        &definition("A", never.clone()),
        None,
        &[("compensation-gap", "/states/A"), ("compensation-gap", "/states/B")],
    );
    let mut timed = definition("A", never);
    timed["configuration"] = json!({"timeout": "PT1H"});
    finds(
        "a workflow timeout compensates, but no other failure does",
        &timed,
        None,
        &[("compensation-gap", "/states/A"), ("compensation-gap", "/states/B")],
    );
    let mut empty = saga(json!({"type": "compensation", "steps": [], "next": "Failed"}));
    for state in ["A", "B"] {
        empty[state].as_object_mut().unwrap().remove("compensateWith");
    }
    finds("no steps", &definition("A", empty), None, &[("compensation-empty", "/states/Undo")]);
    let mut nothing = saga(automatic());
    for state in ["A", "B"] {
        nothing[state].as_object_mut().unwrap().remove("compensateWith");
    }
    finds("nothing recorded", &definition("A", nothing), None, &[("compensation-empty", "/states/Undo")]);
    let registry = json!([
        {"name": "DoA", "category": "other", "compensation": "UndoA"}, {"name": "UndoA", "category": "other"},
        {"name": "DoB", "category": "other"}, {"name": "UndoB", "category": "other"}, {"name": "DoC", "category": "other"},
        {"name": "Other", "category": "other"}]);
    let mut other = saga(
        json!({"type": "compensation", "steps": [{"activity": "Other"}, {"activity": "UndoB"}], "next": "Failed"}),
    );
    other["A"].as_object_mut().unwrap().remove("compensateWith");
    finds(
        "a registered compensation that no step calls",
        &definition("A", other),
        Some(&registry),
        &[("compensation-gap", "/states/A")],
    );
}
