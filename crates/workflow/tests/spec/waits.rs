//! The `wait` state: for a duration, until a timestamp, for an event; and invalid waits.

use serde_json::{Value, json};

use crate::bench::{case, check, definition, finds};

fn wait(wait: Value) -> Value {
    let mut state = json!({"type": "wait", "next": "End"});
    for (name, value) in wait.as_object().unwrap() {
        state[name] = value.clone();
    }
    json!({"Wait": state, "End": {"type": "succeed"}})
}

#[test]
fn a_wait_ends_when_its_time_has_come() {
    let ends = |timer: &'static str| ["Wait", timer, "fired", "End", "Completed null"];
    let duration = wait(json!({"waitType": "duration", "duration": "PT1H"}));
    check("a duration", &case("Wait", duration), &ends("timer PT1H"));
    let from_path = wait(json!({"waitType": "duration", "duration": "$.input.pause"}));
    check(
        "a duration from data",
        &case("Wait", from_path).input(json!({"pause": "P1D"})),
        &ends("timer P1D"),
    );
    // The bench starts at 2026-01-01T00:00:00Z.
    let timestamp = wait(json!({"waitType": "timestamp", "timestamp": "2026-01-01T06:00:00Z"}));
    check("a timestamp", &case("Wait", timestamp), &ends("timer PT6H"));
    let from_path = wait(json!({"waitType": "timestamp", "timestamp": "$.input.at"}));
    check(
        "a timestamp from data",
        &case("Wait", from_path).input(json!({"at": "2026-01-02T00:00:00Z"})),
        &ends("timer P1D"),
    );
    let past = wait(json!({"waitType": "timestamp", "timestamp": "2020-01-01T00:00:00Z"}));
    check("a timestamp in the past", &case("Wait", past), &ends("timer PT0S"));
}

#[test]
fn a_wait_with_an_invalid_time_is_an_error_that_can_be_caught() {
    let states = |waits: Value| {
        let mut states = wait(waits);
        states["Wait"]["onError"] = "Caught".into();
        states["Caught"] = json!({"type": "succeed", "output": "$.error.code"});
        states
    };
    let duration = states(json!({"waitType": "duration", "duration": "$.input.pause"}));
    let caught = |code: &str| {
        vec![
            "Wait".to_owned(),
            format!("{code} -> Caught"),
            "Caught".to_owned(),
            format!("Completed \"{code}\""),
        ]
    };
    for (input, code) in [
        (json!({}), "PathMissing"),
        (json!({"pause": 5}), "TypeMismatch"),
        (json!({"pause": "soon"}), "TypeMismatch"),
    ] {
        let expected = caught(code);
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&input.to_string(), &case("Wait", duration.clone()).input(input), &expected);
    }
}

#[test]
fn malformed_waits_are_refused_at_their_place() {
    for (rule, waits, code, pointer) in [
        ("an unknown kind", json!({"waitType": "signal"}), "invalid-value", "/states/Wait/waitType"),
        ("no kind", json!({}), "missing-field", "/states/Wait"),
        (
            "an invalid duration",
            json!({"waitType": "duration", "duration": "5 minutes"}),
            "invalid-time",
            "/states/Wait/duration",
        ),
        (
            "a month has no length",
            json!({"waitType": "duration", "duration": "P1M"}),
            "invalid-time",
            "/states/Wait/duration",
        ),
        (
            "an invalid timestamp",
            json!({"waitType": "timestamp", "timestamp": "noon"}),
            "invalid-time",
            "/states/Wait/timestamp",
        ),
        ("an event without a name", json!({"waitType": "externalEvent"}), "missing-field", "/states/Wait"),
        (
            "an empty name",
            json!({"waitType": "externalEvent", "eventName": ""}),
            "invalid-value",
            "/states/Wait/eventName",
        ),
        (
            "a timeout on a plain wait",
            json!({"waitType": "duration", "duration": "PT1S", "timeout": "PT1S"}),
            "unknown-field",
            "/states/Wait/timeout",
        ),
    ] {
        finds(rule, &definition("Wait", wait(waits)), None, &[(code, pointer)]);
    }
}
