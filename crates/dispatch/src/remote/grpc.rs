//! gRPC: one message in each direction, each behind a prefix of five bytes, and the status in the trailers.
//!
//! Written by hand rather than left to a generated client: a call is one message, and a signature needs the bytes that
//! are sent. Knows nothing about connections or retries.

use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue, TE};
use serde_json::Value;

use super::exchange::{RequestKind, body_of, output_undecodable, success_body};
use crate::egress_guard::Target;
use crate::http::{HttpResponse, response_too_large};
use crate::transport::{CallAttempt, CallFailure};
use crate::wire::protobuf::v1::ProbeRequest;
use crate::wire::{RESPONSE_BYTES_MAX, WireDecodeError, grpc, protobuf};

pub(super) use crate::wire::grpc::{CONTENT_TYPE, PREFIX_BYTES};

/// The path of the method for this kind of request.
pub(super) fn method_path(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Invoke => grpc::INVOKE_PATH,
        RequestKind::Probe => grpc::PROBE_PATH,
    }
}

pub(super) fn write(call: &CallAttempt, kind: RequestKind) -> Bytes {
    match kind {
        RequestKind::Invoke => grpc::encode_frame(&protobuf::invoke_request(&call.activity, &call.input)),
        RequestKind::Probe => grpc::encode_frame(&ProbeRequest { activity: call.activity.clone() }),
    }
}

/// There is no `grpc-timeout`: as on the other wires, the deadline is in the metadata alone. The library of a service
/// would end its handler after such a timeout, and it is the sender who ends an attempt.
pub(super) fn add_headers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

pub(super) fn read(response: &HttpResponse, target: &Target) -> Result<Value, CallFailure> {
    // A gateway in between may answer without knowing gRPC.
    let body = if response.status.as_u16() == 200 {
        response.body.as_ref()
    } else {
        Some(success_body(response, target, |_| None)?)
    };
    // A failure without a message has its status in the head.
    let status = [&response.trailers, &response.headers].into_iter().find_map(tonic::Status::from_header_map);
    match status {
        Some(status) if status.code() != tonic::Code::Ok => Err(grpc::read_failure(&status).into()),
        Some(_) => {
            let body = body.ok_or_else(|| response_too_large(target, RESPONSE_BYTES_MAX))?;
            let message = grpc::decode_frame(body)
                .ok_or_else(|| output_undecodable(&WireDecodeError::NotProtobuf, response))?;
            protobuf::read_response(message).map_err(|error| output_undecodable(&error, response))
        }
        None if body.is_none() => Err(response_too_large(target, RESPONSE_BYTES_MAX)),
        None => {
            let server = target.without_query();
            let message = format!("{server} answered without a gRPC status{}", body_of(response).describe());
            Err(CallFailure::retryable("UNKNOWN", message).with_outcome_unknown())
        }
    }
}
