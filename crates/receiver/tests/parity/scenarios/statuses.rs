//! All seventeen statuses: the error that the workflow gets, whether the call is retried, and what is recorded.

use abide_dispatch::RpcCode;
use abide_dispatch::call_journal::FinalReason;
use abide_runtime::run::CallState;
use serde_json::{Value, json};

use super::{once, status};
use crate::fixture::ParityFixture;
use crate::node_process::{NodeProcess, task, workflow};
use crate::transport::{ParityTransport, WORK};

pub(crate) fn every_status_is_retried_or_permanent(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let process = fixture.process(&catching());
    // All runs at once; they are independent.
    for code in RpcCode::all() {
        let call = if code == RpcCode::Ok { json!({}) } else { json!({"do": "fail", "status": code.name()}) };
        process.start(&name(code), json!({"call": call}));
    }
    let mut checked = 0;
    for code in RpcCode::all() {
        check(&fixture, &process, code);
        checked += 1;
    }
    assert_eq!(checked, 17);
}

fn check(fixture: &ParityFixture, process: &NodeProcess, code: RpcCode) {
    let id = name(code);
    let view = process.wait_for_end(&id);
    let execution = format!("{id}/1");
    let runs =
        fixture.activity_log().handled().iter().filter(|metadata| metadata.execution_id == execution).count();
    let calls = process.calls(&id);
    let letters = process.dead_letters(&id);
    assert_eq!((status(&view), calls.len()), ("Completed", 1), "{code}: {:?}", view.error);
    let output = view.output.as_deref().unwrap();
    if code == RpcCode::Ok {
        assert_eq!((output, runs, letters.len()), (&once(&Value::Null), 1, 0));
        assert_eq!(calls[0].state, CallState::Acked);
        return;
    }
    // The error is caught by its name, after all attempts if it is retryable, else after the first.
    assert_eq!(output["caughtAs"], code.name(), "{code}");
    assert_eq!(output["error"]["code"], code.name(), "{code}");
    assert_eq!(output["error"]["retryable"], code.is_retryable(), "{code}");
    assert_eq!(runs, if code.is_retryable() { 2 } else { 1 }, "runs of {code}");
    let reason = if code.is_retryable() { FinalReason::RetryExhausted } else { FinalReason::NonRetryable };
    assert_eq!(letters.len(), 1, "{code}");
    assert_eq!(letters[0].1["terminalReason"], reason.as_str(), "{code}");
    assert_eq!(letters[0].1["lastStatus"], format!("{} {code}", code.http_status()));
    assert_eq!(calls[0].state, CallState::FailedFinal(reason), "{code}");
}

fn name(code: RpcCode) -> String {
    format!("status-{}", code.number())
}

/// A workflow with two attempts that catches each code in its own state.
fn catching() -> Value {
    let mut states = json!({
        "Begin": task(WORK, &json!("$.input.call"), 2, "Done"),
        "Done": {"type": "succeed", "output": "$.state.last"},
    });
    let mut handlers = Vec::new();
    for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
        handlers.push(json!({"match": [code.name()], "next": code.name()}));
        let output = json!({"caughtAs": code.name(), "error": "$.error"});
        states[code.name()] = json!({"type": "succeed", "output": output});
    }
    states["Begin"]["onError"] = handlers.into();
    workflow(&states)
}
