//! What a check against a schema allocates at most, counted by the allocator: drawn and hostile schemas on data near
//! the limits of an input. The only test of its process, because the allocator counts for all threads.

use abide_evaluation::schema::{Schema, ShownValues};
use abide_evaluation::{EvaluationBudget, EvaluationLimits};
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const CHECK_BYTES_MAX: usize = 64 * 1024 * 1024;

fn hostile_data() -> Vec<Value> {
    let nested = |leaf: Value| (0..60).fold(leaf, |inner, _| json!({"a": inner}));
    let names = |count: usize| (0..count).map(|n| (format!("name{n}"), json!(0))).collect();
    vec![
        json!(vec![0; 500_000]),
        json!(vec!["x"; 250_000]),
        json!(vec![json!({}); 300_000]),
        json!(vec![json!({"a": 0}); 100_000]),
        nested(json!(vec![0; 450_000])),
        json!("x".repeat(1_000_000)),
        json!(vec!["a".repeat(1_000); 1_000]),
        Value::Object(names(60_000)),
        json!((0..140_000).collect::<Vec<_>>()),
    ]
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({"type": "string"}),
        json!({"type": "object", "required": ["id"]}),
        json!({"enum": [1, 2, 3]}),
        json!({"pattern": "^(\\w{1,9}-)+$"}),
        json!({"uniqueItems": true}),
        json!({"format": "email", "minLength": 3}),
        json!({"const": 0}),
        json!({"maxProperties": 2, "maxItems": 2}),
        json!({"contentMediaType": "application/json"}),
        json!(false),
    ]);
    leaf.prop_recursive(4, 24, 20, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..20).boxed();
        let one = |name: &'static str| inner.clone().prop_map(move |schema| json!({name: schema}));
        let many = |name: &'static str| several.clone().prop_map(move |schemas| json!({name: schemas}));
        prop_oneof![
            one("items"),
            one("additionalProperties"),
            one("propertyNames"),
            one("contains"),
            one("not"),
            many("oneOf"),
            many("anyOf"),
            many("allOf"),
            many("prefixItems"),
            inner.clone().prop_map(|schema| json!({"properties": {"a": schema}})),
            inner.clone().prop_map(|schema| json!({"patternProperties": {"^n": schema}})),
        ]
    })
}

/// The most memory that a check allocates, within the budget by which it was charged.
fn peak_of(schema: &Schema, value: &Value, limits: EvaluationLimits) -> usize {
    let budget = EvaluationBudget::new(limits);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let _ = schema.check(value, &budget, ShownValues::Truncated, 20);
    let (steps, bytes) = budget.used();
    assert!(steps <= limits.steps_max && bytes <= limits.bytes_max);
    ALLOCATOR.peak_usage() - before
}

#[test]
fn no_check_allocates_more_than_64_mebibytes() {
    let data = hostile_data();
    let kinds: Vec<Value> =
        (0..20).map(|kind| json!({"properties": {"kind": {"const": kind}}, "type": "object"})).collect();
    let schema = Schema::compile(&json!({"items": {"oneOf": kinds}})).unwrap();
    let peak = peak_of(&schema, &data[0], EvaluationLimits::default());
    assert!(peak <= 1024 * 1024, "{peak} bytes for the mismatches of half a million items");
    let drawn = (any_schema(), prop::sample::select(vec!["2020-12", "07"]), 0..data.len());
    let mut runner = TestRunner::new(Config { cases: 128, ..Config::default() });
    runner
        .run(&drawn, |(mut schema, draft, data_of)| {
            if draft == "07" && schema.is_object() {
                schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
            }
            let Ok(compiled) = Schema::compile(&schema) else { return Ok(()) };
            let peak = peak_of(&compiled, &data[data_of], EvaluationLimits::default());
            prop_assert!(peak <= CHECK_BYTES_MAX, "{peak} bytes: {schema} on data {data_of}");
            Ok(())
        })
        .unwrap();
}
