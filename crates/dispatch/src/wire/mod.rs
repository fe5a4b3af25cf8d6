//! What goes over the wires, byte for byte: one file per encoding, each in both directions, used by senders and receivers alike.
//!
//! Nothing here opens a connection or decides what a failure means for a workflow; [`crate::status`] does the latter. Whatever is read is
//! bounded in size and nesting first.

pub mod envelope;
pub mod grpc;
pub mod json;
pub mod protobuf;

/// Bytes of an input or an output.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a body or a message: a payload, and what is around it.
pub const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;
/// Bytes of a failure's body; of a longer one only the HTTP status counts.
pub const FAILURE_BYTES_MAX: usize = 64 * 1024;
/// Nesting of any JSON that enters, as everywhere in Abide.
pub const JSON_DEPTH_MAX: usize = 64;

/// The content type of plain JSON.
pub const JSON: &str = "application/json";
/// The content type of protobuf messages over HTTP.
pub const PROTOBUF: &str = "application/x-protobuf";
/// The content type of the JSON envelope.
pub const ENVELOPE: &str = "application/vnd.tpf.envelope.v1+json";
/// The header that asks for the answer of work that may have been done, without doing it: `1`.
pub const PROBE: &str = "x-abide-probe";

/// What a failure was about: shown in its details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About<'a> {
    /// The execution, or nothing if it is not known.
    pub execution_id: &'a str,
    /// The activity.
    pub activity: &'a str,
}

/// A body that is not what it should be. Tells places and rules, never what was in it: payloads hold secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// Over a limit.
    #[error("it has {bytes} bytes, and {max} are read at most")]
    TooLarge {
        /// How many.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// Not JSON, or not of the expected form.
    #[error("it is not the JSON that is expected: line {line}, column {column}")]
    NotJson {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// JSON within JSON within JSON.
    #[error("it is nested more than {JSON_DEPTH_MAX} deep")]
    TooDeep,
    /// Not the message that belongs there.
    #[error("it is not the protobuf message that is expected")]
    NotProtobuf,
    /// A payload that is not JSON.
    #[error("a payload of content type {found:?} is not read, only {JSON}")]
    ContentType {
        /// What it says it is.
        found: String,
    },
    /// An envelope of a version that nobody here knows.
    #[error("protocol version {found:?} is not read, only {:?}", envelope::VERSION)]
    Version {
        /// What it says it is.
        found: String,
    },
    /// An envelope without a part that must be there, or with one that is not read here.
    #[error("{part} is missing or not read here")]
    Part {
        /// Which, as a JSON pointer.
        part: &'static str,
    },
}

/// The media type of a `Content-Type` header: without parameters, in lower case.
pub fn media_type(header: &str) -> String {
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A word from outside, short enough to be shown.
fn shown(word: &str) -> String {
    word.chars().take(64).collect()
}

/// Refuses what is larger than this.
fn within(bytes: usize, max: usize) -> Result<(), Unreadable> {
    if bytes > max { Err(Unreadable::TooLarge { bytes, max }) } else { Ok(()) }
}
