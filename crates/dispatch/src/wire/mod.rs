//! The wire formats, byte for byte: one file per encoding, each in both directions, used by senders and receivers
//! alike.
//!
//! Nothing here opens a connection or decides what a failure means for a workflow; [`crate::status`] does the latter.
//! The size and the nesting of everything that is read are bounded.

pub mod envelope;
pub mod grpc;
pub mod json;
pub mod protobuf;

use abide_json::JsonError;

/// The largest input, in bytes: with what is around it below the 4 MiB that a gRPC library accepts by default.
pub const INPUT_BYTES_MAX: usize = 7 * 512 * 1024;
/// The largest output, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// The largest body or message of a request, in bytes: an input, and what is around it.
pub const REQUEST_BYTES_MAX: usize = INPUT_BYTES_MAX + 64 * 1024;
/// The largest body or message of a success, in bytes: an output, and what is around it.
pub const RESPONSE_BYTES_MAX: usize = OUTPUT_BYTES_MAX + 64 * 1024;
/// The largest body of a failure, in bytes; of a longer one only the HTTP status counts.
pub const FAILURE_BYTES_MAX: usize = 64 * 1024;
/// The deepest nesting of any JSON that enters, as everywhere in Abide.
pub const JSON_DEPTH_MAX: usize = 64;

/// The content type of plain JSON.
pub const JSON: &str = "application/json";
/// The content type of protobuf messages over HTTP.
pub const PROTOBUF: &str = "application/x-protobuf";
/// The content type of the JSON envelope.
pub const ENVELOPE: &str = "application/vnd.tpf.envelope.v1+json";
/// The header of a probe, with the value `1`: a request for the result of earlier work that does not run the activity.
pub const PROBE_HEADER: &str = "x-abide-probe";

/// The execution and the activity that a failure belongs to: shown in its details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureContext<'a> {
    /// The id of the execution; empty if it is not known.
    pub execution_id: &'a str,
    pub activity: &'a str,
}

/// Why a body cannot be decoded. Shows locations and rules, never the content: payloads may contain secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireDecodeError {
    /// The body exceeds a size limit.
    #[error("{bytes} bytes exceed the limit of {max}")]
    TooLarge { bytes: usize, max: usize },
    /// Not JSON, or not of the expected form.
    #[error("not the expected JSON: line {line}, column {column}")]
    NotJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// A key occurs twice in one object: one of the two values would silently vanish.
    #[error("a duplicate key: line {line}, column {column}")]
    DuplicateKey {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// An integer outside 64 bits, which would come back changed.
    #[error("an integer that does not fit 64 bits and would be rounded: line {line}, column {column}")]
    IntegerTooLarge {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// The JSON is nested too deeply.
    #[error("nested more than {JSON_DEPTH_MAX} levels deep")]
    TooDeep,
    /// Not the expected protobuf message.
    #[error("not the expected protobuf message")]
    NotProtobuf,
    /// The payload is not JSON.
    #[error("unsupported content type {found:?} of a payload, expected {JSON}")]
    UnsupportedContentType { found: String },
    /// The version of the envelope is not supported.
    #[error("unsupported protocol version {found:?}, expected {:?}", envelope::VERSION)]
    UnsupportedVersion { found: String },
    /// A part of the envelope is missing or not supported.
    #[error("{part} is missing or unsupported")]
    UnsupportedPart {
        /// A JSON pointer to the part.
        part: &'static str,
    },
}

/// The media type of a `Content-Type` header: without parameters, in lower case.
pub fn media_type(header: &str) -> String {
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl From<JsonError> for WireDecodeError {
    fn from(error: JsonError) -> Self {
        let (line, column) = error.position();
        match error {
            JsonError::Malformed { .. } => Self::NotJson { line, column },
            JsonError::DuplicateKey { .. } => Self::DuplicateKey { line, column },
            JsonError::IntegerTooLarge { .. } => Self::IntegerTooLarge { line, column },
            JsonError::TooDeep { .. } => Self::TooDeep,
        }
    }
}

/// A text from outside, cut to a length that can be shown.
fn truncate_for_display(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Rejects a size that is larger than `max`.
fn check_size(bytes: usize, max: usize) -> Result<(), WireDecodeError> {
    if bytes > max { Err(WireDecodeError::TooLarge { bytes, max }) } else { Ok(()) }
}
