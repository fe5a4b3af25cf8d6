//! What one turn allocates at most, counted by the allocator: drawn and hostile definitions on hostile data near the
//! limits of an input. The only test of its process, because the allocator counts for all threads.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

use abide_workflow::{
    Instance, InstanceId, Limits, Outcome, ParsedDefinition, Plan, RunNumber, RunOrigin, Status, Timestamp,
    advance,
};
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MEBIBYTE: usize = 1024 * 1024;
const TURN_BYTES_MAX: usize = 64 * MEBIBYTE;

/// Large data whose shape makes some path costly; each has nearly the bytes that an input may have.
fn hostile_data() -> Vec<Value> {
    let nested = |leaf: Value| (0..55).fold(leaf, |inner, _| json!({"serial": inner}));
    let pair = |leaf: Value| (0..8).fold(leaf, |inner, _| json!([inner]));
    vec![
        json!({"a": vec![0; 450_000]}),
        json!({"a": pair(json!(vec![0; 400_000]))}),
        json!({"a": nested(json!(vec![0; 400_000]))}),
        json!({"a": nested(json!("x".repeat(900_000)))}),
        json!({"a": pair(json!(vec![json!({}); 200_000]))}),
        json!({"a": vec![json!({"serial": 0}); 60_000]}),
        json!({"a": vec![0; 50_000], "p": vec![0; 150_000], "q": vec![0; 150_000]}),
        json!({"a": vec!["a".repeat(60_000); 14], "q": format!("{}b", "*a".repeat(120))}),
    ]
}

fn paths() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec![
        "[0,0]",
        "[*]",
        "[0]",
        "..*",
        "..serial",
        "..[?@]",
        "[?@ == 0]",
        "[?$.input.p == $.input.q]",
        "[?count(@[*]) > 1]",
        "[?length(@) > 1]",
        "[?@[?@[?@ == 0]]]",
        "[::-1,::1]",
    ]);
    prop::collection::vec(segment, 0..8).prop_map(|segments| format!("$.input.a{}", segments.concat()))
}

/// Definitions that evaluate paths: in conditions, as the items of a map, in a template.
fn definitions(first: &str, second: &str) -> [Value; 3] {
    let end = json!({"type": "succeed"});
    let compared = |op: &str| json!({"when": {"path": first, "op": op, "valuePath": second}, "next": "End"});
    let choices = ["eq", "in", "contains", "lt", "matches"].map(compared);
    let iterator = json!({"startAt": "Done", "states": {"Done": {"type": "succeed", "output": "$.item"}}});
    [
        json!({"Start": {"type": "choice", "choices": choices, "default": "End"}, "End": end}),
        json!({"Start": {"type": "map", "items": first, "maxConcurrency": 1, "iterator": iterator, "next": "End"}, "End": end}),
        json!({"Start": {"type": "succeed", "output": {"first": first, "second": second}}}),
    ]
}

fn compile(states: &Value) -> Option<Plan> {
    let definition = json!({
        "$schema": "workflow-schema-v1.json", "id": "costly", "version": "1.0.0",
        "startAt": "Start", "states": states,
    });
    Some(ParsedDefinition::parse(&definition.to_string()).validate(None).ok()?.compile())
}

/// The most memory that any of the first turns allocates, and how the run ended if it did.
fn play(plan: &Plan, input: &Value) -> (usize, Option<Outcome>) {
    let mut origin = RunOrigin::new(InstanceId::new("i").unwrap(), RunNumber(1), plan);
    origin.input = input.clone().into();
    let mut instance = Instance::pending(origin, Timestamp(0));
    let mut peak = 0;
    for _ in 0..20 {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let turn = advance(plan, &mut instance, &[], Timestamp(0), &Limits::default()).unwrap();
        peak = peak.max(ALLOCATOR.peak_usage() - before);
        if turn.status != Status::Running {
            return (peak, instance.outcome().cloned());
        }
    }
    (peak, None)
}

#[test]
fn no_turn_allocates_more_than_64_mebibytes() {
    let data = hostile_data();
    for (path, data) in [
        (format!("$.input.a{}..*", "[0,0]".repeat(8)), &data[1]),
        ("$.input..serial".to_owned(), &data[2]),
        ("$.input..serial".to_owned(), &data[3]),
        ("$.input.a[?$.input.p == $.input.q]".to_owned(), &data[6]),
    ] {
        for states in definitions(&path, "$.input.q?") {
            let (peak, outcome) = play(&compile(&states).unwrap(), data);
            assert!(peak <= TURN_BYTES_MAX, "{path}: {peak} bytes");
            let Some(Outcome::Failed(failure)) = outcome else { panic!("{path}: {outcome:?} of {states}") };
            assert!(
                ["EvaluationLimitExceeded", "PayloadTooLarge"].contains(&failure.code.as_str()),
                "{failure:?}"
            );
        }
    }
    let drawn = (paths(), paths(), 0..3_usize, 0..data.len());
    let mut runner = TestRunner::new(Config { cases: 96, ..Config::default() });
    runner
        .run(&drawn, |(first, second, kind, data_of)| {
            let Some(plan) = compile(&definitions(&first, &second)[kind]) else { return Ok(()) };
            let (peak, _) = play(&plan, &data[data_of]);
            prop_assert!(peak <= TURN_BYTES_MAX, "{peak} bytes: {first} and {second} on data {data_of}");
            Ok(())
        })
        .unwrap();
}
