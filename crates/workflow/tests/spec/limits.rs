//! Limits: reaching one is a typed error, a warning or a park; never a panic, never a lost run.

use abide_workflow::ParsedDefinition;
use serde_json::{Value, json};

use crate::bench::{case, check, definition, findings, story};

fn looping() -> Value {
    json!({
        "Work": {"type": "task", "activity": "Work", "next": "Pause"},
        "Pause": {"type": "wait", "waitType": "duration", "duration": "PT1S", "next": "Check"},
        "Check": {"type": "choice", "choices": [{"when": {"path": "$.input.stop?", "op": "eq", "value": true}, "next": "End"}], "default": "Work"},
        "End": {"type": "succeed"},
    })
}

#[test]
fn many_transitions_cause_a_warning_and_then_park_the_run() {
    let mut states = looping();
    states["Check"]["choices"][0]["when"]["path"] = "$.input.stop".into();
    let case = case("Work", states).configuration(json!({"maxTransitions": 5}));
    check(
        "parked",
        &case,
        &[
            "Work",
            "Work(null)",
            "= null",
            "Pause",
            "timer PT1S",
            "fired",
            "Check",
            "note: 4 of 5 transitions",
            "Work #2",
            "Work(null)",
            "= null",
            "Pause #2",
            "timer PT1S",
            "fired",
            "suspended",
            "waits in Check",
        ],
    );
    let resumed_early = case.clone().control("PT0.5S", "suspend").control("PT0.6S", "resume");
    let early = story(&resumed_early.play(resumed_early.limits.turn, true));
    let entered = early
        .iter()
        .filter(|line| ["Work", "Pause", "Check"].iter().any(|name| line.split(' ').next() == Some(name)))
        .count();
    assert_eq!(entered, 5, "resuming before the limit allows no more: {early:?}");
    let resumed = case.control("PT1H", "resume");
    let lines = story(&resumed.play(resumed.limits.turn, true));
    assert_eq!(
        lines.iter().filter(|line| *line == "suspended").count(),
        2,
        "the same limit again, then parked again: {lines:?}"
    );
    let of_the_loop = |line: &&String| ["Work", "Pause", "Check"].contains(&line.split(' ').next().unwrap());
    assert_eq!(lines.iter().filter(of_the_loop).count(), 10);
    assert_eq!(lines.iter().filter(|line| line.starts_with("note")).count(), 2, "warned of again");
}

#[test]
fn data_beyond_its_limit_is_an_error_that_can_be_caught() {
    let states = json!({
        "Work": {"type": "task", "activity": "Big", "output": "$.state.big", "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.code"}, "End": {"type": "succeed"},
    });
    let base = case("Work", states).mock("Big", json!({"result": "x".repeat(2000)}));
    let data = base.clone().limits(|limits| limits.data_bytes_max = 1000);
    assert_eq!(story(&data.play(data.limits.turn, true)).last().unwrap(), "Completed \"DataLimitExceeded\"");
    let payload = base.clone().limits(|limits| {
        limits.payload_bytes_max = 1000;
        limits.call_bytes_max = 1000;
    });
    assert_eq!(
        story(&payload.play(payload.limits.turn, true)).last().unwrap(),
        "Completed \"PayloadTooLarge\""
    );
    assert_eq!(story(&base.play(base.limits.turn, true)).last().unwrap(), "Completed null");
}

#[test]
fn an_input_beyond_the_limit_fails_the_run_and_nothing_runs() {
    let case = case("Work", looping())
        .input(json!({"x": "y".repeat(2000)}))
        .limits(|limits| limits.payload_bytes_max = 1000);
    check("input", &case, &["Failed PayloadTooLarge in ?"]);
}

