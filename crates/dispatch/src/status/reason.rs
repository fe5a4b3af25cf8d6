//! The reasons that receivers of the contract give when they reject a request.
//!
//! The words are stable: senders and conformance checks match them. Knows nothing about how a reason is sent.

/// The domain that these reasons are sent with.
pub const DOMAIN: &str = "abide.dispatch";

/// The canonical metadata is invalid. INVALID_ARGUMENT.
pub const METADATA_MALFORMED: &str = "METADATA_MALFORMED";
/// The same piece of work is in progress. ABORTED.
pub const IN_PROGRESS: &str = "IN_PROGRESS";
/// The deadline had passed before the work began. DEADLINE_EXCEEDED.
pub const DEADLINE_EXPIRED: &str = "DEADLINE_EXPIRED";
/// The handler was still running when its claim ended. DEADLINE_EXCEEDED.
pub const HANDLER_TIMEOUT: &str = "HANDLER_TIMEOUT";
/// The handler panicked. INTERNAL.
pub const HANDLER_PANICKED: &str = "HANDLER_PANICKED";
/// Another attempt took the work over after this one's claim had ended. ABORTED.
pub const CLAIM_LOST: &str = "CLAIM_LOST";
/// Rows that the handler wanted to change had been changed by others; nothing was written. ABORTED.
pub const EFFECT_CONFLICT: &str = "EFFECT_CONFLICT";
/// Rows that the handler wanted to write cannot be written at all. FAILED_PRECONDITION.
pub const EFFECT_REFUSED: &str = "EFFECT_REFUSED";
/// The output of the handler is larger, or nested deeper, than allowed. OUT_OF_RANGE.
pub const OUTPUT_TOO_LARGE: &str = "OUTPUT_TOO_LARGE";
/// The receiver cannot record anything at the moment. UNAVAILABLE.
pub const STORE_UNAVAILABLE: &str = "STORE_UNAVAILABLE";
/// It is unknown whether the result was recorded, together with the writes of the handler. UNAVAILABLE.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";
/// The record of this work cannot be read. DATA_LOSS.
pub const RECORD_DAMAGED: &str = "RECORD_DAMAGED";
/// The concurrency limit of the receiver is reached. RESOURCE_EXHAUSTED.
pub const TOO_MANY_RUNNING: &str = "TOO_MANY_RUNNING";
/// The receiver is draining and accepts no new work. UNAVAILABLE.
pub const STOPPING: &str = "STOPPING";
/// The receiver has no such activity. NOT_FOUND.
pub const ACTIVITY_UNKNOWN: &str = "ACTIVITY_UNKNOWN";
/// In response to a probe: this work has no result and is not in progress. NOT_FOUND.
pub const WORK_UNKNOWN: &str = "WORK_UNKNOWN";
/// The body or the input is invalid. INVALID_ARGUMENT.
pub const BODY_MALFORMED: &str = "BODY_MALFORMED";
/// The body exceeds the size limit. OUT_OF_RANGE.
pub const BODY_TOO_LARGE: &str = "BODY_TOO_LARGE";
/// The body did not arrive in time. DEADLINE_EXCEEDED.
pub const BODY_TOO_SLOW: &str = "BODY_TOO_SLOW";
/// The content type is not supported. INVALID_ARGUMENT.
pub const CONTENT_TYPE_UNSUPPORTED: &str = "CONTENT_TYPE_UNSUPPORTED";
/// The version of the envelope is not supported. INVALID_ARGUMENT.
pub const PROTOCOL_UNSUPPORTED: &str = "PROTOCOL_UNSUPPORTED";
