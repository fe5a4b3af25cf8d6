//! gRPC: one message there and one back, each behind a prefix of five bytes, and the status in the trailers.
//!
//! Written out rather than left to a generated client: a call is one message, and a signature needs the bytes that are sent.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, TE};
use prost::Message;
use serde_json::Value;

use super::exchange::{Ask, success, unreadable};
use crate::guard::Target;
use crate::http::{Exchanged, too_large};
use crate::transport::{Call, Failure};
use crate::wire::protobuf::v1::ProbeRequest;
use crate::wire::{BODY_BYTES_MAX, Unreadable, grpc, protobuf};

pub(super) const CONTENT_TYPE: &str = "application/grpc";
/// Bytes before a message: whether it is compressed, and how long it is.
pub(super) const PREFIX_BYTES: usize = 5;

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// A timeout has eight digits at most.
const DIGITS_MAX: u128 = 99_999_999;

/// Where on a server the methods are.
pub(super) fn path(ask: Ask) -> &'static str {
    match ask {
        Ask::Invoke => "/abide.dispatch.v1.Activities/Invoke",
        Ask::Probe => "/abide.dispatch.v1.Activities/Probe",
    }
}

pub(super) fn write(call: &Call, ask: Ask) -> Bytes {
    match ask {
        Ask::Invoke => framed(&protobuf::invoke(&call.activity, &call.input)),
        Ask::Probe => framed(&ProbeRequest { activity: call.activity.clone() }),
    }
}

pub(super) fn add_headers(headers: &mut HeaderMap, left: Duration) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
    // Digits and a letter are always a header.
    if let Ok(timeout) = HeaderValue::try_from(timeout(left)) {
        headers.insert(TIMEOUT, timeout);
    }
}

pub(super) fn read(exchanged: &Exchanged, target: &Target) -> Result<Value, Failure> {
    // A gateway in between may answer without knowing gRPC.
    let body = if exchanged.status.as_u16() == 200 {
        exchanged.body.as_ref()
    } else {
        Some(success(exchanged, target, |_| None)?)
    };
    // A failure without a message has its status in the head.
    let told = [&exchanged.trailers, &exchanged.headers].into_iter().find_map(tonic::Status::from_header_map);
    match told {
        Some(told) if told.code() != tonic::Code::Ok => Err(grpc::read_failure(&told).into()),
        Some(_) => {
            let body = body.ok_or_else(|| too_large(target, BODY_BYTES_MAX))?;
            let message = unframed(body).ok_or_else(|| unreadable(&Unreadable::NotProtobuf))?;
            protobuf::read_response(message).map_err(|error| unreadable(&error))
        }
        None if body.is_none() => Err(too_large(target, BODY_BYTES_MAX)),
        None => {
            let message = format!("{target} answered without a status");
            Err(Failure::retryable("UNKNOWN", message).with_outcome_unknown())
        }
    }
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    // A vector takes all there is.
    let _ = message.encode(&mut bytes);
    bytes.into()
}

/// The one message of a body. None if it is compressed, which nobody asked for, or if there is none or more than one.
fn unframed(body: &Bytes) -> Option<Bytes> {
    let (prefix, _) = body.split_first_chunk::<PREFIX_BYTES>()?;
    let [compressed, a, b, c, d] = *prefix;
    let message = body.slice(PREFIX_BYTES..);
    let fits = u32::from_be_bytes([a, b, c, d]) as usize == message.len();
    Some(message).filter(|_| compressed == 0 && fits)
}

/// What is left, as gRPC spells it.
fn timeout(left: Duration) -> String {
    let millis = left.as_millis().max(1);
    if millis <= DIGITS_MAX { format!("{millis}m") } else { format!("{}S", (millis / 1_000).min(DIGITS_MAX)) }
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
            assert_eq!(timeout(left), text);
        }
    }

    #[test]
    fn a_body_is_one_message_that_is_not_compressed() {
        let message = protobuf::invoke("charge", &serde_json::json!({"a": 1}));
        let body = framed(&message);
        assert_eq!(unframed(&body).unwrap(), message.encode_to_vec());
        let of = |bytes: &[u8]| unframed(&Bytes::copy_from_slice(bytes));
        assert_eq!(of(&[0, 0, 0, 0, 0]), Some(Bytes::new()));
        let compressed = [&[1], &body[1..]].concat();
        let two = [body.as_ref(), &[0, 0, 0, 0, 0]].concat();
        for wrong in [b"".as_slice(), b"\0\0\0\0", &body[..body.len() - 1], &compressed, &two] {
            assert_eq!(of(wrong), None);
        }
    }
}
