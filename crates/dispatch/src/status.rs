//! The status codes of failed calls on every wire: the seventeen codes of gRPC, and which of them are retryable.
//!
//! One table serves all transports and both sides. It knows nothing about bodies and headers; [`http`] says what an
//! HTTP status means if the body has no status of its own.

pub mod excerpt;
pub mod http;
pub mod reason;

use std::fmt;

use crate::transport::CallFailure;

/// A status code. The numbers are gRPC's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
pub enum RpcCode {
    /// The call succeeded.
    Ok = 0,
    /// Cancelled by the caller.
    Cancelled = 1,
    /// The cause is unknown.
    Unknown = 2,
    /// The request is invalid, whatever the state of the system.
    InvalidArgument = 3,
    /// The deadline passed first.
    DeadlineExceeded = 4,
    /// The requested thing does not exist.
    NotFound = 5,
    /// The thing to create exists already.
    AlreadyExists = 6,
    /// The caller lacks a permission.
    PermissionDenied = 7,
    /// A limit or quota is exhausted.
    ResourceExhausted = 8,
    /// The system is not in the required state.
    FailedPrecondition = 9,
    /// The work conflicts with concurrent work.
    Aborted = 10,
    /// Beyond the valid range.
    OutOfRange = 11,
    /// Not supported by the receiver.
    Unimplemented = 12,
    /// An internal error of the receiver.
    Internal = 13,
    /// The receiver is not available at the moment.
    Unavailable = 14,
    /// Data is lost permanently.
    DataLoss = 15,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}

/// A code, its name, its HTTP status, and whether another attempt may help.
const CODE_TABLE: [(RpcCode, &str, u16, bool); 17] = [
    (RpcCode::Ok, "OK", 200, false),
    (RpcCode::Cancelled, "CANCELLED", 499, false),
    (RpcCode::Unknown, "UNKNOWN", 500, true),
    (RpcCode::InvalidArgument, "INVALID_ARGUMENT", 400, false),
    (RpcCode::DeadlineExceeded, "DEADLINE_EXCEEDED", 504, true),
    (RpcCode::NotFound, "NOT_FOUND", 404, false),
    (RpcCode::AlreadyExists, "ALREADY_EXISTS", 409, false),
    (RpcCode::PermissionDenied, "PERMISSION_DENIED", 403, false),
    (RpcCode::ResourceExhausted, "RESOURCE_EXHAUSTED", 429, true),
    (RpcCode::FailedPrecondition, "FAILED_PRECONDITION", 412, false),
    (RpcCode::Aborted, "ABORTED", 409, true),
    (RpcCode::OutOfRange, "OUT_OF_RANGE", 400, false),
    (RpcCode::Unimplemented, "UNIMPLEMENTED", 501, false),
    (RpcCode::Internal, "INTERNAL", 500, true),
    (RpcCode::Unavailable, "UNAVAILABLE", 503, true),
    (RpcCode::DataLoss, "DATA_LOSS", 500, false),
    (RpcCode::Unauthenticated, "UNAUTHENTICATED", 401, false),
];

impl RpcCode {
    /// All of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        CODE_TABLE.into_iter().map(|(code, ..)| code)
    }

    /// The code with this number; [`Self::Unknown`] for a number outside the table.
    pub fn from_number(number: i32) -> Self {
        Self::all().find(|code| code.number() == number).unwrap_or(Self::Unknown)
    }

    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        CODE_TABLE.into_iter().find(|(_, named, ..)| *named == name).map(|(code, ..)| code)
    }

    pub fn number(self) -> i32 {
        self as i32
    }

    /// Its name, such as `NOT_FOUND`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The HTTP status that it is sent with.
    pub fn http_status(self) -> u16 {
        self.row().2
    }

    /// True if another attempt may help.
    pub fn is_retryable(self) -> bool {
        self.row().3
    }

    fn row(self) -> (Self, &'static str, u16, bool) {
        let index = usize::try_from(self.number()).unwrap_or_default();
        CODE_TABLE.get(index).copied().unwrap_or((self, "UNKNOWN", 500, true))
    }
}

impl fmt::Display for RpcCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The longest message of a status, in bytes: it has to fit a header, where each byte may take three.
pub const MESSAGE_BYTES_MAX: usize = 1_024;
/// The longest reason or domain, in bytes; a longer one is dropped.
pub const REASON_BYTES_MAX: usize = 128;
/// The longest retry delay that a service may ask for.
pub const RETRY_AFTER_MS_MAX: u64 = 3_600_000;

/// A failure as it is sent over the wire.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct RpcStatus {
    pub code: RpcCode,
    pub message: String,
    /// The cause, as a word that `onError` and `nonRetryable` can match.
    pub reason: Option<String>,
    /// The domain that defines the reason.
    pub domain: Option<String>,
    /// The delay before another attempt makes sense. A hint.
    pub retry_after_ms: Option<u64>,
}

impl RpcStatus {
    /// A failure with this code. A message that is too long is truncated.
    pub fn new(code: RpcCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Self { code, message, reason: None, domain: None, retry_after_ms: None }
    }

    /// With a reason. A blank one, or one that is too long, is dropped.
    #[must_use]
    pub fn with_reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()).filter(|word| is_valid_reason(word)), ..self }
    }

    /// With the reason's domain. A blank one, or one that is too long, is dropped.
    #[must_use]
    pub fn with_domain(self, domain: impl Into<String>) -> Self {
        Self { domain: Some(domain.into()).filter(|word| is_valid_reason(word)), ..self }
    }

    /// True if it leaves open whether the activity ran. `has_retry_after` says that it came with a retry delay.
    ///
    /// A proxy answers UNAVAILABLE also when it lost the response of the activity. So the code alone does not prove a
    /// rejection: a receiver that rejects before the handler gives a reason of the contract, or a retry delay.
    pub(crate) fn is_outcome_unknown(&self, has_retry_after: bool) -> bool {
        let is_contract_reason = self.domain.as_deref() == Some(reason::DOMAIN);
        match self.reason.as_deref() {
            // The attempt in progress has no outcome yet.
            Some(reason::IN_PROGRESS | reason::OUTCOME_UNKNOWN) => true,
            Some(reason::STOPPING | reason::TOO_MANY_RUNNING) if is_contract_reason => false,
            _ => self.code == RpcCode::Unavailable && !has_retry_after,
        }
    }

    /// With the delay before a retry makes sense, at most [`RETRY_AFTER_MS_MAX`].
    #[must_use]
    pub fn with_retry_after_ms(self, wait_ms: u64) -> Self {
        Self { retry_after_ms: Some(wait_ms.min(RETRY_AFTER_MS_MAX)), ..self }
    }
}

impl From<RpcStatus> for CallFailure {
    /// The code to match is the reason if there is one, else the name of the status.
    fn from(status: RpcStatus) -> Self {
        let outcome_unknown = status.is_outcome_unknown(status.retry_after_ms.is_some());
        let RpcStatus { code, message, reason, domain: _, retry_after_ms } = status;
        Self {
            code: reason.unwrap_or_else(|| code.name().to_owned()),
            message,
            retryable: code.is_retryable(),
            outcome_unknown,
            not_sent: false,
            hold: None,
            retry_after_ms,
            status: Some(format!("{} {code}", code.http_status())),
            target: None,
        }
    }
}

fn is_valid_reason(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= REASON_BYTES_MAX
}

#[cfg(test)]
mod tests;
