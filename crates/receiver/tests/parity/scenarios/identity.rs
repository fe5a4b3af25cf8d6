//! What a call is known by: the seven keys as they arrive, and what makes a piece of work a new one.

use std::collections::BTreeSet;

use abide_dispatch::metadata::{DEADLINE, DISPATCHED_AT};
use abide_workflow::Message;
use serde_json::json;

use super::{again, error, once, status, told};
use crate::over::{Over, WORK};
use crate::process::{one_task, task, workflow};
use crate::world::{World, now};

/// What arrives of the first delivery of the item below, whatever way it came. `T` and `D` stand for the moments.
const ARRIVES: [(&str, &str); 7] = [
    ("x-tpf-correlation-id", "order-7"),
    ("x-tpf-deadline-epoch-ms", "D"),
    ("x-tpf-dispatch-ts-epoch-ms", "T"),
    ("x-tpf-execution-id", "device-7/1"),
    ("x-tpf-idempotency-key", "e48f7e50847144c92592a1c8373c85896de507adcb5061c5110c5158fa640e15"),
    ("x-tpf-parent-item-id", "d22a4847764e7172e2fea41bdf41b497f26dc183baa890d94b52950704c1a45a"),
    ("x-tpf-retry-attempt", "0"),
];

pub(crate) fn the_same_bytes_arrive(over: Over) {
    let world = World::new(over);
    let mut item = task(WORK, &json!({"do": "fail", "status": "UNAVAILABLE", "times": 1}), 3, "Done");
    item["timeout"] = json!("PT1H");
    let iterator = json!({"startAt": "Do", "states": {"Do": item, "Done": {"type": "succeed"}}});
    let process = world.process(&workflow(&json!({
        "Begin": {"type": "map", "items": "$.input.items", "iterator": iterator, "next": "End"},
        "End": {"type": "succeed"},
    })));
    let began = now();
    let view = process.run("device-7", json!({"items": ["one"]})).unwrap();
    assert_eq!(status(&view), "Completed");
    let arrivals = world.arrivals();
    assert_eq!(arrivals.len(), 2);
    let moment = |arrival: usize, key: &str| {
        String::from_utf8(arrivals[arrival].keys[key].clone()).unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(moment(0, DEADLINE), moment(1, DEADLINE), "a deadline is absolute");
    let from = moment(0, DEADLINE) - 3_600_000;
    assert!((began..=moment(0, DISPATCHED_AT)).contains(&from), "an hour from when the item began");
    assert!((from..=moment(1, DISPATCHED_AT)).contains(&moment(0, DISPATCHED_AT)));
    assert!(moment(1, DISPATCHED_AT) <= now());
    for (attempt, arrival) in ["0", "1"].into_iter().zip(&arrivals) {
        let mut keys = arrival.keys.clone();
        keys.insert(DEADLINE.to_owned(), b"D".to_vec());
        keys.insert(DISPATCHED_AT.to_owned(), b"T".to_vec());
        let keys: Vec<(&str, &str)> =
            keys.iter().map(|(key, value)| (key.as_str(), std::str::from_utf8(value).unwrap())).collect();
        let mut expected = ARRIVES;
        expected[6].1 = attempt;
        assert_eq!(keys, expected, "delivery {attempt}");
    }
    // What the handler is given is what arrived, also where the body has it as well.
    let given: Vec<_> = world.book().ran();
    assert_eq!(given, arrivals.iter().map(|arrival| arrival.metadata()).collect::<Vec<_>>());
}

pub(crate) fn a_second_run_is_new_work(over: Over) {
    let world = World::new(over);
    let two = workflow(&json!({
        "Begin": task(WORK, &json!({"step": "one"}), 1, "Two"),
        "Two": task(WORK, &json!({"step": "two"}), 1, "Done"),
        "Done": {"type": "succeed", "output": "$.state.last"},
    }));
    let process = world.process(&two);
    for run in ["a/1", "a/2"] {
        let view = process.run("a", json!({})).unwrap();
        assert_eq!(
            (status(&view), view.output.as_deref()),
            ("Completed", Some(&once(&json!("two")))),
            "{run}"
        );
    }
    let ran = world.book().ran();
    let runs: Vec<&str> = ran.iter().map(|metadata| metadata.execution_id.as_str()).collect();
    assert_eq!(runs, ["a/1", "a/1", "a/2", "a/2"]);
    let keys: BTreeSet<&str> = ran.iter().map(|metadata| metadata.idempotency_key.as_str()).collect();
    assert_eq!(keys.len(), 4, "every key is new, also without its execution id");
    assert_eq!(world.effects().into_values().collect::<Vec<_>>(), [1, 1, 1, 1]);
}

pub(crate) fn what_is_rewound_is_new_work(over: Over) {
    let world = World::new(over);
    let input = json!({"do": "fail", "status": "FAILED_PRECONDITION", "untilMended": true, "step": "charge"});
    let process = world.process(&one_task(&input, 5));
    let view = process.run("a", json!({})).unwrap();
    assert_eq!((status(&view), error(&view)), ("Failed", ("FAILED_PRECONDITION", false)));
    world.book().mended.store(true, std::sync::atomic::Ordering::SeqCst);
    let first = world.arrivals().remove(0);
    let repeated = process.deliver(again(&first, &input)).unwrap_err();
    assert_eq!(told(&repeated), ("FAILED_PRECONDITION", false), "the first answer stays what it was");
    process.order("a", &Message::Rewind { reason: "mended".to_owned() });
    let view = process.ended("a");
    assert_eq!((status(&view), view.output.as_deref()), ("Completed", Some(&once(&json!("charge")))));
    let ran = world.book().ran();
    assert_eq!(ran.len(), 2, "once before, once after");
    assert_eq!((ran[0].execution_id.as_str(), ran[1].execution_id.as_str()), ("a/1", "a/1"));
    assert_ne!(ran[0].idempotency_key, ran[1].idempotency_key);
    assert_eq!(ran[1].retry_attempt, 0, "it is new work, and not delivered before");
    let effects = world.effects();
    assert_eq!(effects.into_iter().collect::<Vec<_>>(), [(format!("a/1 {}", ran[1].idempotency_key), 1)]);
    assert_eq!(process.letters("a").len(), 1, "the first failure");
}
