//! Probes for attempts without a known result, and how their responses are read.

use serde_json::json;

use super::fixtures::*;
use super::grpc::ScriptedActivities;
use super::server::{Server, reply};
use crate::remote::probe::ProbeOutcome;
use crate::remote::{RemoteActivity, WireFormat};
use crate::status::{RpcCode, RpcStatus};
use crate::transport::{AttemptResult, CallAttempt, CallFailure, UnlimitedPermits};
use crate::wire::{FailureContext, json as wire_json};

fn probed() -> serde_json::Value {
    json!({"probe": true})
}

async fn probe_outcome(remote: &RemoteActivity, call: CallAttempt) -> ProbeOutcome {
    remote.probe(&call, tokio::time::Instant::now(), &UnlimitedPermits).await
}

#[tokio::test]
async fn a_probe_is_the_same_request_with_a_header_and_returns_the_earlier_result() {
    for wire in [WireFormat::Rest, WireFormat::Protobuf, WireFormat::Envelope] {
        let server = Server::always(200, "").await;
        let remote = remote_with(wire, server.address, probed());
        run_attempt(&remote, json!({"n": 1})).await.unwrap();
        let ProbeOutcome::Finished(AttemptResult::Completed(output)) =
            probe_outcome(&remote, call(json!({"n": 1}))).await
        else {
            panic!("{wire:?}")
        };
        assert_eq!(*output, json!(null));
        let [mut delivered, mut probed] = <[_; 2]>::try_from(server.requests()).unwrap();
        assert_eq!((delivered.header("x-abide-probe"), probed.header("x-abide-probe")), ("", "1"));
        probed.headers.remove("x-abide-probe");
        delivered.headers.remove("x-abide-probe");
        assert_eq!((delivered.headers, delivered.body), (probed.headers, probed.body), "{wire:?}");
    }
}

#[tokio::test]
async fn every_status_maps_to_an_outcome_of_the_probe() {
    for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
        let body = wire_json::write_failure(
            &RpcStatus::new(code, "so"),
            code.http_status(),
            FailureContext { execution_id: "", activity: "" },
        );
        let server = Server::always(code.http_status(), body).await;
        let probed =
            probe_outcome(&remote_with(WireFormat::Rest, server.address, probed()), call(json!(1))).await;
        let is_as_expected = match code {
            RpcCode::NotFound => probed == ProbeOutcome::Unknown,
            RpcCode::Aborted => matches!(probed, ProbeOutcome::InProgress(_)),
            RpcCode::Unimplemented => probed == ProbeOutcome::Unsupported,
            RpcCode::Unauthenticated | RpcCode::PermissionDenied => {
                matches!(probed, ProbeOutcome::Unanswered(_))
            }
            code if code.is_retryable() => matches!(probed, ProbeOutcome::Unanswered(_)),
            _ => matches!(
                &probed,
                ProbeOutcome::Finished(AttemptResult::Failed(CallFailure { retryable: false, .. }))
            ),
        };
        assert!(is_as_expected, "{code}: {probed:?}");
    }
}

#[tokio::test]
async fn over_grpc_a_probe_is_a_method_of_its_own() {
    let server = Server::grpc(ScriptedActivities::default()).await;
    let remote = remote_with(WireFormat::Grpc, server.address, probed());
    assert_eq!(probe_outcome(&remote, call(json!(1))).await, ProbeOutcome::Unknown);
    run_attempt(&remote, json!(1)).await.unwrap();
    assert!(
        matches!(probe_outcome(&remote, call(json!(1))).await, ProbeOutcome::Finished(AttemptResult::Completed(output)) if *output == json!(7))
    );
    assert_eq!(server.requests().last().unwrap().path, "/abide.dispatch.v1.Activities/Probe");
}

#[tokio::test]
async fn an_activity_that_does_not_declare_probes_is_not_probed() {
    let server = Server::always(200, "").await;
    for wire in WireFormat::ALL {
        assert_eq!(
            probe_outcome(&remote(wire, server.address), call(json!(1))).await,
            ProbeOutcome::Unsupported
        );
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_bare_http_status_says_nothing_about_the_work() {
    for status in [404, 409, 500, 503] {
        let server = Server::answering(move |_| reply(status, &[], "")).await;
        let probed =
            probe_outcome(&remote_with(WireFormat::Rest, server.address, probed()), call(json!(1))).await;
        assert!(matches!(probed, ProbeOutcome::Unanswered(_)), "{status}: {probed:?}");
    }
}

#[tokio::test]
async fn an_attempt_whose_predecessor_may_have_run_probes_first() {
    let finished = (200, "7");
    let unknown = (404, r#"{"error": {"status": "NOT_FOUND"}}"#);
    let busy = (
        409,
        r#"{"error": {"status": "ABORTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "90s"}]}}"#,
    );
    let unavailable = (503, "");
    for ((status, body), expected, invocations) in [
        (finished, Ok(json!(7)), 0),
        (unknown, Ok(json!("done")), 1),
        (busy, Err(super::fixtures::unknown("IN_PROGRESS")), 0),
        (unavailable, Err(super::fixtures::unknown("Http503")), 0),
        ((404, ""), Ok(json!("done")), 1),
    ] {
        let server = Server::answering(move |received| match received.header("x-abide-probe") {
            "1" => reply(status, &[], body),
            _ => reply(200, &[], r#""done""#),
        })
        .await;
        let mut again = call(json!(1));
        again.probe_first = true;
        let probed =
            result(remote_with(WireFormat::Rest, server.address, probed()).run_attempt(again.clone()).await);
        assert!(probed.as_ref().err().is_none_or(|failure| failure.not_sent), "a probe is not an attempt");
        if let (409, Err(failure)) = (status, &probed) {
            assert_eq!(failure.retry_after_ms, Some(90_000), "work in progress gives a retry delay");
        }
        match expected {
            Ok(output) => assert_eq!(probed, Ok(output), "{status} {body}"),
            Err(failure) => assert_eq!(failure_summary(&probed), failure, "{status} {body}"),
        }
        assert_eq!(server.requests().len(), 1 + invocations, "{status} {body}");
        let plain = result(remote(WireFormat::Rest, server.address).run_attempt(again).await);
        assert_eq!(plain, Ok(json!("done")), "without probes the work is sent at once");
    }
}
