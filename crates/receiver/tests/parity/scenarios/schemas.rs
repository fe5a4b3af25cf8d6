//! What does not fit the schemas of an activity: final, whichever side is wrong.

use serde_json::{Value, json};

use super::{error, status};
use crate::over::{Over, STRICT};
use crate::process::{Process, task, workflow};
use crate::world::World;

pub(crate) fn what_does_not_fit_is_final(over: Over) {
    let world = World::new(over);
    let process = world.process(&workflow(&json!({
        "Begin": task(STRICT, &json!("$.input"), 5, "Done"),
        "Done": {"type": "succeed"},
    })));
    fails(&process, "wrong-input", json!({"n": "one"}), "InputInvalid");
    assert_eq!((world.arrivals(), world.book().ran()), (vec![], vec![]), "it was not sent");
    fails(&process, "wrong-output", json!({"n": 1, "do": "text"}), "OutputInvalid");
    assert_eq!((world.arrivals().len(), world.book().ran().len()), (1, 1), "it ran, and not again");
    let view = process.run("right", json!({"n": 1})).unwrap();
    assert_eq!(status(&view), "Completed");
}

fn fails(process: &Process, id: &str, input: Value, code: &str) {
    let view = process.run(id, input).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", (code, false)), "{id}");
    let letters = process.letters(id);
    assert_eq!(letters.len(), 1, "{id}");
    let deliveries = if code == "InputInvalid" { 0 } else { 1 };
    assert_eq!(
        (&letters[0].1["terminalReason"], &letters[0].1["attempts"]),
        (&json!("non_retryable"), &json!(deliveries)),
        "what does not fit is not sent"
    );
    assert!(
        letters[0].0.error_message.contains(if code == "InputInvalid" { "/n" } else { "output" }),
        "{letters:?}"
    );
}
