//! What a receiver says when it does not run a handler, or when one did not come to an answer: one function per word of the contract.

use abide_dispatch::status::reason;
use abide_dispatch::wire::Unreadable;
use abide_dispatch::{Code, MalformedMetadata, Status};

use crate::records::Trouble;

/// How long to wait when there is no room.
const NO_ROOM_WAIT_MS: u64 = 1_000;

pub(crate) fn metadata_malformed(malformed: &MalformedMetadata) -> Status {
    refusal(Code::InvalidArgument, reason::METADATA_MALFORMED, malformed.to_string())
}

pub(crate) fn in_progress() -> Status {
    refusal(Code::Aborted, reason::IN_PROGRESS, "the same work is being done; ask again later")
}

pub(crate) fn deadline_expired() -> Status {
    refusal(
        Code::DeadlineExceeded,
        reason::DEADLINE_EXPIRED,
        "the deadline had passed before anything was done",
    )
}

pub(crate) fn activity_unknown(activity: &str) -> Status {
    let name: String = activity.chars().take(128).collect();
    refusal(Code::NotFound, reason::ACTIVITY_UNKNOWN, format!("there is no activity {name:?} here"))
}

pub(crate) fn work_unknown() -> Status {
    refusal(Code::NotFound, reason::WORK_UNKNOWN, "this work has no answer, and nobody is at it")
}

pub(crate) fn too_many_running() -> Status {
    let message = "as much is being done as may be; ask again later";
    let status = refusal(Code::ResourceExhausted, reason::TOO_MANY_RUNNING, message);
    status.with_retry_after_ms(NO_ROOM_WAIT_MS)
}

pub(crate) fn stopping() -> Status {
    refusal(Code::Unavailable, reason::STOPPING, "this receiver is stopping")
}

pub(crate) fn body_malformed(unreadable: &Unreadable) -> Status {
    let message = format!("the body: {unreadable}");
    match unreadable {
        Unreadable::Version { .. } => {
            refusal(Code::InvalidArgument, reason::PROTOCOL_UNSUPPORTED, unreadable.to_string())
        }
        Unreadable::TooLarge { .. } => refusal(Code::OutOfRange, reason::BODY_TOO_LARGE, message),
        _ => refusal(Code::InvalidArgument, reason::BODY_MALFORMED, message),
    }
}

/// The HTTP status of a failure: its code's, but for a body that is too large, which HTTP has a better one for.
pub(crate) fn http(status: &Status) -> u16 {
    let is_ours = status.domain.as_deref() == Some(reason::DOMAIN);
    let too_large = is_ours && status.reason.as_deref() == Some(reason::BODY_TOO_LARGE);
    if too_large { 413 } else { status.code.http() }
}

pub(crate) fn body_broken() -> Status {
    refusal(Code::InvalidArgument, reason::BODY_MALFORMED, "the body broke off")
}

pub(crate) fn body_too_slow() -> Status {
    refusal(Code::DeadlineExceeded, reason::BODY_TOO_SLOW, "the body did not come in time")
}

pub(crate) fn content_type_unsupported(found: &str) -> Status {
    let found: String = found.chars().take(128).collect();
    let message = format!("content type {found:?} is not read here");
    refusal(Code::InvalidArgument, reason::CONTENT_TYPE_UNSUPPORTED, message)
}

pub(crate) fn handler_timeout() -> Status {
    refusal(Code::DeadlineExceeded, reason::HANDLER_TIMEOUT, "the activity took longer than its claim holds")
}

/// What it said is on standard error. It may quote the input, so it is not told.
pub(crate) fn handler_panicked() -> Status {
    refusal(Code::Internal, reason::HANDLER_PANICKED, "the activity panicked")
}

pub(crate) fn output_too_large(message: String) -> Status {
    refusal(Code::OutOfRange, reason::OUTPUT_TOO_LARGE, message)
}

pub(crate) fn claim_lost() -> Status {
    refusal(Code::Aborted, reason::CLAIM_LOST, "another attempt has taken this work over")
}

pub(crate) fn effect_conflict() -> Status {
    refusal(
        Code::Aborted,
        reason::EFFECT_CONFLICT,
        "what the activity wanted to change has been changed by others",
    )
}

pub(crate) fn effect_refused(message: String) -> Status {
    refusal(Code::FailedPrecondition, reason::EFFECT_REFUSED, message)
}

/// The operator reads why; the caller only that it may pass.
pub(crate) fn store_unavailable() -> Status {
    refusal(Code::Unavailable, reason::STORE_UNAVAILABLE, "nothing can be recorded now")
}

/// The handler may have had its effect, and its answer may be recorded: who asks again is told.
pub(crate) fn outcome_unknown() -> Status {
    let message = "whether the answer was recorded is not known; ask again";
    refusal(Code::Unavailable, reason::OUTCOME_UNKNOWN, message)
}

pub(crate) fn trouble(trouble: &Trouble) -> Status {
    match trouble {
        Trouble::Unavailable(why) => {
            tracing::warn!(why, "the store is not available");
            store_unavailable()
        }
        Trouble::Damaged(why) => {
            tracing::error!(why, "a record is damaged");
            refusal(Code::DataLoss, reason::RECORD_DAMAGED, "what was recorded of this work cannot be read")
        }
    }
}

fn refusal(code: Code, reason: &str, message: impl Into<String>) -> Status {
    Status::new(code, message).with_reason(reason).with_domain(reason::DOMAIN)
}
