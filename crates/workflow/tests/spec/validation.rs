//! Rules for definitions as a whole that belong to no state type, and for the findings themselves.

use std::collections::BTreeSet;

use abide_workflow::{Code, Severity};
use serde_json::{Value, json};

use crate::bench::{definition, findings, finds};

fn task(activity: &str, input: Value) -> Value {
    definition(
        "Work",
        json!({"Work": {"type": "task", "activity": activity, "input": input, "next": "End"}, "End": {"type": "succeed"}}),
    )
}

#[test]
fn top_level_fields_are_checked() {
    let valid = || definition("End", json!({"End": {"type": "succeed"}}));
    finds("valid", &valid(), None, &[]);
    for (rule, field, value, code) in [
        ("another schema", "$schema", json!("other.json"), "invalid-value"),
        ("an id with a slash", "id", json!("a/b"), "invalid-value"),
        ("an empty id", "id", json!(""), "invalid-value"),
        ("half a version", "version", json!("1.0"), "invalid-value"),
        ("a version as a number", "version", json!(1), "wrong-type"),
        ("an unknown field", "timeout", json!("PT1H"), "unknown-field"),
        ("an invalid schema", "input", json!({"type": "strin"}), "invalid-schema"),
        ("a schema as a string", "input", json!("object"), "wrong-type"),
        (
            "a schema that refers outside",
            "input",
            json!({"$ref": "https://example.com/x.json"}),
            "invalid-schema",
        ),
        ("a description as a number", "description", json!(5), "wrong-type"),
        ("a start that is not there", "startAt", json!("Start"), "dangling-target"),
        ("states as an array", "states", json!([]), "wrong-type"),
        ("no states", "states", json!({}), "invalid-value"),
    ] {
        let mut definition = valid();
        definition[field] = value;
        finds(rule, &definition, None, &[(code, &format!("/{field}"))]);
    }
    for field in ["$schema", "id", "version", "startAt", "states"] {
        let mut definition = valid();
        definition.as_object_mut().unwrap().remove(field);
        finds(&format!("{field} is required"), &definition, None, &[("missing-field", "")]);
    }
    let mut elsewhere = valid();
    elsewhere["$schema"] = "https://example.com/schemas/workflow-schema-v1.json".into();
    finds("a schema by URL", &elsewhere, None, &[]);
}

#[test]
fn configuration_is_checked() {
    for (rule, configuration, code, pointer) in [
        ("an unknown field", json!({"retries": 3}), "unknown-field", "/configuration/retries"),
        (
            "an invalid duration",
            json!({"defaultTimeout": "2 days"}),
            "invalid-time",
            "/configuration/defaultTimeout",
        ),
        ("no time", json!({"defaultTimeout": "PT0S"}), "zero-timeout", "/configuration/defaultTimeout"),
        ("never stuck", json!({"stuckAfter": "PT0S"}), "zero-timeout", "/configuration/stuckAfter"),
        ("no transitions", json!({"maxTransitions": 0}), "invalid-value", "/configuration/maxTransitions"),
        (
            "an escalation without a name",
            json!({"timeout": "PT1H", "escalation": {"notify": {"input": 1}}}),
            "missing-field",
            "/configuration/escalation/notify",
        ),
        ("not an object", json!([]), "wrong-type", "/configuration"),
    ] {
        let mut definition = definition("End", json!({"End": {"type": "succeed"}}));
        definition["configuration"] = configuration;
        finds(rule, &definition, None, &[(code, pointer)]);
    }
}

#[test]
fn states_are_checked() {
    for (rule, state, expected) in [
        ("no type", json!({}), ("missing-field", "/states/S")),
        ("an unknown type", json!({"type": "taks"}), ("invalid-value", "/states/S/type")),
        ("not an object", json!(1), ("wrong-type", "/states/S")),
        ("an unknown field", json!({"type": "succeed", "outptu": 1}), ("unknown-field", "/states/S/outptu")),
    ] {
        finds(rule, &definition("S", json!({"S": state})), None, &[expected]);
    }
    let found = findings(&definition("S", json!({"S": {"type": "taks"}})), None);
    assert!(found[0].hint.contains("\"task\""), "{}", found[0].hint);
    let slash = definition("A/B", json!({"A/B": {"type": "succeed"}}));
    finds("a name with a slash", &slash, None, &[("invalid-value", "/states/A~1B")]);
}