#[test]
fn an_event_beyond_the_limit_is_refused() {
    let states = json!({"Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "next": "End"}, "End": {"type": "succeed"}});
    let case = case("Gate", states).limits(|limits| limits.payload_bytes_max = 100).event(
        "PT1S",
        "Go",
        json!("x".repeat(200)),
    );
    check("event", &case, &["Gate", "refused: the payload has 203 bytes; the limit is 100", "waits in Gate"]);
}

#[test]
fn deep_values_are_errors_and_never_stored() {
    let mut deep = json!(1);
    for _ in 0..63 {
        deep = json!([deep]);
    }
    let states = json!({
        "Work": {"type": "task", "activity": "Deep", "output": "$.state.a.b", "onError": "Caught", "next": "End"},
        "Caught": {"type": "succeed", "output": "$.error.code"}, "End": {"type": "succeed"},
    });
    let case = case("Work", states).mock("Deep", json!([{"result": null}]));
    // The mock file is read strictly too, so the deep result is echoed from an input that is just within the limit.
    let mut case = case.mock("Deep", json!({"echo": true})).input(json!({}));
    case.definition["states"]["Work"]["input"] = json!({"x": "$.input.deep?", "y": [["$.state.deeper?"]]});
    assert_eq!(story(&case.play(case.limits.turn, true)).last().unwrap(), "Completed null");
    let within = {
        let mut case = case.clone();
        case.definition["states"]["Work"]["input"] = json!("$.input");
        case.definition["states"]["Work"]["output"] = json!("$.state.a.b");
        case.input(json!({"d": deep}))
    };
    assert_eq!(story(&within.play(within.limits.turn, true)).last().unwrap(), "Completed \"DepthExceeded\"");
}

#[test]
fn definitions_beyond_their_limits_are_refused_with_one_finding() {
    let codes_of = |text: &str| {
        let error = ParsedDefinition::parse(text).validate(None).unwrap_err();
        error.findings.into_iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>()
    };
    let mut states: serde_json::Map<String, Value> = serde_json::Map::new();
    for n in 0..1001 {
        states.insert(format!("S{n:04}"), json!({"type": "wait", "waitType": "duration", "duration": "PT1S", "next": format!("S{:04}", n + 1)}));
    }
    states.insert("S1001".to_owned(), json!({"type": "succeed"}));
    let codes = codes_of(&definition("S0000", Value::Object(states)).to_string());
    assert!(codes.contains(&"limit-exceeded"), "{codes:?}");
    let long = format!("{{\"description\": \"{}\"}}", "x".repeat(1024 * 1024));
    assert_eq!(codes_of(&long), ["limit-exceeded"]);
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    assert_eq!(codes_of(&deep), ["malformed-json"]);
    assert_eq!(codes_of("{\"a\": 123456789012345678901234567890}"), ["malformed-json"]);
    assert_eq!(codes_of("{\"a\": 1, \"a\": 2}"), ["malformed-json"]);
    assert_eq!(codes_of("{"), ["malformed-json"]);
    assert_eq!(codes_of("[]"), ["wrong-type"]);
}

#[test]
fn a_definition_of_a_thousand_states_is_valid() {
    let mut states: serde_json::Map<String, Value> = serde_json::Map::new();
    for n in 0..999 {
        states.insert(
            format!("S{n:04}"),
            json!({"type": "task", "activity": "A", "next": format!("S{:04}", n + 1)}),
        );
    }
    states.insert("S0999".to_owned(), json!({"type": "succeed"}));
    let definition = definition("S0000", Value::Object(states));
    assert!(
        findings(&definition, None).iter().all(|finding| finding.code.as_str() == "activities-unchecked")
    );
    let case = case("S0000", definition["states"].clone());
    assert_eq!(story(&case.play(case.limits.turn, false)).last().unwrap(), "Completed null");
}

#[test]
fn a_terminated_map_of_a_thousand_waits_ends_in_bounded_turns() {
    let states = json!({
        "Each": {"type": "map", "items": "$.input.items", "next": "End", "iterator": {"startAt": "Gate", "states": {
            "Gate": {"type": "wait", "waitType": "externalEvent", "eventName": "Go", "timeout": "PT1H", "next": "Done"},
            "Done": {"type": "succeed"}}}},
        "End": {"type": "succeed"},
    });
    let case = case("Each", states).input(json!({"items": vec![0; 1000]})).control("PT1M", "terminate");
    let playback = case.play(case.limits.turn, false);
    assert_eq!(story(&playback).last().unwrap(), "Terminated");
    assert!(playback.turns >= 8, "2,000 commands do not fit one turn of 256");
}
