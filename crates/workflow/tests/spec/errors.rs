//! `onError`: the handler that catches an error, the data it sees, and the end of an uncaught error.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds};

fn task(on_error: Value) -> Value {
    json!({
        "Work": {"type": "task", "activity": "Work", "onError": on_error, "next": "End"},
        "A": {"type": "succeed", "output": ["a", "$.error.code", "$.error.message", "$.error.state", "$.error.retryable"]},
        "B": {"type": "succeed", "output": ["b", "$.state.why.code?"]},
        "End": {"type": "succeed"},
    })
}

fn fails(code: &str) -> Value {
    json!({"error": {"code": code, "message": "no luck"}})
}

#[test]
fn the_first_handler_that_matches_the_code_wins() {
    let handlers = json!([{"match": ["X", "Y"], "next": "A"}, {"next": "B", "output": "$.state.why"}]);
    let by_code = case("Work", task(handlers.clone())).mock("Work", fails("Y"));
    check(
        "by code",
        &by_code,
        &["Work", "Work(null)", "! Y", "Y -> A", "A", "Completed [\"a\",\"Y\",\"no luck\",\"Work\",false]"],
    );
    let rest = case("Work", task(handlers)).mock("Work", fails("Z"));
    check("the rest", &rest, &["Work", "Work(null)", "! Z", "Z -> B", "B", "Completed [\"b\",\"Z\"]"]);
}

#[test]
fn a_state_name_alone_catches_every_error() {
    let mut states = task(json!("A"));
    states.as_object_mut().unwrap().remove("B");
    check(
        "shorthand",
        &case("Work", states).mock("Work", fails("Q")),
        &["Work", "Work(null)", "! Q", "Q -> A", "A", "Completed [\"a\",\"Q\",\"no luck\",\"Work\",false]"],
    );
}

#[test]
fn a_star_catches_every_error() {
    let mut states = task(json!([{"match": ["*"], "next": "B"}]));
    states.as_object_mut().unwrap().remove("A");
    check(
        "star",
        &case("Work", states).mock("Work", fails("Q")),
        &["Work", "Work(null)", "! Q", "Q -> B", "B", "Completed [\"b\",null]"],
    );
}

#[test]
fn an_uncaught_error_fails_the_run() {
    let mut states = task(json!([{"match": ["X"], "next": "A"}]));
    states.as_object_mut().unwrap().remove("B");
    check(
        "not caught",
        &case("Work", states).mock("Work", fails("Q")),
        &["Work", "Work(null)", "! Q", "Q is not caught", "Failed Q in Work"],
    );
}

#[test]
fn a_missing_path_is_an_error_that_names_it_and_can_be_caught() {
    let states = json!({
        "Work": {"type": "task", "activity": "Work", "input": {"x": "$.input.gone"}, "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.message"}, "End": {"type": "succeed"},
    });
    check(
        "missing",
        &case("Work", states),
        &["Work", "PathMissing -> Caught", "Caught", "Completed \"$.input.gone has no value here\""],
    );
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_of_the_state() {
    let states = json!({
        "First": {"type": "task", "activity": "Text", "output": "$.state.a", "next": "Second"},
        "Second": {"type": "task", "activity": "Text", "output": "$.state.a.b", "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.code"}, "End": {"type": "succeed"},
    });
    check(
        "type mismatch",
        &case("First", states).mock("Text", json!({"result": "x"})),
        &[
            "First",
            "Text(null)",
            "= \"x\"",
            "Second",
            "Text(null)",
            "= \"x\"",
            "TypeMismatch -> Caught",
            "Caught",
            "Completed \"TypeMismatch\"",
        ],
    );
}

#[test]
fn handlers_that_cannot_work_are_findings() {
    let hidden = json!([{"next": "A"}, {"match": ["X"], "next": "B"}]);
    finds("hidden", &definition("Work", task(hidden)), None, &[("handler-hidden", "/states/Work/onError/1")]);
    let twice = json!([{"match": ["X", "Y"], "next": "A"}, {"match": ["X"], "next": "B"}]);
    finds(
        "the same code twice",
        &definition("Work", task(twice)),
        None,
        &[("handler-hidden", "/states/Work/onError/1")],
    );
    let empty = json!([{"match": ["X"], "next": ""}, {"match": ["Y"], "next": "A"}, {"next": "B"}]);
    finds(
        "nowhere",
        &definition("Work", task(empty)),
        None,
        &[("dangling-target", "/states/Work/onError/0/next")],
    );
    let dangling = json!([{"match": ["X"], "next": "A"}, {"next": "Nowhere"}]);
    let found = crate::bench::findings(&definition("Work", task(dangling)), None);
    assert!(
        found
            .iter()
            .any(|f| f.code.as_str() == "dangling-target" && f.pointer == "/states/Work/onError/1/next")
    );
    finds(
        "a number",
        &definition("Work", {
            let mut states = task(json!(5));
            states.as_object_mut().unwrap().retain(|name, _| name == "Work" || name == "End");
            states
        }),
        None,
        &[("wrong-type", "/states/Work/onError")],
    );
}
