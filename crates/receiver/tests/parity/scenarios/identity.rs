//! The identity of calls: the seven metadata keys as they arrive, and when a call is a new one.

use std::collections::BTreeSet;

use abide_dispatch::metadata::{DEADLINE, DISPATCHED_AT};
use abide_workflow::Message;
use serde_json::json;

use super::{again, error, once, status, told};
use crate::fixture::{ParityFixture, now};
use crate::node_process::{one_task, task, workflow};
use crate::transport::{ParityTransport, WORK};

/// The metadata of the first attempt of the item below, over every transport. `T` and `D` stand for the times.
const ARRIVES: [(&str, &str); 7] = [
    ("x-tpf-correlation-id", "order-7"),
    ("x-tpf-deadline-epoch-ms", "D"),
    ("x-tpf-dispatch-ts-epoch-ms", "T"),
    ("x-tpf-execution-id", "device-7/1"),
    ("x-tpf-idempotency-key", "e48f7e50847144c92592a1c8373c85896de507adcb5061c5110c5158fa640e15"),
    ("x-tpf-parent-item-id", "d22a4847764e7172e2fea41bdf41b497f26dc183baa890d94b52950704c1a45a"),
    ("x-tpf-retry-attempt", "0"),
];

pub(crate) fn the_same_bytes_arrive(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let mut item = task(WORK, &json!({"do": "fail", "status": "UNAVAILABLE", "times": 1}), 3, "Done");
    item["timeout"] = json!("PT1H");
    let iterator = json!({"startAt": "Do", "states": {"Do": item, "Done": {"type": "succeed"}}});
    let process = fixture.process(&workflow(&json!({
        "Begin": {"type": "map", "items": "$.input.items", "iterator": iterator, "next": "End"},
        "End": {"type": "succeed"},
    })));
    let began = now();
    let view = process.run("device-7", json!({"items": ["one"]})).unwrap();
    assert_eq!(status(&view), "Completed");
    let requests = fixture.requests();
    assert_eq!(requests.len(), 2);
    let time = |request: usize, key: &str| {
        String::from_utf8(requests[request].keys[key].clone()).unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(time(0, DEADLINE), time(1, DEADLINE), "a deadline is absolute");
    let from = time(0, DEADLINE) - 3_600_000;
    assert!((began..=time(0, DISPATCHED_AT)).contains(&from), "an hour from when the item began");
    assert!((from..=time(1, DISPATCHED_AT)).contains(&time(0, DISPATCHED_AT)));
    assert!(time(1, DISPATCHED_AT) <= now());
    for (attempt, request) in ["0", "1"].into_iter().zip(&requests) {
        let mut keys = request.keys.clone();
        keys.insert(DEADLINE.to_owned(), b"D".to_vec());
        keys.insert(DISPATCHED_AT.to_owned(), b"T".to_vec());
        let keys: Vec<(&str, &str)> =
            keys.iter().map(|(key, value)| (key.as_str(), std::str::from_utf8(value).unwrap())).collect();
        let mut expected = ARRIVES;
        expected[6].1 = attempt;
        assert_eq!(keys, expected, "attempt {attempt}");
    }
    // The handler gets the metadata that arrived, even if the body contains it as well.
    let given: Vec<_> = fixture.activity_log().handled();
    assert_eq!(given, requests.iter().map(|request| request.metadata()).collect::<Vec<_>>());
}

pub(crate) fn a_second_run_makes_new_calls(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let two = workflow(&json!({
        "Begin": task(WORK, &json!({"step": "one"}), 1, "Two"),
        "Two": task(WORK, &json!({"step": "two"}), 1, "Done"),
        "Done": {"type": "succeed", "output": "$.state.last"},
    }));
    let process = fixture.process(&two);
    for run in ["a/1", "a/2"] {
        let view = process.run("a", json!({})).unwrap();
        assert_eq!(
            (status(&view), view.output.as_deref()),
            ("Completed", Some(&once(&json!("two")))),
            "{run}"
        );
    }
    let handled = fixture.activity_log().handled();
    let runs: Vec<&str> = handled.iter().map(|metadata| metadata.execution_id.as_str()).collect();
    assert_eq!(runs, ["a/1", "a/1", "a/2", "a/2"]);
    let keys: BTreeSet<&str> = handled.iter().map(|metadata| metadata.idempotency_key.as_str()).collect();
    assert_eq!(keys.len(), 4, "keys differ even without the execution id");
    assert_eq!(fixture.effect_counts().into_values().collect::<Vec<_>>(), [1, 1, 1, 1]);
}

pub(crate) fn a_rewound_step_makes_a_new_call(over: ParityTransport) {
    let fixture = ParityFixture::new(over);
    let input = json!({"do": "fail", "status": "FAILED_PRECONDITION", "untilMended": true, "step": "charge"});
    let process = fixture.process(&one_task(&input, 5));
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", ("FAILED_PRECONDITION", false)));
    fixture.activity_log().repaired.store(true, std::sync::atomic::Ordering::SeqCst);
    let first = fixture.requests().remove(0);
    let repeated = process.invoke(again(&first, &input)).unwrap_err();
    assert_eq!(told(&repeated), ("FAILED_PRECONDITION", false), "the recorded failure stays");
    process.send_control("a", &Message::Rewind { reason: "mended".to_owned() });
    let view = process.wait_for_end("a");
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    let handled = fixture.activity_log().handled();
    assert_eq!(handled.len(), 2, "once before, once after");
    assert_eq!((handled[0].execution_id.as_str(), handled[1].execution_id.as_str()), ("a/1", "a/1"));
    assert_ne!(handled[0].idempotency_key, handled[1].idempotency_key);
    assert_eq!(handled[1].retry_attempt, 0, "it is a new call without earlier attempts");
    let effects = fixture.effect_counts();
    assert_eq!(effects.into_iter().collect::<Vec<_>>(), [(format!("a/1 {}", handled[1].idempotency_key), 1)]);
    assert_eq!(process.dead_letters("a").len(), 1, "of the first failure");
}
