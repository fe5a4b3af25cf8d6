//! All seventeen statuses: what the workflow is told of each, whether it is tried again, and what is left behind.

use abide_dispatch::Code;
use abide_dispatch::journal::FinalReason;
use abide_runtime::run::CallState;
use serde_json::{Value, json};

use super::{once, status};
use crate::over::{Over, WORK};
use crate::process::{Process, task, workflow};
use crate::world::World;

pub(crate) fn every_status_is_tried_again_or_not(over: Over) {
    let world = World::new(over);
    let process = world.process(&catching());
    // All at once; they do not know of each other.
    for code in Code::all() {
        let call = if code == Code::Ok { json!({}) } else { json!({"do": "fail", "status": code.name()}) };
        process.start(&name(code), json!({"call": call}));
    }
    let mut met = 0;
    for code in Code::all() {
        check(&world, &process, code);
        met += 1;
    }
    assert_eq!(met, 17);
}

fn check(world: &World, process: &Process, code: Code) {
    let id = name(code);
    let view = process.ended(&id);
    let execution = format!("{id}/1");
    let ran = world.book().ran().iter().filter(|metadata| metadata.execution_id == execution).count();
    let (calls, letters) = (process.calls(&id), process.letters(&id));
    assert_eq!((status(&view), calls.len()), ("Completed", 1), "{code}: {:?}", view.error);
    let output = view.output.as_deref().unwrap();
    if code == Code::Ok {
        assert_eq!((output, ran, letters.len()), (&once(&Value::Null), 1, 0));
        assert_eq!(calls[0].state, CallState::Acked);
        return;
    }
    // Caught by its name, after all attempts or after the first.
    assert_eq!(output["caughtAs"], code.name(), "{code}");
    assert_eq!(output["error"]["code"], code.name(), "{code}");
    assert_eq!(output["error"]["retryable"], code.is_retryable(), "{code}");
    assert_eq!(ran, if code.is_retryable() { 2 } else { 1 }, "runs of {code}");
    let reason = if code.is_retryable() { FinalReason::RetryExhausted } else { FinalReason::NonRetryable };
    assert_eq!(letters.len(), 1, "{code}");
    assert_eq!(letters[0].1["terminalReason"], reason.as_str(), "{code}");
    assert_eq!(letters[0].1["lastStatus"], format!("{} {code}", code.http()));
    assert_eq!(calls[0].state, CallState::FailedFinal(reason), "{code}");
}

fn name(code: Code) -> String {
    format!("status-{}", code.number())
}

/// Tries twice; what fails is caught by its code, each by a state of its own.
fn catching() -> Value {
    let mut states = json!({
        "Begin": task(WORK, &json!("$.input.call"), 2, "Done"),
        "Done": {"type": "succeed", "output": "$.state.last"},
    });
    let mut handlers = Vec::new();
    for code in Code::all().filter(|code| *code != Code::Ok) {
        handlers.push(json!({"match": [code.name()], "next": code.name()}));
        let output = json!({"caughtAs": code.name(), "error": "$.error"});
        states[code.name()] = json!({"type": "succeed", "output": output});
    }
    states["Begin"]["onError"] = handlers.into();
    workflow(&states)
}
