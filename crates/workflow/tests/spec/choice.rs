//! The `choice` state: ordered, total, and exact about numbers.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds};

fn states(when: Value) -> Value {
    json!({
        "Pick": {"type": "choice", "choices": [{"when": when, "next": "Yes"}], "default": "No"},
        "Yes": {"type": "succeed"}, "No": {"type": "succeed"},
    })
}

#[test]
fn every_operator_holds_and_does_not_hold() {
    let input = json!({
        "n": 5, "big": 9007199254740993_u64, "f": 2.5, "neg": -1, "t": "abc", "e": "", "nul": null, "yes": true,
        "list": [1, "a", null], "obj": {"k": 1}, "same": 5, "glob": "a*", "one": 1.0,
    });
    // path, op, right side, expected result
    let table: &[(&str, &str, Value, bool)] = &[
        ("$.input.n", "eq", json!(5), true),
        ("$.input.n", "eq", json!(5.0), true),
        ("$.input.n", "eq", json!("5"), false),
        ("$.input.obj", "eq", json!({"k": 1.0}), true),
        ("$.input.nul", "eq", json!(null), true),
        ("$.input.n", "ne", json!(6), true),
        ("$.input.n", "ne", json!(5), false),
        ("$.input.n", "ne", json!("5"), true),
        ("$.input.gone", "ne", json!(1), false),
        ("$.input.n", "gt", json!(4), true),
        ("$.input.n", "gt", json!(5), false),
        ("$.input.big", "gt", json!(9007199254740992_u64), true),
        ("$.input.t", "gt", json!("abb"), true),
        ("$.input.t", "gt", json!(1), false),
        ("$.input.n", "gte", json!(5), true),
        ("$.input.n", "gte", json!(6), false),
        ("$.input.neg", "lt", json!(0), true),
        ("$.input.n", "lt", json!(5), false),
        ("$.input.f", "lt", json!(3), true),
        ("$.input.n", "lte", json!(5), true),
        ("$.input.n", "lte", json!(4), false),
        ("$.input.nul", "lte", json!(4), false),
        ("$.input.t", "in", json!(["x", "abc"]), true),
        ("$.input.t", "in", json!(["x"]), false),
        ("$.input.list", "contains", json!("a"), true),
        ("$.input.list", "contains", json!(1.0), true),
        ("$.input.list", "contains", json!("b"), false),
        ("$.input.t", "contains", json!("bc"), true),
        ("$.input.t", "contains", json!("x"), false),
        ("$.input.n", "contains", json!(5), false),
        ("$.input.t", "startsWith", json!("ab"), true),
        ("$.input.t", "startsWith", json!("bc"), false),
        ("$.input.n", "startsWith", json!("5"), false),
        ("$.input.t", "endsWith", json!("bc"), true),
        ("$.input.t", "endsWith", json!("ab"), false),
        ("$.input.t", "matches", json!("a?c"), true),
        ("$.input.t", "matches", json!("b*"), false),
        ("$.input.list[*]", "contains", json!("a"), true),
    ];
    for (path, op, value, holds) in table {
        let case = case("Pick", states(json!({"path": path, "op": op, "value": value}))).input(input.clone());
        let end = if *holds { "Yes" } else { "No" };
        check(&format!("{path} {op} {value}"), &case, &["Pick", end, "Completed null"]);
    }
    let table: &[(&str, &str, bool)] = &[
        ("$.input.nul", "isNull", true),
        ("$.input.n", "isNull", false),
        ("$.input.gone", "isNull", false),
        ("$.input.nul", "isPresent", true),
        ("$.input.gone", "isPresent", false),
        ("$.input.t", "isString", true),
        ("$.input.n", "isString", false),
        ("$.input.n", "isNumber", true),
        ("$.input.t", "isNumber", false),
        ("$.input.yes", "isBoolean", true),
        ("$.input.n", "isBoolean", false),
        ("$.input.list", "isArray", true),
        ("$.input.obj", "isArray", false),
        ("$.input.obj", "isObject", true),
        ("$.input.list", "isObject", false),
    ];
    for (path, op, holds) in table {
        let case = case("Pick", states(json!({"path": path, "op": op}))).input(input.clone());
        let end = if *holds { "Yes" } else { "No" };
        check(&format!("{path} {op}"), &case, &["Pick", end, "Completed null"]);
    }
    for (op, value_path, holds) in
        [("eq", "$.input.same", true), ("eq", "$.input.gone", false), ("gt", "$.input.neg", true)]
    {
        let when = json!({"path": "$.input.n", "op": op, "valuePath": value_path});
        let end = if holds { "Yes" } else { "No" };
        check(value_path, &case("Pick", states(when)).input(input.clone()), &["Pick", end, "Completed null"]);
    }
}

