//! The `succeed`, `fail` and `continueAsNew` states: how runs end.

use serde_json::json;

use crate::bench::{case, check, definition, finds};

#[test]
fn succeed_gives_its_output_or_null() {
    check(
        "output",
        &case("End", json!({"End": {"type": "succeed", "output": {"got": "$.input.x", "lit": "$$x"}}}))
            .input(json!({"x": 1})),
        &["End", "Completed {\"got\":1,\"lit\":\"$x\"}"],
    );
    check("null", &case("End", json!({"End": {"type": "succeed"}})), &["End", "Completed null"]);
    check(
        "an output that is missing",
        &case("End", json!({"End": {"type": "succeed", "output": "$.state.x"}})),
        &["End", "PathMissing is not caught", "Failed PathMissing in End"],
    );
}

#[test]
fn fail_uses_its_own_error_or_the_last_caught_one() {
    check(
        "its own error",
        &case("End", json!({"End": {"type": "fail", "error": "NoGood", "message": "because"}})),
        &["End", "NoGood is not caught", "Failed NoGood in End"],
    );
    check(
        "an error from data",
        &case("End", json!({"End": {"type": "fail", "error": "$.input.code"}})).input(json!({"code": "X1"})),
        &["End", "X1 is not caught", "Failed X1 in End"],
    );
    check(
        "no error",
        &case("End", json!({"End": {"type": "fail"}})),
        &["End", "Failed is not caught", "Failed Failed in End"],
    );
    let caught = json!({
        "Work": {"type": "task", "activity": "Work", "onError": "End", "next": "Done"},
        "Done": {"type": "succeed"}, "End": {"type": "fail"},
    });
    check(
        "the caught error",
        &case("Work", caught).mock("Work", json!({"error": {"code": "Boom"}})),
        &["Work", "Work(null)", "! Boom", "Boom -> End", "End", "Boom is not caught", "Failed Boom in Work"],
    );
}

#[test]
fn continue_as_new_begins_the_next_run_with_counters_reset() {
    let states = json!({
        "Count": {"type": "task", "activity": "Increment", "input": "$.input.n", "output": "$.state.n", "next": "Check"},
        "Check": {"type": "choice", "choices": [{"when": {"path": "$.state.n", "op": "gte", "value": 3}, "next": "End"}], "default": "Again"},
        "Again": {"type": "continueAsNew", "input": {"n": "$.state.n"}},
        "End": {"type": "succeed", "output": ["$.state.n", "$.system.executionId"]},
    });
    let case = case("Count", states)
        .input(json!({"n": 0}))
        .mock("Increment", json!([{"result": 1}, {"result": 2}, {"result": 3}]))
        .limits(|limits| limits.transitions_max = 3);
    check(
        "three runs",
        &case,
        &[
            "Count",
            "Increment(0)",
            "= 1",
            "Check",
            "note: 3 of 3 transitions",
            "Again",
            "ContinuedAsNew {\"n\":1}",
            "Count",
            "Increment(1)",
            "= 2",
            "Check",
            "note: 3 of 3 transitions",
            "Again",
            "ContinuedAsNew {\"n\":2}",
            "Count",
            "Increment(2)",
            "= 3",
            "Check",
            "note: 3 of 3 transitions",
            "End",
            "Completed [3,\"rehearsal/3\"]",
        ],
    );
}

#[test]
fn the_next_run_s_input_must_fit_the_schema() {
    let mut case =
        case("Again", json!({"Again": {"type": "continueAsNew", "input": {"n": "$.system.instanceId"}}}));
    case.definition["input"] = json!({"properties": {"n": {"type": "integer"}}});
    let mut literal = case.definition.clone();
    literal["states"]["Again"]["input"] = json!({"n": "text"});
    finds("a literal that cannot fit", &literal, None, &[("input-schema-mismatch", "/states/Again/input/n")]);
    check("bad input", &case, &["Again", "InputInvalid is not caught", "Failed InputInvalid in Again"]);
}

#[test]
fn malformed_ends_are_refused() {
    finds(
        "an end that goes on",
        &definition("End", json!({"End": {"type": "succeed", "next": "End"}})),
        None,
        &[("unknown-field", "/states/End/next")],
    );
    finds(
        "a number as a code",
        &definition("End", json!({"End": {"type": "fail", "error": 5}})),
        None,
        &[("wrong-type", "/states/End/error")],
    );
}
