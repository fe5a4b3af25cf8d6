//! Tests of schemas: what is rejected, what a mismatch says, and what exceeds the budget.

use serde_json::{Value, json};

use super::*;

#[test]
fn mismatches_name_the_place_and_the_keyword() {
    let schema =
        Schema::compile(&json!({"required": ["id"], "properties": {"n": {"type": "integer"}}})).unwrap();
    let mismatches = schema.mismatches(&json!({"n": "x"}));
    let reported: Vec<(&str, &str)> =
        mismatches.iter().map(|m| (m.pointer.as_str(), m.keyword.as_str())).collect();
    assert_eq!(reported, [("", "required"), ("/n", "type")]);
    assert_eq!(mismatches[1].message, r#""x" is not of type "integer""#);
    assert!(schema.is_valid(&json!({"id": 1, "n": 2})));
}

#[test]
fn an_invalid_schema_or_one_that_refers_outside_is_rejected() {
    for schema in [
        json!({"type": "no-such-type"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"$ref": "https://example.com/schema"}),
        json!({"pattern": "(a+)+\\1"}),
        json!({"patternProperties": {"(a+)+\\1": {}}}),
        json!({"items": {"$ref": "#/items"}}),
        json!({"$dynamicRef": "#x"}),
        json!({"unevaluatedProperties": false}),
        json!({"items": {"$id": "inner", "$ref": "#/$defs/a"}, "$defs": {"a": {}}}),
    ] {
        assert!(Schema::compile(&schema).is_err(), "{schema}");
    }
    let shared = json!({"$defs": {"id": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/id"}}});
    assert!(Schema::compile(&shared).is_ok());
}

#[test]
fn a_schema_that_explodes_or_nests_without_end_is_rejected() {
    let chain = |length: usize, below: fn(Value) -> Value| {
        let mut schema = json!({"$defs": {"d0": {"type": "integer"}}, "$ref": format!("#/$defs/d{length}")});
        for n in 1..=length {
            schema["$defs"][format!("d{n}")] = below(json!({"$ref": format!("#/$defs/d{}", n - 1)}));
        }
        schema
    };
    assert!(Schema::compile(&chain(30, |below| json!({"allOf": [below, below]}))).is_err(), "exponential");
    assert!(Schema::compile(&chain(3_000, |below| below)).is_err(), "deep");
    assert!(Schema::compile(&chain(100, |below| below)).is_ok());
}

#[test]
fn hidden_values_do_not_appear_in_messages() {
    let schema = json!({"items": {
        "type": "integer", "oneOf": [{"const": 1}], "anyOf": [{"minLength": 9}], "not": {"type": "string"},
        "enum": [1], "pattern": "^x",
    }});
    let schema = Schema::compile(&schema).unwrap();
    let budget = EvaluationBudget::new(EvaluationLimits::default());
    let found = schema.check(&json!(["s3cret"]), &budget, ShownValues::Hidden, 20).unwrap();
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found.iter().all(|mismatch| !mismatch.to_string().contains("s3cret")), "{found:?}");
}

#[test]
fn only_some_mismatches_are_reported_and_their_messages_are_short() {
    let schema = Schema::compile(&json!({"type": "array", "items": {"type": "integer"}})).unwrap();
    let found = schema.mismatches(&json!(vec!["x".repeat(10_000); 100]));
    assert_eq!(found.len(), 20);
    assert!(found.iter().all(|mismatch| mismatch.message.len() <= 400), "{}", found[0].message.len());
}

#[test]
fn a_check_that_exceeds_the_budget_is_undecided() {
    let kinds: Vec<Value> = (0..20).map(|kind| json!({"required": [format!("kind{kind}")]})).collect();
    let schema = Schema::compile(&json!({"items": {"oneOf": kinds}})).unwrap();
    let budget = EvaluationBudget::new(EvaluationLimits { steps_max: 1_000, bytes_max: 100_000 });
    let checked =
        schema.check(&json!(vec![json!({"kind19": 0}); 1_000]), &budget, ShownValues::Truncated, 20);
    assert_eq!(
        checked.unwrap_err().to_string(),
        "the check against the schema needs more than 1000 steps on this data"
    );
    let found = schema.mismatches(&json!(vec![json!({"kind19": 0}); 1_000_000]));
    assert_eq!(found[0].keyword, "evaluationLimit");
    assert!(
        !schema.is_valid(&json!(vec![json!({"kind19": 0}); 1_000_000])),
        "nobody knows whether it matches"
    );
}

#[test]
fn a_large_pattern_on_a_long_text_exceeds_the_budget() {
    let schema = Schema::compile(&json!({"pattern": "^([^-]{1,50}-){9}$"})).unwrap();
    assert_eq!(schema.mismatches(&json!("a".repeat(900_000)))[0].keyword, "evaluationLimit");
    assert_eq!(schema.mismatches(&json!("abc"))[0].keyword, "pattern");
    let usual = Schema::compile(&json!({"items": {"pattern": "^[a-z0-9-]+$"}})).unwrap();
    assert_eq!(usual.mismatches(&json!(vec!["device-0001"; 20_000])), []);
}
