//! What a call that failed is called on every wire: the seventeen codes of gRPC, and which of them another delivery may cure.
//!
//! One table for all transports and for both sides. Knows nothing of bodies and headers; [`http`] has what an HTTP status means where there
//! is no better answer.

pub mod http;
pub mod reason;

use std::fmt;

use crate::transport::Failure;

/// A status code. The numbers are gRPC's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
pub enum Code {
    /// No failure.
    Ok = 0,
    /// Given up by whoever asked.
    Cancelled = 1,
    /// Nobody knows what happened.
    Unknown = 2,
    /// Wrong in itself, whatever the state of the world.
    InvalidArgument = 3,
    /// Too late.
    DeadlineExceeded = 4,
    /// There is no such thing.
    NotFound = 5,
    /// There is one already.
    AlreadyExists = 6,
    /// Not allowed.
    PermissionDenied = 7,
    /// Too much at once.
    ResourceExhausted = 8,
    /// The world is not as it must be.
    FailedPrecondition = 9,
    /// Somebody else was at it.
    Aborted = 10,
    /// Past the end.
    OutOfRange = 11,
    /// Not offered here.
    Unimplemented = 12,
    /// Broken inside.
    Internal = 13,
    /// Not there at the moment.
    Unavailable = 14,
    /// Lost for ever.
    DataLoss = 15,
    /// Who is asking?
    Unauthenticated = 16,
}

/// A code's name, its HTTP status, and whether another delivery may help.
const TABLE: [(Code, &str, u16, bool); 17] = [
    (Code::Ok, "OK", 200, false),
    (Code::Cancelled, "CANCELLED", 499, false),
    (Code::Unknown, "UNKNOWN", 500, true),
    (Code::InvalidArgument, "INVALID_ARGUMENT", 400, false),
    (Code::DeadlineExceeded, "DEADLINE_EXCEEDED", 504, true),
    (Code::NotFound, "NOT_FOUND", 404, false),
    (Code::AlreadyExists, "ALREADY_EXISTS", 409, false),
    (Code::PermissionDenied, "PERMISSION_DENIED", 403, false),
    (Code::ResourceExhausted, "RESOURCE_EXHAUSTED", 429, true),
    (Code::FailedPrecondition, "FAILED_PRECONDITION", 412, false),
    (Code::Aborted, "ABORTED", 409, true),
    (Code::OutOfRange, "OUT_OF_RANGE", 400, false),
    (Code::Unimplemented, "UNIMPLEMENTED", 501, false),
    (Code::Internal, "INTERNAL", 500, true),
    (Code::Unavailable, "UNAVAILABLE", 503, true),
    (Code::DataLoss, "DATA_LOSS", 500, false),
    (Code::Unauthenticated, "UNAUTHENTICATED", 401, false),
];

impl Code {
    /// All of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(code, ..)| code)
    }

    /// The code with this number. A number that nobody knows is a failure that nobody knows.
    pub fn from_number(number: i32) -> Self {
        Self::all().find(|code| code.number() == number).unwrap_or(Self::Unknown)
    }

    /// The code with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.into_iter().find(|(_, named, ..)| *named == name).map(|(code, ..)| code)
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Its name, such as `NOT_FOUND`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The HTTP status it travels with.
    pub fn http(self) -> u16 {
        self.row().2
    }

    /// Whether another delivery may help.
    pub fn is_retryable(self) -> bool {
        self.row().3
    }

    fn row(self) -> (Self, &'static str, u16, bool) {
        let place = usize::try_from(self.number()).unwrap_or_default();
        TABLE.get(place).copied().unwrap_or((self, "UNKNOWN", 500, true))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Bytes of a status's message that travel: it has to fit a header, where each may take three.
pub const MESSAGE_BYTES_MAX: usize = 1_024;
/// Bytes of a reason or a domain; a longer one is none.
pub const REASON_BYTES_MAX: usize = 128;
/// The longest wait that a service may ask for.
pub const RETRY_AFTER_MS_MAX: u64 = 3_600_000;

/// A failure as it travels.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Status {
    /// What kind.
    pub code: Code,
    /// For people.
    pub message: String,
    /// Why, in a word that `onError` and `nonRetryable` can match.
    pub reason: Option<String>,
    /// Whose word that is.
    pub domain: Option<String>,
    /// When another delivery makes sense, at the earliest. A hint.
    pub retry_after_ms: Option<u64>,
}

impl Status {
    /// A failure of this kind. A message that is too long is cut.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        Self { code, message, reason: None, domain: None, retry_after_ms: None }
    }

    /// With a reason. A blank one, or one that is too long, is none.
    #[must_use]
    pub fn with_reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()).filter(|word| is_word(word)), ..self }
    }

    /// With the reason's domain. A blank one, or one that is too long, is none.
    #[must_use]
    pub fn with_domain(self, domain: impl Into<String>) -> Self {
        Self { domain: Some(domain.into()).filter(|word| is_word(word)), ..self }
    }

    /// Whether it leaves open what became of the delivery it answers. `patience` if it came with a wait that makes sense.
    ///
    /// Whoever stands before an activity says UNAVAILABLE also when the answer got lost behind it. So that alone is not taken for a refusal: who
    /// refused before the handler says so in a word of the contract, or says when to come back.
    pub(crate) fn is_unsure(&self, patience: bool) -> bool {
        let ours = self.domain.as_deref() == Some(reason::DOMAIN);
        match self.reason.as_deref() {
            // Nobody knows yet what comes of the delivery that is being worked on.
            Some(reason::IN_PROGRESS | reason::OUTCOME_UNKNOWN) => true,
            Some(reason::STOPPING | reason::TOO_MANY_RUNNING) if ours => false,
            _ => self.code == Code::Unavailable && !patience,
        }
    }

    /// With the wait that makes sense, within [`RETRY_AFTER_MS_MAX`].
    #[must_use]
    pub fn with_retry_after_ms(self, wait_ms: u64) -> Self {
        Self { retry_after_ms: Some(wait_ms.min(RETRY_AFTER_MS_MAX)), ..self }
    }
}

impl From<Status> for Failure {
    /// The code to match is the reason if there is one, else the name of the status.
    fn from(status: Status) -> Self {
        let outcome_unknown = status.is_unsure(status.retry_after_ms.is_some());
        let Status { code, message, reason, domain: _, retry_after_ms } = status;
        Self {
            code: reason.unwrap_or_else(|| code.name().to_owned()),
            message,
            retryable: code.is_retryable(),
            outcome_unknown,
            not_sent: false,
            retry_after_ms,
            status: Some(format!("{} {code}", code.http())),
            target: None,
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= REASON_BYTES_MAX
}

#[cfg(test)]
mod tests;
