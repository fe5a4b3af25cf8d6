//! gRPC against a server that is built with the usual library.

use std::collections::BTreeSet;
use std::sync::Mutex;

use hyper::Version;
use serde_json::{Value, json};
use tonic::{Request, Response};

use super::fixtures::*;
use super::server::{Server, reply};
use crate::metadata::tests::metadata;
use crate::remote::WireFormat;
use crate::status::{RpcCode, RpcStatus};
use crate::wire::protobuf::v1::activities_server::Activities;
use crate::wire::protobuf::v1::{InvokeRequest, InvokeResponse, ProbeRequest};
use crate::wire::{FailureContext, OUTPUT_BYTES_MAX, grpc, protobuf};

/// Does what its input says, and remembers which activities were called.
#[derive(Default)]
pub(super) struct ScriptedActivities(Mutex<BTreeSet<String>>);

#[tonic::async_trait]
impl Activities for ScriptedActivities {
    async fn invoke(
        &self,
        request: Request<InvokeRequest>,
    ) -> Result<Response<InvokeResponse>, tonic::Status> {
        assert_eq!(grpc::read_metadata(request.metadata()), Ok(Some(metadata())));
        let request = request.into_inner();
        let input: Value = serde_json::from_slice(&protobuf::payload_json(request.input).unwrap()).unwrap();
        self.0.lock().unwrap().insert(request.activity.clone());
        if let Some(code) = input["fail"].as_str() {
            let status = RpcStatus::new(RpcCode::from_name(code).unwrap(), "größer")
                .with_reason("WHY")
                .with_retry_after_ms(5);
            return Err(grpc::write_failure(
                &status,
                FailureContext { execution_id: "a", activity: &request.activity },
            ));
        }
        if let Some(bytes) = input["bytes"].as_u64() {
            let text = format!("\"{}\"", "x".repeat(usize::try_from(bytes).unwrap() - 2));
            return Ok(Response::new(protobuf::invoke_response(text.into())));
        }
        Ok(Response::new(protobuf::invoke_response(input.to_string().into())))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<InvokeResponse>, tonic::Status> {
        let name = request.into_inner().activity;
        match self.0.lock().unwrap().contains(&name) {
            true => Ok(Response::new(protobuf::invoke_response("7".to_owned().into()))),
            false => Err(tonic::Status::not_found("never invoked")),
        }
    }
}

#[tokio::test]
async fn a_call_is_sent_over_http2_without_tls_with_all_metadata_and_no_other_timeout() {
    let server = Server::grpc(ScriptedActivities::default()).await;
    let output = run_attempt(&remote(WireFormat::Grpc, server.address), json!({"n": 1})).await;
    assert_eq!(output, Ok(json!({"n": 1})));
    let sent = server.requests().remove(0);
    assert_eq!(sent.path, "/abide.dispatch.v1.Activities/Invoke");
    assert_eq!((sent.version, sent.header("te")), (Version::HTTP_2, "trailers"));
    assert_eq!(sent.header("x-tpf-deadline-epoch-ms"), metadata().deadline.unwrap().0.to_string());
    assert!(!sent.headers.contains_key("grpc-timeout"), "the deadline travels in the metadata alone");
}

#[tokio::test]
async fn every_status_becomes_a_failure_with_its_reason_and_retryability() {
    let server = Server::grpc(ScriptedActivities::default()).await;
    for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
        let result =
            run_attempt(&remote(WireFormat::Grpc, server.address), json!({"fail": code.name()})).await;
        assert_eq!(failure_summary(&result), ("WHY", code.is_retryable(), false), "{code}");
        let failed = result.unwrap_err();
        assert_eq!((failed.message.as_str(), failed.retry_after_ms), ("größer", Some(5)));
        assert_eq!(failed.status, Some(format!("{} {code}", code.http_status())));
    }
}

#[tokio::test]
async fn an_output_over_the_size_limit_fails_permanently_and_one_at_the_limit_does_not() {
    let server = Server::grpc(ScriptedActivities::default()).await;
    let remote = remote(WireFormat::Grpc, server.address);
    assert!(run_attempt(&remote, json!({"bytes": OUTPUT_BYTES_MAX})).await.is_ok());
    let result = run_attempt(&remote, json!({"bytes": OUTPUT_BYTES_MAX + 1})).await;
    assert_eq!(failure_summary(&result), permanent("OutputInvalid"));
    let result = run_attempt(&remote, json!({"bytes": 3 * OUTPUT_BYTES_MAX})).await;
    assert_eq!(failure_summary(&result), permanent("ResponseTooLarge"));
    assert!(
        run_attempt(&remote, json!({})).await.is_ok(),
        "the connection survives a response that was not read"
    );
}

#[tokio::test]
async fn responses_of_servers_that_are_not_grpc_are_classified() {
    for (status, headers, expected) in [
        (404, &[][..], permanent("Http404")),
        (503, &[], unknown("Http503")),
        (503, &[("retry-after", "7")], unsent("Http503")),
        (302, &[("location", "http://127.0.0.1/")], permanent("RedirectRefused")),
        (200, &[], unknown("UNKNOWN")),
        (200, &[("grpc-status", "0")], permanent("OutputInvalid")),
        (200, &[("grpc-status", "14")], unknown("UNAVAILABLE")),
        (200, &[("grpc-status", "77")], unsent("UNKNOWN")),
    ] {
        let server = Server::answering(move |_| reply(status, headers, "")).await;
        let result = run_attempt(&remote(WireFormat::Grpc, server.address), json!(1)).await;
        assert_eq!(failure_summary(&result), expected, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn a_base_path_is_kept() {
    let server = Server::answering(|_| reply(404, &[], "")).await;
    for base in ["", "/", "/base", "/base/"] {
        let declared = declared(WireFormat::Grpc, &format!("http://{}{base}", server.address), json!({}));
        let remote = crate::remote::RemoteActivity::new(declared, &outbound()).unwrap();
        let _ = run_attempt(&remote, json!(1)).await;
        let sent = server.requests().pop().unwrap();
        assert_eq!(sent.path, format!("{}/abide.dispatch.v1.Activities/Invoke", base.trim_end_matches('/')));
    }
}
