//! The common part of all wire formats: encodes requests and decodes responses, and classifies failed HTTP responses.
//!
//! Each wire format is a file that encodes and decodes; none of them connects, waits or decides about retries.

use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use serde_json::Value;

use super::declaration::WireFormat;
use super::{envelope, grpc, protobuf, rest};
use crate::contract::{input_invalid, output_invalid};
use crate::egress_guard::Target;
use crate::http::{HttpResponse, add_metadata_headers, response_too_large};
use crate::status::excerpt::AnsweredBody;
use crate::status::{self, RpcStatus};
use crate::transport::{CallAttempt, CallFailure};
use crate::wire::{
    INPUT_BYTES_MAX, PROBE_HEADER, REQUEST_BYTES_MAX, RESPONSE_BYTES_MAX, WireDecodeError, json,
};

/// The kind of a request to an activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    /// Runs the work, or returns its earlier result.
    Invoke,
    /// Returns the earlier result, and runs nothing.
    Probe,
}

/// A request in one wire format.
#[derive(Debug)]
pub(super) struct EncodedRequest {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Encodes the request of a call. An input that is larger than receivers accept is not sent.
pub(super) fn encode_request(
    wire: WireFormat,
    call: &CallAttempt,
    kind: RequestKind,
) -> Result<EncodedRequest, CallFailure> {
    let (content_type, body) = match wire {
        WireFormat::Rest => (crate::wire::JSON, rest::write(call)),
        WireFormat::Protobuf => (crate::wire::PROTOBUF, protobuf::write(call)),
        WireFormat::Grpc => (grpc::CONTENT_TYPE, grpc::write(call, kind)),
        WireFormat::Envelope => (crate::wire::ENVELOPE, envelope::write(call)),
    };
    // Only a large body can contain a large input, so most inputs are encoded once.
    if body.len() > INPUT_BYTES_MAX {
        check_input_size(&call.input, body.len())?;
    }
    let mut headers = HeaderMap::with_capacity(16);
    add_metadata_headers(&call.metadata, &mut headers)
        .map_err(|invalid| CallFailure::permanent("MetadataInvalid", invalid.to_string()))?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(USER_AGENT, HeaderValue::from_static("abide"));
    if wire == WireFormat::Grpc {
        grpc::add_headers(&mut headers);
    } else {
        headers.insert(ACCEPT, HeaderValue::from_static(content_type));
        if kind == RequestKind::Probe {
            headers.insert(PROBE_HEADER, HeaderValue::from_static("1"));
        }
    }
    Ok(EncodedRequest { headers, body })
}

fn check_input_size(input: &Value, body_bytes: usize) -> Result<(), CallFailure> {
    let bytes = json::write(input).len();
    if bytes <= INPUT_BYTES_MAX && body_bytes <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    Err(input_invalid(&format!("\"\": {bytes} bytes exceed the limit of {INPUT_BYTES_MAX}")))
}

/// The output of a response, or the failure that it reports.
pub(super) fn decode_response(
    wire: WireFormat,
    response: &HttpResponse,
    target: &Target,
) -> Result<Value, CallFailure> {
    match wire {
        WireFormat::Rest => rest::read(response, target),
        WireFormat::Protobuf => protobuf::read(response, target),
        WireFormat::Grpc => grpc::read(response, target),
        WireFormat::Envelope => envelope::read(response, target),
    }
}

/// The body of a success; otherwise the failure, with the status in its body if `read_status` can decode one.
pub(super) fn success_body<'e>(
    response: &'e HttpResponse,
    target: &Target,
    read_status: fn(&[u8]) -> Option<RpcStatus>,
) -> Result<&'e Bytes, CallFailure> {
    // Most responses are successes, so no status is looked for in them.
    if response.status.is_success() {
        return response.body.as_ref().ok_or_else(|| response_too_large(target, RESPONSE_BYTES_MAX));
    }
    let server = target.without_query();
    let failed = status::http::FailureResponse {
        status: response.status.as_u16(),
        body_status: response.body.as_deref().and_then(read_status),
        retry_after: response.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()),
        server: &server,
        body: body_of(response),
    };
    match failed.into_failure() {
        Some(failure) => Err(failure),
        None => response.body.as_ref().ok_or_else(|| response_too_large(target, RESPONSE_BYTES_MAX)),
    }
}

/// A success whose body cannot be decoded. What is no JSON is shown, because it did not come from the activity: a proxy
/// in front of it, say. Other payloads are not shown.
pub(super) fn output_undecodable(error: &WireDecodeError, response: &HttpResponse) -> CallFailure {
    let is_foreign = matches!(error, WireDecodeError::NotJson { .. } | WireDecodeError::NotProtobuf);
    let excerpt = if is_foreign { body_of(response).describe() } else { String::new() };
    output_invalid(&format!("cannot be decoded: {error}{excerpt}"))
}

/// The body, and its content type.
pub(super) fn body_of(response: &HttpResponse) -> AnsweredBody<'_> {
    let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    AnsweredBody { bytes: response.body.as_deref().unwrap_or_default(), content_type }
}
