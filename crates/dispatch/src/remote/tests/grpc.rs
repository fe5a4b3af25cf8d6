//! gRPC against a server that is built as others build them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use hyper::Version;
use serde_json::{Value, json};
use tonic::{Request, Response};

use super::parts::*;
use super::server::{Server, reply};
use crate::metadata::tests::metadata;
use crate::remote::Wire;
use crate::status::{Code, Status};
use crate::wire::protobuf::v1::activities_server::Activities;
use crate::wire::protobuf::v1::{InvokeRequest, InvokeResponse, ProbeRequest};
use crate::wire::{About, PAYLOAD_BYTES_MAX, grpc, protobuf};

/// Does what its input says, and remembers what it was sent.
#[derive(Default)]
pub(super) struct Obedient(Mutex<BTreeSet<String>>);

#[tonic::async_trait]
impl Activities for Obedient {
    async fn invoke(
        &self,
        request: Request<InvokeRequest>,
    ) -> Result<Response<InvokeResponse>, tonic::Status> {
        assert_eq!(grpc::read_metadata(request.metadata()), Ok(Some(metadata())));
        let request = request.into_inner();
        let input: Value = serde_json::from_slice(&protobuf::json_of(request.input).unwrap()).unwrap();
        self.0.lock().unwrap().insert(request.activity.clone());
        if let Some(code) = input["fail"].as_str() {
            let status = Status::new(Code::from_name(code).unwrap(), "größer")
                .with_reason("WHY")
                .with_retry_after_ms(5);
            return Err(grpc::write_failure(
                &status,
                About { execution_id: "a", activity: &request.activity },
            ));
        }
        if let Some(bytes) = input["bytes"].as_u64() {
            let text = format!("\"{}\"", "x".repeat(usize::try_from(bytes).unwrap() - 2));
            return Ok(Response::new(protobuf::answer(text.into())));
        }
        Ok(Response::new(protobuf::answer(input.to_string().into())))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<InvokeResponse>, tonic::Status> {
        let name = request.into_inner().activity;
        match self.0.lock().unwrap().contains(&name) {
            true => Ok(Response::new(protobuf::answer("7".to_owned().into()))),
            false => Err(tonic::Status::not_found("nobody has done it")),
        }
    }
}

#[tokio::test]
async fn a_call_is_sent_over_http2_in_the_clear_with_all_metadata_and_its_timeout() {
    let server = Server::grpc(Obedient::default()).await;
    let output = deliver(&remote(Wire::Grpc, server.address), json!({"n": 1})).await;
    assert_eq!(output, Ok(json!({"n": 1})));
    let sent = server.requests().remove(0);
    assert_eq!(sent.path, "/abide.dispatch.v1.Activities/Invoke");
    assert_eq!((sent.version, sent.header("te")), (Version::HTTP_2, "trailers"));
    let timeout: u64 = sent.header("grpc-timeout").strip_suffix('m').unwrap().parse().unwrap();
    assert!((1..=8_000).contains(&timeout), "{timeout}");
}

#[tokio::test]
async fn every_status_is_told_with_its_reason_and_whether_another_delivery_may_help() {
    let server = Server::grpc(Obedient::default()).await;
    for code in Code::all().filter(|code| *code != Code::Ok) {
        let answer = deliver(&remote(Wire::Grpc, server.address), json!({"fail": code.name()})).await;
        assert_eq!(told(&answer), ("WHY", code.is_retryable(), false), "{code}");
        let failed = answer.unwrap_err();
        assert_eq!((failed.message.as_str(), failed.retry_after_ms), ("größer", Some(5)));
        assert_eq!(failed.status, Some(format!("{} {code}", code.http())));
    }
}

#[tokio::test]
async fn an_output_that_is_too_large_is_final_and_one_that_just_fits_is_not() {
    let server = Server::grpc(Obedient::default()).await;
    let remote = remote(Wire::Grpc, server.address);
    assert!(deliver(&remote, json!({"bytes": PAYLOAD_BYTES_MAX})).await.is_ok());
    let answer = deliver(&remote, json!({"bytes": PAYLOAD_BYTES_MAX + 1})).await;
    assert_eq!(told(&answer), last("OutputInvalid"));
    let answer = deliver(&remote, json!({"bytes": 3 * PAYLOAD_BYTES_MAX})).await;
    assert_eq!(told(&answer), last("ResponseTooLarge"));
    assert!(deliver(&remote, json!({})).await.is_ok(), "the connection outlives what nobody read");
}

#[tokio::test]
async fn a_server_that_is_no_grpc_server_is_understood_as_far_as_it_can_be() {
    for (status, headers, expected) in [
        (404, &[][..], last("Http404")),
        (503, &[], unknown("Http503")),
        (503, &[("retry-after", "7")], unsent("Http503")),
        (302, &[("location", "http://127.0.0.1/")], last("RedirectRefused")),
        (200, &[], unknown("UNKNOWN")),
        (200, &[("grpc-status", "0")], last("OutputInvalid")),
        (200, &[("grpc-status", "14")], unknown("UNAVAILABLE")),
        (200, &[("grpc-status", "77")], unsent("UNKNOWN")),
    ] {
        let server = Server::answering(move |_| reply(status, headers, "")).await;
        let answer = deliver(&remote(Wire::Grpc, server.address), json!(1)).await;
        assert_eq!(told(&answer), expected, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn a_base_path_is_kept() {
    let server = Server::answering(|_| reply(404, &[], "")).await;
    for base in ["", "/", "/base", "/base/"] {
        let declared = declared(Wire::Grpc, &format!("http://{}{base}", server.address), json!({}));
        let remote = crate::remote::Remote::new(declared, &outbound()).unwrap();
        let _ = deliver(&remote, json!(1)).await;
        let sent = server.requests().pop().unwrap();
        assert_eq!(sent.path, format!("{}/abide.dispatch.v1.Activities/Invoke", base.trim_end_matches('/')));
    }
}
