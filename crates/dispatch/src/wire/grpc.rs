//! gRPC around and beside its messages: their prefix, the canonical metadata, and failures with their details in `grpc-status-details-bin`.
//!
//! The one place of the contract where types of the gRPC library show.

use bytes::Bytes;
use prost::Message;
use tonic::metadata::{AsciiMetadataValue, KeyAndValueRef, MetadataMap};

use super::{About, protobuf};
use crate::metadata::{MalformedMetadata, Metadata};
use crate::status::{Code, Status};

/// The content type of calls over gRPC.
pub const CONTENT_TYPE: &str = "application/grpc";
/// Where on a server work is called for.
pub const INVOKE: &str = "/abide.dispatch.v1.Activities/Invoke";
/// Where on a server it is asked about.
pub const PROBE: &str = "/abide.dispatch.v1.Activities/Probe";
/// Bytes before a message: whether it is compressed, and how long it is.
pub const PREFIX_BYTES: usize = 5;

/// A body of this one message.
pub fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + length);
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    // A vector takes all there is.
    let _ = message.encode(&mut bytes);
    bytes.into()
}

/// The one message of a body. None if it is compressed, which nobody asked for, or if there is none or more than one.
pub fn unframed(body: &Bytes) -> Option<Bytes> {
    let (prefix, _) = body.split_first_chunk::<PREFIX_BYTES>()?;
    let [compressed, a, b, c, d] = *prefix;
    let message = body.slice(PREFIX_BYTES..);
    let fits = u32::from_be_bytes([a, b, c, d]) as usize == message.len();
    Some(message).filter(|_| compressed == 0 && fits)
}

/// Adds the canonical metadata.
pub fn write_metadata(metadata: &Metadata, map: &mut MetadataMap) -> Result<(), MalformedMetadata> {
    for (key, value) in metadata.encode() {
        let value = AsciiMetadataValue::try_from(value.as_bytes());
        map.insert(key, value.map_err(|_| MalformedMetadata::NotPrintable { key })?);
    }
    Ok(())
}

/// The canonical metadata of a request.
pub fn read_metadata(map: &MetadataMap) -> Result<Option<Metadata>, MalformedMetadata> {
    Metadata::decode(map.iter().filter_map(|pair| match pair {
        KeyAndValueRef::Ascii(key, value) => Some((key.as_str(), value.as_encoded_bytes())),
        KeyAndValueRef::Binary(..) => None,
    }))
}

/// A failure as gRPC has it.
pub fn write_failure(status: &Status, about: About<'_>) -> tonic::Status {
    let details = Bytes::from(protobuf::write_failure(status, about));
    tonic::Status::with_details(tonic::Code::from(status.code.number()), status.message.as_str(), details)
}

/// The failure that gRPC tells of. Its code decides; the details have the reason, if they can be read.
pub fn read_failure(told: &tonic::Status) -> Status {
    let code = Code::from_number(i32::from(told.code()));
    match protobuf::read_failure(told.details()) {
        Some(detailed) => Status { code, ..detailed },
        None => Status::new(code, told.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::metadata;

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

    #[test]
    fn metadata_survives_and_binary_values_are_nobodys_business() {
        let mut map = MetadataMap::new();
        write_metadata(&metadata(), &mut map).unwrap();
        map.insert_bin("trace-bin", tonic::metadata::BinaryMetadataValue::from_bytes(b"\x00\xff"));
        assert_eq!(read_metadata(&map), Ok(Some(metadata())));
        map.append("x-tpf-execution-id", "another".parse().unwrap());
        assert!(matches!(read_metadata(&map), Err(MalformedMetadata::Repeated { .. })));
        assert_eq!(read_metadata(&MetadataMap::new()), Ok(None));
    }

    #[test]
    fn a_failure_survives_and_its_own_code_decides() {
        let about = About { execution_id: "device-7/1", activity: "charge" };
        for code in Code::all().filter(|code| *code != Code::Ok) {
            let status =
                Status::new(code, "größer").with_reason("WHY").with_domain("us").with_retry_after_ms(5);
            assert_eq!(read_failure(&write_failure(&status, about)), status);
            let bare = tonic::Status::new(tonic::Code::from(code.number()), "bare");
            assert_eq!(read_failure(&bare), Status::new(code, "bare"));
        }
        let details = protobuf::write_failure(&Status::new(Code::NotFound, "no").with_reason("WHY"), about);
        let torn = tonic::Status::with_details(tonic::Code::Unavailable, "later", details.into());
        assert_eq!(read_failure(&torn).code, Code::Unavailable);
        assert_eq!(read_failure(&torn).reason.as_deref(), Some("WHY"));
    }
}
