//! gRPC: one message in each direction, each behind a prefix of five bytes, and the status in the trailers.
//!
//! Written by hand rather than left to a generated client: a call is one message, and a signature needs the bytes that
//! are sent. Knows nothing about connections or retries.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, TE};
use serde_json::Value;

use super::exchange::{RequestKind, output_undecodable, success_body};
use crate::egress_guard::Target;
use crate::http::{HttpResponse, response_too_large};
use crate::transport::{CallAttempt, CallFailure};
use crate::wire::protobuf::v1::ProbeRequest;
use crate::wire::{BODY_BYTES_MAX, WireDecodeError, grpc, protobuf};

pub(super) use crate::wire::grpc::{CONTENT_TYPE, PREFIX_BYTES};

const TIMEOUT_HEADER: HeaderName = HeaderName::from_static("grpc-timeout");
/// A timeout has eight digits at most.
const TIMEOUT_VALUE_MAX: u128 = 99_999_999;

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

pub(super) fn add_headers(headers: &mut HeaderMap, left: Duration) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
    // Digits and a letter are always a valid header value.
    if let Ok(timeout) = HeaderValue::try_from(format_timeout(left)) {
        headers.insert(TIMEOUT_HEADER, timeout);
    }
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
            let body = body.ok_or_else(|| response_too_large(target, BODY_BYTES_MAX))?;
            let message =
                grpc::decode_frame(body).ok_or_else(|| output_undecodable(&WireDecodeError::NotProtobuf))?;
            protobuf::read_response(message).map_err(|error| output_undecodable(&error))
        }
        None if body.is_none() => Err(response_too_large(target, BODY_BYTES_MAX)),
        None => {
            let message = format!("{target} answered without a gRPC status");
            Err(CallFailure::retryable("UNKNOWN", message).with_outcome_unknown())
        }
    }
}

/// The time that is left, as gRPC spells it.
fn format_timeout(left: Duration) -> String {
    let millis = left.as_millis().max(1);
    if millis <= TIMEOUT_VALUE_MAX {
        format!("{millis}m")
    } else {
        format!("{}S", (millis / 1_000).min(TIMEOUT_VALUE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_at_most_eight_digits() {
        for (left, text) in [
            (Duration::ZERO, "1m"),
            (Duration::from_micros(1_500), "1m"),
            (Duration::from_secs(10), "10000m"),
            (Duration::from_millis(99_999_999), "99999999m"),
            (Duration::from_millis(100_000_000), "100000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(format_timeout(left), text);
        }
    }
}
