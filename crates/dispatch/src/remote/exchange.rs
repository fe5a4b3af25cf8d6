//! What all wires have in common: a request in the words of one of them, and what an HTTP response means where its body does not say.
//!
//! Each wire is a file that writes and reads; none of them connects, waits or decides about retries.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use serde_json::Value;

use super::declaration::Wire;
use super::{envelope, grpc, protobuf, rest};
use crate::contract::{input_invalid, output_invalid};
use crate::guard::Target;
use crate::http::{Exchanged, metadata_headers, too_large};
use crate::status::{self, Status};
use crate::transport::{Call, Failure};
use crate::wire::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX, PROBE, Unreadable, json};

/// What is asked of an activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// To run, or to answer as it did before.
    Invoke,
    /// To answer as it did before, and to run nothing.
    Probe,
}

/// A request in the words of one wire.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The request that a call is. What is larger than a receiver takes is not sent.
pub(super) fn write(wire: Wire, call: &Call, ask: Ask, left: Duration) -> Result<Written, Failure> {
    let (content_type, body) = match wire {
        Wire::Rest => (crate::wire::JSON, rest::write(call)),
        Wire::Protobuf => (crate::wire::PROTOBUF, protobuf::write(call)),
        Wire::Grpc => (grpc::CONTENT_TYPE, grpc::write(call, ask)),
        Wire::Envelope => (crate::wire::ENVELOPE, envelope::write(call)),
    };
    // Only a large body can have a large input in it, so most inputs are written once.
    if body.len() > PAYLOAD_BYTES_MAX {
        check_size(&call.input, body.len())?;
    }
    let mut headers = HeaderMap::with_capacity(16);
    metadata_headers(&call.metadata, &mut headers)
        .map_err(|refused| Failure::for_good("MetadataInvalid", refused.to_string()))?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(USER_AGENT, HeaderValue::from_static("abide"));
    if wire == Wire::Grpc {
        grpc::add_headers(&mut headers, left);
    } else {
        headers.insert(ACCEPT, HeaderValue::from_static(content_type));
        if ask == Ask::Probe {
            headers.insert(PROBE, HeaderValue::from_static("1"));
        }
    }
    Ok(Written { headers, body })
}

fn check_size(input: &Value, body_bytes: usize) -> Result<(), Failure> {
    let bytes = json::write(input).len();
    if bytes <= PAYLOAD_BYTES_MAX && body_bytes <= BODY_BYTES_MAX {
        return Ok(());
    }
    Err(input_invalid(&format!("\"\": it has {bytes} bytes, and {PAYLOAD_BYTES_MAX} are taken at most")))
}

/// The output of a response, or the failure it tells of.
pub(super) fn read(wire: Wire, exchanged: &Exchanged, target: &Target) -> Result<Value, Failure> {
    match wire {
        Wire::Rest => rest::read(exchanged, target),
        Wire::Protobuf => protobuf::read(exchanged, target),
        Wire::Grpc => grpc::read(exchanged, target),
        Wire::Envelope => envelope::read(exchanged, target),
    }
}

/// The body of a success; otherwise the failure, in the words of its body if `told` understands them.
pub(super) fn success<'e>(
    exchanged: &'e Exchanged,
    target: &Target,
    told: fn(&[u8]) -> Option<Status>,
) -> Result<&'e Bytes, Failure> {
    // Most are; nobody's failure is looked for in them.
    if exchanged.status.is_success() {
        return exchanged.body.as_ref().ok_or_else(|| too_large(target, BODY_BYTES_MAX));
    }
    let server = target.to_string();
    let response = status::http::Response {
        status: exchanged.status.as_u16(),
        told: exchanged.body.as_deref().and_then(told),
        retry_after: exchanged.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()),
        server: &server,
    };
    match response.failure() {
        Some(failure) => Err(failure),
        None => exchanged.body.as_ref().ok_or_else(|| too_large(target, BODY_BYTES_MAX)),
    }
}

/// A success whose body is not what it should be.
pub(super) fn unreadable(unreadable: &Unreadable) -> Failure {
    output_invalid(&format!("cannot be read: {unreadable}"))
}
