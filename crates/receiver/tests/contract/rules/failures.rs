//! Rules for failures: permanent ones are recorded; after all others the next attempt runs.

use abide_dispatch::RpcCode;
use serde_json::json;

use crate::fixture::{ContractFixture, metadata, work};
use crate::wires::{TestCall, Wire};

pub(crate) async fn every_permanent_failure_is_recorded_and_returned_again(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for code in RpcCode::all().filter(|code| *code != RpcCode::Ok && !code.is_retryable()) {
        let before = fixture.runs();
        let call = work(code.name(), json!({"do": "fail", "status": code.name()}));
        let first = fixture.send(wire, &call).await;
        assert_eq!((first.http, first.refusal()), (code.http_status(), (code.name(), "ASKED")));
        assert_eq!((first.failure().domain.as_deref(), fixture.runs()), (Some("tests"), before + 1));
        assert_eq!(fixture.send(wire, &call).await, first, "{code}");
        assert_eq!(fixture.restarted().await.send(wire, &call).await, first, "{code}");
        assert_eq!(fixture.runs(), before + 1, "{code}");
    }
}

pub(crate) async fn a_panic_is_a_retryable_internal_failure(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let response = fixture.send(wire, &work("k", json!({"do": "panic"}))).await;
    assert_eq!((response.http, response.refusal()), (500, ("INTERNAL", "HANDLER_PANICKED")));
    assert!(!response.failure().message.contains("planted panic"), "a panic message may quote the input");
    assert_eq!(fixture.send(wire, &work("k", json!({}))).await.output()["ran"], 2);
}

pub(crate) async fn a_handler_that_takes_too_long_is_aborted_and_may_run_again(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let response = fixture.send(wire, &work("k", json!({"do": "hang"}))).await;
    assert_eq!((response.http, response.refusal()), (504, ("DEADLINE_EXCEEDED", "HANDLER_TIMEOUT")));
    assert_eq!(fixture.send(wire, &work("k", json!({}))).await.output()["ran"], 2);
}

pub(crate) async fn an_output_that_is_too_large_is_a_permanent_failure_without_effect(wire: Wire) {
    let fixture = ContractFixture::new().await;
    for (key, input) in
        [("big", json!({"do": "big", "chars": 2 * 1024 * 1024})), ("deep", json!({"do": "deep"}))]
    {
        let before = fixture.runs();
        let response = fixture.send(wire, &work(key, input.clone())).await;
        assert_eq!((response.http, response.refusal()), (400, ("OUT_OF_RANGE", "OUTPUT_TOO_LARGE")), "{key}");
        assert_eq!(fixture.send(wire, &work(key, input)).await, response);
        assert_eq!(fixture.runs(), before + 1);
    }
    assert_eq!(fixture.effects().await, 0);
    let largest = work("largest", json!({"do": "big", "chars": 1024 * 1024 - 2}));
    assert_eq!(fixture.send(wire, &largest).await.result.unwrap().len(), 1024 * 1024);
}

pub(crate) async fn an_unknown_activity_is_not_found(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let response = fixture.send(wire, &TestCall::new("unknown", &metadata("k"), &json!({}))).await;
    assert_eq!((response.http, response.refusal()), (404, ("NOT_FOUND", "ACTIVITY_UNKNOWN")));
    assert_eq!(response.failure().domain.as_deref(), Some("abide.dispatch"));
}

/// The details are searched as text, because the shared decoder ignores them.
pub(crate) async fn a_failure_names_its_execution(wire: Wire) {
    let fixture = ContractFixture::new().await;
    let call = work("k", json!({"do": "fail", "status": "NOT_FOUND"}));
    let body = call.raw_failure(wire, &fixture.router).await;
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("RequestInfo") && text.contains("device-7/1"), "{text}");
    if matches!(wire, Wire::Protobuf | Wire::Grpc) {
        assert!(text.contains("ResourceInfo") && text.contains("activity"), "{text}");
    }
}