#[test]
fn activities_are_checked_against_a_registry_and_noted_without_one() {
    let registry = json!([{"name": "Create", "category": "database", "input": {
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {"id": {"type": "string"}, "n": {"type": "integer", "minimum": 1}, "when": {"enum": ["now", "later"]}}}}]);
    let ok = json!({"id": "$.input.id", "n": 3, "when": "$.input.when"});
    finds("fits", &task("Create", ok), Some(&registry), &[]);
    for (rule, input, pointer) in [
        ("a field is missing", json!({"n": 1}), "/states/Work/input"),
        ("a field too many", json!({"id": "x", "x": 1}), "/states/Work/input"),
        ("a literal of the wrong type", json!({"id": 5}), "/states/Work/input/id"),
        ("a literal out of range", json!({"id": "$.input.id", "n": 0}), "/states/Work/input/n"),
        ("a literal not listed", json!({"id": "a", "when": "never"}), "/states/Work/input/when"),
        ("not an object", json!("text"), "/states/Work/input"),
    ] {
        finds(rule, &task("Create", input), Some(&registry), &[("input-schema-mismatch", pointer)]);
    }
    finds(
        "a secret may be anything",
        &task("Create", json!({"id": {"secretRef": "env://ID"}})),
        Some(&registry),
        &[],
    );
    let mut without = task("Create", json!(1));
    without["states"]["Work"].as_object_mut().unwrap().remove("input");
    finds("no input is null", &without, Some(&registry), &[("input-schema-mismatch", "/states/Work")]);
    finds(
        "unknown",
        &task("Creat", json!({})),
        Some(&registry),
        &[("unknown-activity", "/states/Work/activity")],
    );
    let found = findings(&task("Anything", json!({})), None);
    let reported: Vec<(&str, Severity)> =
        found.iter().map(|finding| (finding.code.as_str(), finding.severity())).collect();
    assert_eq!(reported, [("activities-unchecked", Severity::Note)]);
    assert!(found[0].message.contains("Anything"));
}

#[test]
fn literal_secrets_are_refused_and_references_are_not() {
    for (rule, input, pointer) in [
        ("a key that names a secret", json!({"password": "hunter2"}), "/states/Work/input/password"),
        ("a nested key", json!({"db": {"api_key": "abc"}}), "/states/Work/input/db/api_key"),
        ("a known prefix", json!({"k": "AKIAIOSFODNN7EXAMPLE"}), "/states/Work/input/k"),
        ("a token", json!(["ghp_abcdefghijklmnop"]), "/states/Work/input/0"),
        ("a private key", json!({"k": "-----BEGIN PRIVATE KEY-----"}), "/states/Work/input/k"),
        ("a connection string", json!({"c": "Endpoint=x;SharedAccessKey=abc"}), "/states/Work/input/c"),
        ("a URL with a password", json!({"u": "postgres://user:pw@host/db"}), "/states/Work/input/u"),
        ("long and random", json!({"x": "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b"}), "/states/Work/input/x"),
    ] {
        finds(rule, &task("Work", input), None, &[("literal-secret", pointer)]);
    }
    let placed = |output: Value| definition("End", json!({"End": {"type": "succeed", "output": output}}));
    finds(
        "a reference no activity receives",
        &placed(json!({"k": {"secretRef": "env://K"}})),
        None,
        &[("misplaced-secret", "/states/End/output/k")],
    );
    finds(
        "a reference from data",
        &task("Work", json!({"k": {"secretRef": "$.input.k"}})),
        None,
        &[("invalid-value", "/states/Work/input/k/secretRef")],
    );
    for input in [
        json!({"region": "ASIA-PACIFIC-1", "pipeline": "sk-learn-pipeline"}),
        json!({"password": {"secretRef": "env://PW"}}),
        json!({"password": "$.input.password"}),
        json!({"url": "https://example.com/a:b@c"}),
        json!({"hash": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}),
        json!({"text": "a long sentence about nothing at all that goes on and on, with Words and 1 number"}),
        json!({"id": "0190b2c3-7d4e-7f5a-8b6c-9d0e1f2a3b4c", "secretName": "hmac-key"}),
    ] {
        finds(&input.to_string(), &task("Work", input.clone()), None, &[]);
    }
}