#[test]
fn conditions_combine() {
    let yes = json!({"path": "$.input.n", "op": "eq", "value": 1});
    let no = json!({"path": "$.input.n", "op": "eq", "value": 2});
    for (when, holds) in [
        (json!({"and": [yes, yes]}), true),
        (json!({"and": [yes, no]}), false),
        (json!({"or": [no, yes]}), true),
        (json!({"or": [no, no]}), false),
        (json!({"not": no}), true),
        (json!({"not": yes}), false),
        (json!({"not": {"path": "$.input.gone", "op": "eq", "value": 1}}), true),
    ] {
        let end = if holds { "Yes" } else { "No" };
        check(
            &when.to_string(),
            &case("Pick", states(when)).input(json!({"n": 1})),
            &["Pick", end, "Completed null"],
        );
    }
}

#[test]
fn the_first_choice_that_holds_is_taken() {
    let always = json!({"path": "$.input", "op": "isObject"});
    let states = json!({
        "Pick": {"type": "choice", "choices": [{"when": always, "next": "First"}, {"when": always, "next": "Second"}]},
        "First": {"type": "succeed"}, "Second": {"type": "succeed"},
    });
    check("choices are ordered", &case("Pick", states), &["Pick", "First", "Completed null"]);
}

#[test]
fn no_match_and_no_default_is_an_error_of_its_own() {
    let states = json!({
        "Pick": {"type": "choice", "choices": [{"when": {"path": "$.input.x", "op": "isPresent"}, "next": "End"}]},
        "End": {"type": "succeed"},
    });
    check(
        "no match",
        &case("Pick", states),
        &["Pick", "NoChoiceMatched is not caught", "Failed NoChoiceMatched in Pick"],
    );
}

#[test]
fn a_literal_dollar_is_doubled() {
    let when = json!({"path": "$.input.price", "op": "eq", "value": "$$5"});
    check(
        "$$ is $",
        &case("Pick", states(when)).input(json!({"price": "$5"})),
        &["Pick", "Yes", "Completed null"],
    );
}

#[test]
fn malformed_choices_are_refused_at_their_place() {
    let at = "/states/Pick/choices/0/when";
    for (rule, when, code, pointer) in [
        (
            "an unknown operator",
            json!({"path": "$.input.x", "op": "equals", "value": 1}),
            "invalid-value",
            format!("{at}/op"),
        ),
        (
            "an operator without its value",
            json!({"path": "$.input.x", "op": "eq"}),
            "invalid-value",
            format!("{at}/op"),
        ),
        (
            "both values",
            json!({"path": "$.input.x", "op": "eq", "value": 1, "valuePath": "$.input.y"}),
            "invalid-value",
            format!("{at}/op"),
        ),
        (
            "a value where none belongs",
            json!({"path": "$.input.x", "op": "isNull", "value": true}),
            "invalid-value",
            format!("{at}/op"),
        ),
        ("no path", json!({"op": "isNull"}), "missing-field", at.to_owned()),
        ("an invalid path", json!({"path": "input.x", "op": "isNull"}), "invalid-path", format!("{at}/path")),
        (
            "a path as a value",
            json!({"path": "$.input.x", "op": "eq", "value": "$.input.y"}),
            "invalid-value",
            format!("{at}/value"),
        ),
        (
            "in without an array",
            json!({"path": "$.input.x", "op": "in", "value": "abc"}),
            "invalid-value",
            format!("{at}/value"),
        ),
        (
            "a path inside a value",
            json!({"path": "$.input.x", "op": "in", "value": ["$.input.y"]}),
            "invalid-value",
            format!("{at}/value"),
        ),
        ("an empty and", json!({"and": []}), "invalid-value", format!("{at}/and")),
        (
            "and beside or",
            json!({"and": [{"path": "$.input.x", "op": "isNull"}], "or": []}),
            "unknown-field",
            format!("{at}/or"),
        ),
    ] {
        let found = crate::bench::findings(&definition("Pick", states(when)), None);
        let found = found.iter().find(|finding| finding.code.as_str() == code && finding.pointer == pointer);
        assert!(found.is_some(), "{rule}");
    }
    let no_choices =
        json!({"Pick": {"type": "choice", "choices": [], "default": "End"}, "End": {"type": "succeed"}});
    finds(
        "no choices at all",
        &definition("Pick", no_choices),
        None,
        &[("invalid-value", "/states/Pick/choices")],
    );
}
