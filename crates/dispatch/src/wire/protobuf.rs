//! The protobuf messages of `proto/`: over HTTP they are bodies, over gRPC messages.
//!
//! Payloads inside them are JSON; failures are `google.rpc.Status`. Knows nothing about headers or the framing of gRPC.

use bytes::Bytes;
use prost::Message;
use prost_types::Any;
use serde_json::Value;

use super::{
    FAILURE_BYTES_MAX, FailureContext, INPUT_BYTES_MAX, JSON, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX,
    WireDecodeError, json, media_type,
};
use super::{check_size, truncate_for_display};
use crate::status::{RpcCode, RpcStatus};

/// The messages and the service, as generated from `proto/abide/dispatch/v1`.
#[allow(
    clippy::all,
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("abide.dispatch.v1");
}

/// The failures of `proto/google/rpc`.
#[allow(clippy::all, unreachable_pub, unused_qualifications, reason = "generated")]
pub mod rpc {
    tonic::include_proto!("google.rpc");
}

use v1::{InvokeRequest, InvokeResponse, Payload};

const TYPES: &str = "type.googleapis.com/";

/// The message that calls an activity.
pub fn invoke_request(activity: &str, input: &Value) -> InvokeRequest {
    InvokeRequest { activity: activity.to_owned(), input: Some(payload(json::write(input).into())) }
}

/// The message that answers a call, with an output that is JSON already.
pub fn invoke_response(output: Bytes) -> InvokeResponse {
    InvokeResponse { output: Some(payload(output)) }
}

