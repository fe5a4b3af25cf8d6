//! gRPC around its messages: their prefix, the canonical metadata, and failures with details in
//! `grpc-status-details-bin`.
//!
//! The only part of the contract that exposes types of the gRPC library. The messages themselves are in [`protobuf`].

use bytes::Bytes;
use prost::Message;
use tonic::metadata::{AsciiMetadataValue, KeyAndValueRef, MetadataMap};

use super::{FailureContext, protobuf};
use crate::metadata::{Metadata, MetadataError};
use crate::status::{RpcCode, RpcStatus};

/// The content type of calls over gRPC.
pub const CONTENT_TYPE: &str = "application/grpc";
/// The path of the method that runs an activity.
pub const INVOKE_PATH: &str = "/abide.dispatch.v1.Activities/Invoke";
/// The path of the method that probes for an earlier result.
pub const PROBE_PATH: &str = "/abide.dispatch.v1.Activities/Probe";
/// Bytes before a message: the compression flag and the length.
pub const PREFIX_BYTES: usize = 5;

/// A body that consists of this one message.
pub fn encode_frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    // Encoding into a vector cannot fail.
    let _ = message.encode(&mut bytes);
    bytes.into()
}

/// The one message of a body. None if it is compressed, which was not requested, or if the body is not exactly one
/// message.
pub fn decode_frame(body: &Bytes) -> Option<Bytes> {
    let (prefix, _) = body.split_first_chunk::<PREFIX_BYTES>()?;
    let [compressed, a, b, c, d] = *prefix;
    let message = body.slice(PREFIX_BYTES..);
    let fits = u32::from_be_bytes([a, b, c, d]) as usize == message.len();
    Some(message).filter(|_| compressed == 0 && fits)
}

/// Adds the canonical metadata.
pub fn write_metadata(metadata: &Metadata, map: &mut MetadataMap) -> Result<(), MetadataError> {
    for (key, value) in metadata.encode() {
        let value = AsciiMetadataValue::try_from(value.as_bytes());
        map.insert(key, value.map_err(|_| MetadataError::NotPrintable { key })?);
    }
    Ok(())
}

/// The canonical metadata of a request.
pub fn read_metadata(map: &MetadataMap) -> Result<Option<Metadata>, MetadataError> {
    Metadata::decode(map.iter().filter_map(|pair| match pair {
        KeyAndValueRef::Ascii(key, value) => Some((key.as_str(), value.as_encoded_bytes())),
        KeyAndValueRef::Binary(..) => None,
    }))
}

/// Encodes a failure as a gRPC status.
pub fn write_failure(status: &RpcStatus, about: FailureContext<'_>) -> tonic::Status {
    let details = Bytes::from(protobuf::write_failure(status, about));
    tonic::Status::with_details(tonic::Code::from(status.code.number()), status.message.as_str(), details)
}

/// Decodes the failure of a gRPC status. Its code decides; the details add the reason, if they can be decoded.
pub fn read_failure(status: &tonic::Status) -> RpcStatus {
    let code = RpcCode::from_number(i32::from(status.code()));
    match protobuf::read_failure(status.details()) {
        Some(detailed) => RpcStatus { code, ..detailed },
        None => RpcStatus::new(code, status.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::metadata;

    #[test]
    fn a_body_is_one_message_that_is_not_compressed() {
        let message = protobuf::invoke_request("charge", &serde_json::json!({"a": 1}));
        let body = encode_frame(&message);
        assert_eq!(decode_frame(&body).unwrap(), message.encode_to_vec());
        let of = |bytes: &[u8]| decode_frame(&Bytes::copy_from_slice(bytes));
        assert_eq!(of(&[0, 0, 0, 0, 0]), Some(Bytes::new()));
        let compressed = [&[1], &body[1..]].concat();
        let two = [body.as_ref(), &[0, 0, 0, 0, 0]].concat();
        for wrong in [b"".as_slice(), b"\0\0\0\0", &body[..body.len() - 1], &compressed, &two] {
            assert_eq!(of(wrong), None);
        }
    }

    #[test]
    fn metadata_round_trips_and_binary_values_are_ignored() {
        let mut map = MetadataMap::new();
        write_metadata(&metadata(), &mut map).unwrap();
        map.insert_bin("trace-bin", tonic::metadata::BinaryMetadataValue::from_bytes(b"\x00\xff"));
        assert_eq!(read_metadata(&map), Ok(Some(metadata())));
        map.append("x-tpf-execution-id", "another".parse().unwrap());
        assert!(matches!(read_metadata(&map), Err(MetadataError::Duplicate { .. })));
        assert_eq!(read_metadata(&MetadataMap::new()), Ok(None));
    }

    #[test]
    fn a_failure_round_trips_and_the_code_of_the_grpc_status_decides() {
        let about = FailureContext { execution_id: "device-7/1", activity: "charge" };
        for code in RpcCode::all().filter(|code| *code != RpcCode::Ok) {
            let status =
                RpcStatus::new(code, "größer").with_reason("WHY").with_domain("us").with_retry_after_ms(5);
            assert_eq!(read_failure(&write_failure(&status, about)), status);
            let bare = tonic::Status::new(tonic::Code::from(code.number()), "bare");
            assert_eq!(read_failure(&bare), RpcStatus::new(code, "bare"));
        }
        let details =
            protobuf::write_failure(&RpcStatus::new(RpcCode::NotFound, "no").with_reason("WHY"), about);
        let torn = tonic::Status::with_details(tonic::Code::Unavailable, "later", details.into());
        assert_eq!(read_failure(&torn).code, RpcCode::Unavailable);
        assert_eq!(read_failure(&torn).reason.as_deref(), Some("WHY"));
    }
}
