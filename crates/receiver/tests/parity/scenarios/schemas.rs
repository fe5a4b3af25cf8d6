//! Inputs and outputs that violate an activity's schemas: a permanent failure in both cases.

use serde_json::{Value, json};

use super::{error, status};
use crate::fixture::ParityFixture;
use crate::node_process::{NodeProcess, task, workflow};
use crate::transport::{ParityTransport, STRICT};

pub(crate) fn a_schema_violation_is_permanent(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let process = fixture.process(&workflow(&json!({
        "Begin": task(STRICT, &json!("$.input"), 5, "Done"),
        "Done": {"type": "succeed"},
    })));
    fails(&process, "wrong-input", json!({"n": "one"}), "InputInvalid");
    assert_eq!(
        (fixture.requests(), fixture.activity_log().handled()),
        (vec![], vec![]),
        "the call was not sent"
    );
    fails(&process, "wrong-output", json!({"n": 1, "do": "text"}), "OutputInvalid");
    assert_eq!(
        (fixture.requests().len(), fixture.activity_log().handled().len()),
        (1, 1),
        "the handler ran once"
    );
    let view = process.run("right", json!({"n": 1})).unwrap();
    assert_eq!(status(&view), "Completed");
}

fn fails(process: &NodeProcess, id: &str, input: Value, code: &str) {
    let view = process.run(id, input).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", (code, false)), "{id}");
    let letters = process.dead_letters(id);
    assert_eq!(letters.len(), 1, "{id}");
    let attempts = if code == "InputInvalid" { 0 } else { 1 };
    assert_eq!(
        (&letters[0].1["terminalReason"], &letters[0].1["attempts"]),
        (&json!("non_retryable"), &json!(attempts)),
        "a call with an invalid input is not sent"
    );
    assert!(
        letters[0].0.error_message.contains(if code == "InputInvalid" { "/n" } else { "output" }),
        "{letters:?}"
    );
}
