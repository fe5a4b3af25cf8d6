//! What becomes of failures: final ones are answers, all others leave the work to be done.

use abide_dispatch::Code;
use serde_json::json;

use crate::wires::{Sent, Wire};
use crate::world::{World, metadata, work};

pub(crate) async fn every_final_failure_is_recorded_and_told_again(wire: Wire) {
    let world = World::new().await;
    for code in Code::all().filter(|code| *code != Code::Ok && !code.is_retryable()) {
        let before = world.ran();
        let sent = work(code.name(), json!({"do": "fail", "status": code.name()}));
        let first = world.send(wire, &sent).await;
        assert_eq!((first.http, first.refusal()), (code.http(), (code.name(), "ASKED")));
        assert_eq!((first.failure().domain.as_deref(), world.ran()), (Some("tests"), before + 1));
        assert_eq!(world.send(wire, &sent).await, first, "{code}");
        assert_eq!(world.restarted().await.send(wire, &sent).await, first, "{code}");
        assert_eq!(world.ran(), before + 1, "{code}");
    }
}

pub(crate) async fn after_every_retryable_failure_the_next_attempt_runs(wire: Wire) {
    let world = World::new().await;
    for code in Code::all().filter(|code| code.is_retryable()) {
        let sent = work(code.name(), json!({"do": "fail", "status": code.name()}));
        for _ in 0..2 {
            let before = world.ran();
            let told = world.send(wire, &sent).await;
            assert_eq!((told.http, told.refusal()), (code.http(), (code.name(), "ASKED")));
            assert_eq!(world.ran(), before + 1, "{code}");
        }
        assert!(world.send(wire, &work(code.name(), json!({}))).await.answer.is_ok(), "{code}");
    }
}

pub(crate) async fn a_panic_is_a_retryable_internal_failure(wire: Wire) {
    let world = World::new().await;
    let told = world.send(wire, &work("k", json!({"do": "panic"}))).await;
    assert_eq!((told.http, told.refusal()), (500, ("INTERNAL", "HANDLER_PANICKED")));
    assert!(!told.failure().message.contains("as asked"), "what it said may quote the input");
    assert_eq!(world.send(wire, &work("k", json!({}))).await.output()["ran"], 2);
}

pub(crate) async fn a_handler_that_takes_too_long_is_given_up_and_may_run_again(wire: Wire) {
    let world = World::new().await;
    let told = world.send(wire, &work("k", json!({"do": "hang"}))).await;
    assert_eq!((told.http, told.refusal()), (504, ("DEADLINE_EXCEEDED", "HANDLER_TIMEOUT")));
    assert_eq!(world.send(wire, &work("k", json!({}))).await.output()["ran"], 2);
}

pub(crate) async fn an_output_that_is_too_large_is_a_final_failure_without_effect(wire: Wire) {
    let world = World::new().await;
    for (key, input) in
        [("big", json!({"do": "big", "chars": 2 * 1024 * 1024})), ("deep", json!({"do": "deep"}))]
    {
        let before = world.ran();
        let told = world.send(wire, &work(key, input.clone())).await;
        assert_eq!((told.http, told.refusal()), (400, ("OUT_OF_RANGE", "OUTPUT_TOO_LARGE")), "{key}");
        assert_eq!(world.send(wire, &work(key, input)).await, told);
        assert_eq!(world.ran(), before + 1);
    }
    assert_eq!(world.effects().await, 0);
    let largest = work("largest", json!({"do": "big", "chars": 1024 * 1024 - 2}));
    assert_eq!(world.send(wire, &largest).await.answer.unwrap().len(), 1024 * 1024);
}

pub(crate) async fn an_unknown_activity_is_not_found(wire: Wire) {
    let world = World::new().await;
    let told = world.send(wire, &Sent::new("nobody", &metadata("k"), &json!({}))).await;
    assert_eq!((told.http, told.refusal()), (404, ("NOT_FOUND", "ACTIVITY_UNKNOWN")));
    assert_eq!(told.failure().domain.as_deref(), Some("abide.dispatch"));
}

/// Read back as the details are, by hand: the shared reader has no use for them.
pub(crate) async fn a_failure_says_who_asked(wire: Wire) {
    let world = World::new().await;
    let sent = work("k", json!({"do": "fail", "status": "NOT_FOUND"}));
    let body = sent.raw_failure(wire, &world.router).await;
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("RequestInfo") && text.contains("device-7/1"), "{text}");
    if matches!(wire, Wire::Protobuf | Wire::Grpc) {
        assert!(text.contains("ResourceInfo") && text.contains("activity"), "{text}");
    }
}
