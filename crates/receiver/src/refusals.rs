//! The failures that a receiver itself returns, before a handler runs or when a handler has no result: one function per
//! reason of the contract. It does not know when to return them.

use abide_dispatch::status::reason;
use abide_dispatch::wire::WireDecodeError;
use abide_dispatch::{MetadataError, RpcCode, RpcStatus};

use crate::idempotency::RecordError;

/// Wait before the next attempt when too many handlers are running.
const BUSY_RETRY_AFTER_MS: u64 = 1_000;

pub(crate) fn metadata_malformed(malformed: &MetadataError) -> RpcStatus {
    refusal(RpcCode::InvalidArgument, reason::METADATA_MALFORMED, malformed.to_string())
}

pub(crate) fn in_progress() -> RpcStatus {
    refusal(RpcCode::Aborted, reason::IN_PROGRESS, "the call is already in progress; retry later")
}

pub(crate) fn deadline_expired() -> RpcStatus {
    refusal(
        RpcCode::DeadlineExceeded,
        reason::DEADLINE_EXPIRED,
        "the deadline passed before the activity was run",
    )
}

pub(crate) fn activity_unknown(activity: &str) -> RpcStatus {
    let name: String = activity.chars().take(128).collect();
    refusal(RpcCode::NotFound, reason::ACTIVITY_UNKNOWN, format!("unknown activity {name:?}"))
}

pub(crate) fn work_unknown() -> RpcStatus {
    refusal(RpcCode::NotFound, reason::WORK_UNKNOWN, "no record of this call, and it is not in progress")
}

pub(crate) fn too_many_running() -> RpcStatus {
    let message = "too many calls are running; retry later";
    let status = refusal(RpcCode::ResourceExhausted, reason::TOO_MANY_RUNNING, message);
    status.with_retry_after_ms(BUSY_RETRY_AFTER_MS)
}

pub(crate) fn stopping() -> RpcStatus {
    refusal(RpcCode::Unavailable, reason::STOPPING, "the receiver is shutting down")
}

pub(crate) fn body_malformed(error: &WireDecodeError) -> RpcStatus {
    let message = format!("invalid body: {error}");
    match error {
        WireDecodeError::UnsupportedVersion { .. } => {
            refusal(RpcCode::InvalidArgument, reason::PROTOCOL_UNSUPPORTED, error.to_string())
        }
        WireDecodeError::TooLarge { .. } => refusal(RpcCode::OutOfRange, reason::BODY_TOO_LARGE, message),
        _ => refusal(RpcCode::InvalidArgument, reason::BODY_MALFORMED, message),
    }
}

/// The HTTP status of a failure: that of its code, except 413 for a body that is too large.
pub(crate) fn http_status(status: &RpcStatus) -> u16 {
    let is_ours = status.domain.as_deref() == Some(reason::DOMAIN);
    let too_large = is_ours && status.reason.as_deref() == Some(reason::BODY_TOO_LARGE);
    if too_large { 413 } else { status.code.http_status() }
}

pub(crate) fn body_truncated() -> RpcStatus {
    refusal(RpcCode::InvalidArgument, reason::BODY_MALFORMED, "request body truncated")
}

pub(crate) fn body_too_slow() -> RpcStatus {
    refusal(RpcCode::DeadlineExceeded, reason::BODY_TOO_SLOW, "timed out reading the request body")
}

pub(crate) fn content_type_unsupported(found: &str) -> RpcStatus {
    let found: String = found.chars().take(128).collect();
    let message = format!("unsupported content type {found:?}");
    refusal(RpcCode::InvalidArgument, reason::CONTENT_TYPE_UNSUPPORTED, message)
}

pub(crate) fn handler_timeout() -> RpcStatus {
    refusal(
        RpcCode::DeadlineExceeded,
        reason::HANDLER_TIMEOUT,
        "the activity was still running when its claim expired",
    )
}

/// The panic message is on standard error. It may quote the input, so the client does not get it.
pub(crate) fn handler_panicked() -> RpcStatus {
    refusal(RpcCode::Internal, reason::HANDLER_PANICKED, "the activity panicked")
}

pub(crate) fn output_too_large(message: String) -> RpcStatus {
    refusal(RpcCode::OutOfRange, reason::OUTPUT_TOO_LARGE, message)
}

pub(crate) fn claim_lost() -> RpcStatus {
    refusal(RpcCode::Aborted, reason::CLAIM_LOST, "claim lost to another attempt")
}

pub(crate) fn effect_conflict() -> RpcStatus {
    refusal(
        RpcCode::Aborted,
        reason::EFFECT_CONFLICT,
        "write conflict: the activity's rows were changed concurrently",
    )
}

pub(crate) fn effect_refused(message: String) -> RpcStatus {
    refusal(RpcCode::FailedPrecondition, reason::EFFECT_REFUSED, message)
}

/// The cause is logged for the operator; the client only learns that it can retry.
pub(crate) fn store_unavailable() -> RpcStatus {
    refusal(RpcCode::Unavailable, reason::STORE_UNAVAILABLE, "store unavailable; retry later")
}

/// The handler may have had its effect, and its result may be recorded: a retry finds out.
pub(crate) fn outcome_unknown() -> RpcStatus {
    let message = "it is unknown whether the result was recorded; retry to find out";
    refusal(RpcCode::Unavailable, reason::OUTCOME_UNKNOWN, message)
}

pub(crate) fn record_error(error: &RecordError) -> RpcStatus {
    match error {
        RecordError::Unavailable(error) => {
            tracing::warn!(error, "store unavailable");
            store_unavailable()
        }
        RecordError::Damaged(error) => {
            tracing::error!(error, "damaged idempotency record");
            refusal(RpcCode::DataLoss, reason::RECORD_DAMAGED, "the record of this call is damaged")
        }
    }
}

fn refusal(code: RpcCode, reason: &str, message: impl Into<String>) -> RpcStatus {
    RpcStatus::new(code, message).with_reason(reason).with_domain(reason::DOMAIN)
}
