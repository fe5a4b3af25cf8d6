//! gRPC: one message there and one back, each behind a prefix of five bytes, and the status in the trailers.
//!
//! Written out rather than left to a generated client: a call is one message, and a signature needs the bytes that are sent.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, TE};
use serde_json::Value;

use super::exchange::{Ask, success, unreadable};
use crate::guard::Target;
use crate::http::{Exchanged, too_large};
use crate::transport::{Call, Failure};
use crate::wire::protobuf::v1::ProbeRequest;
use crate::wire::{BODY_BYTES_MAX, Unreadable, grpc, protobuf};

pub(super) use crate::wire::grpc::{CONTENT_TYPE, PREFIX_BYTES};

const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// A timeout has eight digits at most.
const DIGITS_MAX: u128 = 99_999_999;

/// Where on a server the methods are.
pub(super) fn path(ask: Ask) -> &'static str {
    match ask {
        Ask::Invoke => grpc::INVOKE,
        Ask::Probe => grpc::PROBE,
    }
}

pub(super) fn write(call: &Call, ask: Ask) -> Bytes {
    match ask {
        Ask::Invoke => grpc::framed(&protobuf::invoke(&call.activity, &call.input)),
        Ask::Probe => grpc::framed(&ProbeRequest { activity: call.activity.clone() }),
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
            let message = grpc::unframed(body).ok_or_else(|| unreadable(&Unreadable::NotProtobuf))?;
            protobuf::read_response(message).map_err(|error| unreadable(&error))
        }
        None if body.is_none() => Err(too_large(target, BODY_BYTES_MAX)),
        None => {
            let message = format!("{target} answered without a status");
            Err(Failure::retryable("UNKNOWN", message).with_outcome_unknown())
        }
    }
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
}