#[test]
fn every_code_has_a_section_in_the_guide_and_the_guide_has_no_others() {
    let guide = include_str!("../../../../docs/guides/validation.md");
    let headings: Vec<&str> =
        guide.lines().filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`')).collect();
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(headings, codes);
}

#[test]
fn every_code_has_a_test_case() {
    let sources = [
        include_str!("choice.rs"),
        include_str!("compensation.rs"),
        include_str!("data.rs"),
        include_str!("ends.rs"),
        include_str!("errors.rs"),
        include_str!("escalation.rs"),
        include_str!("limits.rs"),
        include_str!("loops.rs"),
        include_str!("parallel_map.rs"),
        include_str!("retries.rs"),
        include_str!("validation.rs"),
        include_str!("waits.rs"),
    ]
    .concat();
    let missing: BTreeSet<&str> = Code::ALL
        .iter()
        .map(|code| code.as_str())
        .filter(|code| !sources.contains(&format!("\"{code}\"")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_specification_s_own_example_is_refused_with_exactly_two_errors() {
    let example: Value = serde_json::from_str(include_str!("onboarding-as-specified.json")).unwrap();
    finds(
        "the specification's example",
        &example,
        None,
        &[
            ("dangling-target", "/states/ProcessEventBatch/next"),
            ("dangling-target", "/states/WaitForExternalProcess/timeoutNext"),
        ],
    );
    for finding in findings(&example, None).iter().filter(|finding| finding.severity() == Severity::Error) {
        assert_eq!(finding.consequences, ["so state \"Success\" (/states/Success) cannot be reached"]);
    }
}

#[test]
fn findings_of_a_broken_state_do_not_hide_those_of_another() {
    let states = json!({
        "A": {"type": "task", "next": "B"},
        "B": {"type": "wait", "waitType": "duration", "duration": "soon", "next": "Nowhere"},
    });
    let found = findings(&definition("A", states), None);
    let reported: Vec<(&str, &str)> =
        found.iter().map(|finding| (finding.code.as_str(), finding.pointer.as_str())).collect();
    assert_eq!(
        reported,
        [
            ("missing-field", "/states/A"),
            ("invalid-time", "/states/B/duration"),
            ("dangling-target", "/states/B/next"),
        ]
    );
}

#[test]
fn consequences_of_an_unreadable_state_are_not_separate_findings() {
    for broken in [
        json!({"type": "task", "activity": "A"}),
        json!({"type": "tsk", "activity": "A", "next": "B"}),
        json!(5),
    ] {
        let states = json!({"A": broken, "B": {"type": "task", "activity": "B", "next": "End"}, "End": {"type": "succeed"}});
        let found = findings(&definition("A", states), None);
        let errors: Vec<_> = found.iter().filter(|finding| finding.severity() == Severity::Error).collect();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert_eq!(errors[0].consequences.len(), 2, "{errors:#?}");
    }
}

#[test]
fn malformed_json_is_reported_with_its_line_and_column() {
    let position = |text: &str| {
        abide_workflow::ParsedDefinition::parse(text).validate(None).unwrap_err().findings[0].position
    };
    assert_eq!(position("{\n  \"a\": 1\n  \"b\": 2\n}"), Some((3, 3)));
    assert_eq!(position("{\n  \"a\": 123456789012345678901234\n}"), Some((2, 8)));
    assert_eq!(position(""), Some((1, 1)));
}

#[test]
fn stuck_after_is_the_longest_path_through_the_waits_plus_two_hours() {
    let stuck = |definition: Value| {
        crate::bench::compile(&definition, None).stuck_after().map(|duration| duration.to_string())
    };
    let wait = |duration: &str, next: &str| json!({"type": "wait", "waitType": "duration", "duration": duration, "next": next});
    let states = json!({
        "Pick": {"type": "choice", "choices": [{"when": {"path": "$.input.x", "op": "isPresent"}, "next": "Long"}], "default": "Short"},
        "Long": wait("PT10H", "Short"), "Short": wait("PT1H", "Work"),
        "Work": {"type": "task", "activity": "W", "timeout": "PT1H", "next": "End"}, "End": {"type": "succeed"}});
    assert_eq!(stuck(definition("Pick", states.clone())).unwrap(), "PT14H");
    let mut configured = definition("Pick", states);
    configured["configuration"] = json!({"stuckAfter": "PT3H"});
    assert_eq!(stuck(configured).unwrap(), "PT3H");
    let inner = json!({
        "Fan": {"type": "parallel", "next": "End", "branches": [
            {"startAt": "A", "states": {"A": wait("PT1H", "D"), "D": {"type": "succeed"}}},
            {"startAt": "A", "states": {"A": wait("PT5H", "D"), "D": {"type": "succeed"}}}]},
        "End": {"type": "succeed"}});
    assert_eq!(stuck(definition("Fan", inner)).unwrap(), "PT7H");
    let endless = json!({"Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "End"}, "End": {"type": "succeed"}});
    assert_eq!(stuck(definition("Gate", endless)), None);
}