/// Encodes a message as a body.
pub fn write(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

/// Decodes the body of a call.
pub fn read_request(body: Bytes) -> Result<InvokeRequest, WireDecodeError> {
    check_size(body.len(), REQUEST_BYTES_MAX)?;
    InvokeRequest::decode(body).map_err(|_| WireDecodeError::NotProtobuf)
}

/// Decodes the body of a successful response.
pub fn read_invoke_response(body: Bytes) -> Result<InvokeResponse, WireDecodeError> {
    check_size(body.len(), RESPONSE_BYTES_MAX)?;
    InvokeResponse::decode(body).map_err(|_| WireDecodeError::NotProtobuf)
}

/// Decodes the output in the body of a successful response.
pub fn read_response(body: Bytes) -> Result<Value, WireDecodeError> {
    read_output(read_invoke_response(body)?)
}

/// Decodes the output of a response.
pub fn read_output(response: InvokeResponse) -> Result<Value, WireDecodeError> {
    json::read_output(&payload_json(response.output)?)
}

/// The JSON text of a payload, which is not parsed here. An absent payload means null.
pub fn payload_json(payload: Option<Payload>) -> Result<Bytes, WireDecodeError> {
    let Some(Payload { content_type, data }) = payload else { return Ok(Bytes::from_static(b"null")) };
    if content_type.is_empty() && data.is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    if media_type(&content_type) != JSON {
        return Err(WireDecodeError::UnsupportedContentType { found: truncate_for_display(&content_type) });
    }
    check_size(data.len(), INPUT_BYTES_MAX)?;
    Ok(data)
}

/// Encodes the body of a failure.
pub fn write_failure(status: &RpcStatus, about: FailureContext<'_>) -> Vec<u8> {
    let mut details = Vec::new();
    if status.reason.is_some() || status.domain.is_some() {
        let reason = status.reason.clone();
        let domain = status.domain.clone();
        let info = rpc::ErrorInfo { reason: reason.unwrap_or_default(), domain: domain.unwrap_or_default() };
        details.push(pack_detail("google.rpc.ErrorInfo", &info));
    }
    if !about.execution_id.is_empty() {
        let info = rpc::RequestInfo { request_id: about.execution_id.to_owned() };
        details.push(pack_detail("google.rpc.RequestInfo", &info));
    }
    let resource =
        rpc::ResourceInfo { resource_type: "activity".to_owned(), resource_name: about.activity.to_owned() };
    details.push(pack_detail("google.rpc.ResourceInfo", &resource));
    if let Some(wait_ms) = status.retry_after_ms {
        let seconds = i64::try_from(wait_ms / 1_000).unwrap_or(i64::MAX);
        let nanos = i32::try_from(wait_ms % 1_000).unwrap_or_default() * 1_000_000;
        let info = rpc::RetryInfo { retry_delay: Some(prost_types::Duration { seconds, nanos }) };
        details.push(pack_detail("google.rpc.RetryInfo", &info));
    }
    write(&rpc::Status { code: status.code.number(), message: status.message.clone(), details })
}

/// Decodes the failure in a body. None if the body is anything else.
pub fn read_failure(body: &[u8]) -> Option<RpcStatus> {
    check_size(body.len(), FAILURE_BYTES_MAX).ok()?;
    let rpc::Status { code, message, details } = rpc::Status::decode(body).ok()?;
    let code = Some(RpcCode::from_number(code)).filter(|code| *code != RpcCode::Ok)?;
    let mut status = RpcStatus::new(code, message);
    for detail in details {
        match detail.type_url.strip_prefix(TYPES) {
            Some("google.rpc.ErrorInfo") => {
                if let Ok(rpc::ErrorInfo { reason, domain }) = rpc::ErrorInfo::decode(detail.value.as_slice())
                {
                    status = status.with_reason(reason).with_domain(domain);
                }
            }
            Some("google.rpc.RetryInfo") => {
                if let Some(wait_ms) = retry_delay_ms(&detail.value) {
                    status = status.with_retry_after_ms(wait_ms);
                }
            }
            _ => {}
        }
    }
    Some(status)
}

fn retry_delay_ms(info: &[u8]) -> Option<u64> {
    let delay = rpc::RetryInfo::decode(info).ok()?.retry_delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    let nanos = u64::try_from(delay.nanos).ok()?;
    seconds.checked_mul(1_000)?.checked_add(nanos / 1_000_000)
}

fn payload(data: Bytes) -> Payload {
    Payload { content_type: JSON.to_owned(), data }
}

fn pack_detail(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPES}{name}"), value: message.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ABOUT: FailureContext<'static> = FailureContext { execution_id: "device-7/1", activity: "charge" };

    /// The bytes are spelled out: services in other languages rely on them.
    #[test]
    fn the_bytes_of_a_request_never_change() {
        let body = write(&invoke_request("charge", &json!({"a": 1})));
        let expected =
            [b"\x0a\x06charge\x12\x1b\x0a\x10application/json\x12\x07".as_slice(), br#"{"a":1}"#].concat();
        assert_eq!(body, expected);
        let read = read_request(body.into()).unwrap();
        assert_eq!(read.activity, "charge");
        assert_eq!(payload_json(read.input).unwrap(), br#"{"a":1}"#.as_slice());
    }

    #[test]
    fn a_response_round_trips_and_an_empty_one_is_null() {
        let body = write(&invoke_response(Bytes::from_static(br#"{"runs":1}"#)));
        assert_eq!(read_response(body.into()), Ok(json!({"runs": 1})));
        assert_eq!(read_response(Bytes::new()), Ok(Value::Null));
        let blank = InvokeResponse { output: Some(Payload::default()) };
        assert_eq!(read_output(blank), Ok(Value::Null));
    }

    #[test]
    fn a_body_that_is_no_message_or_no_json_is_rejected() {
        assert_eq!(read_response(Bytes::from_static(b"not found")), Err(WireDecodeError::NotProtobuf));
        assert_eq!(read_request(Bytes::from_static(b"{}")), Err(WireDecodeError::NotProtobuf));
        let of = |content_type: &str, data: &'static [u8]| {
            let data = Bytes::from_static(data);
            read_output(InvokeResponse {
                output: Some(Payload { content_type: content_type.to_owned(), data }),
            })
        };
        assert_eq!(of("Application/JSON; charset=utf-8", b"1"), Ok(json!(1)));
        for content_type in ["", "text/plain", "application/json+x"] {
            assert!(
                matches!(of(content_type, b"1"), Err(WireDecodeError::UnsupportedContentType { .. })),
                "{content_type}"
            );
        }
        assert!(matches!(of(JSON, b"{"), Err(WireDecodeError::NotJson { .. })));
        let long = Bytes::from(vec![b' '; REQUEST_BYTES_MAX + 1]);
        assert!(matches!(read_response(long.clone()), Err(WireDecodeError::TooLarge { .. })));
        assert!(matches!(read_request(long), Err(WireDecodeError::TooLarge { .. })));
    }

    #[test]
    fn a_failure_round_trips() {
        for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
            let plain = RpcStatus::new(code, "wrong");
            let full = plain.clone().with_reason("WHY").with_domain("us").with_retry_after_ms(1_005);
            for status in [plain, full] {
                assert_eq!(read_failure(&write_failure(&status, ABOUT)), Some(status));
            }
        }
    }

    #[test]
    fn a_failure_names_the_execution_and_the_activity() {
        let status = RpcStatus::new(RpcCode::NotFound, "no").with_reason("WHY");
        let written = rpc::Status::decode(write_failure(&status, ABOUT).as_slice()).unwrap();
        let names: Vec<&str> = written.details.iter().map(|detail| detail.type_url.as_str()).collect();
        let expected = ["ErrorInfo", "RequestInfo", "ResourceInfo"];
        assert_eq!(names, expected.map(|name| format!("type.googleapis.com/google.rpc.{name}")));
        let request = rpc::RequestInfo::decode(written.details[1].value.as_slice()).unwrap();
        let resource = rpc::ResourceInfo::decode(written.details[2].value.as_slice()).unwrap();
        assert_eq!(request.request_id, "device-7/1");
        assert_eq!(
            (resource.resource_type.as_str(), resource.resource_name.as_str()),
            ("activity", "charge")
        );
    }

    #[test]
    fn a_body_that_is_no_failure_is_ignored() {
        let fine = write(&rpc::Status { code: 0, message: "fine".to_owned(), details: Vec::new() });
        let long =
            write(&rpc::Status { code: 5, message: "x".repeat(FAILURE_BYTES_MAX), details: Vec::new() });
        for body in [b"".as_slice(), b"not found", b"<html>", b"{}", &fine, &long] {
            assert_eq!(read_failure(body), None);
        }
        let strange = rpc::Status { code: 77, message: String::new(), details: Vec::new() };
        assert_eq!(read_failure(&write(&strange)), Some(RpcStatus::new(RpcCode::Unknown, "")));
    }
}
