//! The words by which receivers that keep the contract say why they refuse. Stable: senders and checks match them.

/// Whose words these are: the domain they travel with.
pub const DOMAIN: &str = "abide.dispatch";

/// The canonical metadata cannot be understood. INVALID_ARGUMENT.
pub const METADATA_MALFORMED: &str = "METADATA_MALFORMED";
/// The same piece of work is being done. ABORTED.
pub const IN_PROGRESS: &str = "IN_PROGRESS";
/// The deadline had passed before anything was done. DEADLINE_EXCEEDED.
pub const DEADLINE_EXPIRED: &str = "DEADLINE_EXPIRED";
/// The handler was given up at its claim's end. DEADLINE_EXCEEDED.
pub const HANDLER_TIMEOUT: &str = "HANDLER_TIMEOUT";
/// The handler broke down. INTERNAL.
pub const HANDLER_PANICKED: &str = "HANDLER_PANICKED";
/// Another attempt took the work over after this one's claim had ended. ABORTED.
pub const CLAIM_LOST: &str = "CLAIM_LOST";
/// Rows that the handler wanted to change had been changed by others; nothing was written. ABORTED.
pub const EFFECT_CONFLICT: &str = "EFFECT_CONFLICT";
/// Rows that the handler wanted to write cannot be written at all. FAILED_PRECONDITION.
pub const EFFECT_REFUSED: &str = "EFFECT_REFUSED";
/// What the handler answered is larger, or nested deeper, than answers may be. OUT_OF_RANGE.
pub const OUTPUT_TOO_LARGE: &str = "OUTPUT_TOO_LARGE";
/// The receiver cannot record anything now. UNAVAILABLE.
pub const STORE_UNAVAILABLE: &str = "STORE_UNAVAILABLE";
/// Whether the answer was recorded, and what goes with it had its effect, is not known. UNAVAILABLE.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";
/// What was recorded of this work cannot be read. DATA_LOSS.
pub const RECORD_DAMAGED: &str = "RECORD_DAMAGED";
/// As much is being done as may be. RESOURCE_EXHAUSTED.
pub const TOO_MANY_RUNNING: &str = "TOO_MANY_RUNNING";
/// The receiver takes nothing new. UNAVAILABLE.
pub const STOPPING: &str = "STOPPING";
/// There is no such activity. NOT_FOUND.
pub const ACTIVITY_UNKNOWN: &str = "ACTIVITY_UNKNOWN";
/// A probe: this work has no answer, and nobody is at it. NOT_FOUND.
pub const WORK_UNKNOWN: &str = "WORK_UNKNOWN";
/// The body or the input is not what it should be. INVALID_ARGUMENT.
pub const BODY_MALFORMED: &str = "BODY_MALFORMED";
/// The body is larger than bodies may be. OUT_OF_RANGE.
pub const BODY_TOO_LARGE: &str = "BODY_TOO_LARGE";
/// The body did not come in time. DEADLINE_EXCEEDED.
pub const BODY_TOO_SLOW: &str = "BODY_TOO_SLOW";
/// A body of this content type is not read here. INVALID_ARGUMENT.
pub const CONTENT_TYPE_UNSUPPORTED: &str = "CONTENT_TYPE_UNSUPPORTED";
/// An envelope of this version is not read here. INVALID_ARGUMENT.
pub const PROTOCOL_UNSUPPORTED: &str = "PROTOCOL_UNSUPPORTED";
