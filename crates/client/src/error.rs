//! Why a call has no answer. The class is in the type: what the server refused, what never reached it, what nobody knows the outcome of.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The base URL is not one of a server.
    #[error("{url:?} is not the URL of a server: {reason}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server understood the request and does not do it.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// No connection to the server could be made. Nothing was sent, so nothing can have happened.
    #[error("http://{server} cannot be reached")]
    Unreachable {
        /// Where it was looked for.
        server: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The connection broke before the answer was there: nobody here knows whether the request was done.
    #[error("the connection to http://{server} broke before it answered")]
    Interrupted {
        /// The server.
        server: String,
        /// How it broke.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There was no answer in time: nobody here knows whether the request was done.
    #[error("http://{server} did not answer within {} seconds", within.as_secs_f64())]
    Timeout {
        /// The server.
        server: String,
        /// How long was waited, all repeats together.
        within: Duration,
    },
    /// What answered does not speak this interface.
    #[error("http://{server} answered something that is not understood (HTTP {status}): {reason}")]
    Unexpected {
        /// Who answered.
        server: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        reason: String,
    },
    /// The request itself cannot be written.
    #[error("the request cannot be written: {reason}")]
    Request {
        /// Why.
        reason: String,
    },
}

impl ClientError {
    /// What the server said, if it refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the server said that there is no such thing.
    pub fn is_not_found(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == Code::ResourceNotFound)
    }
}

/// What the server says when it does not do what it is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The class, for programs.
    pub code: Code,
    /// The reason, for people.
    pub message: String,
    /// The place in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The places, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// What to look for in the server's log.
    pub correlation_id: String,
}

/// The class of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The request is wrong.
    ValidationError,
    /// Nobody said who asks, or nobody believes it.
    AuthenticationFailed,
    /// Whoever asks may not.
    AuthorizationFailed,
    /// There is no such thing.
    ResourceNotFound,
    /// It cannot be done as things are.
    Conflict,
    /// Too much at once: again later.
    RateLimited,
    /// Something is wrong in the server.
    InternalError,
    /// The server cannot now: again later.
    ServiceUnavailable,
    /// A class that this client does not know.
    #[serde(other)]
    Unknown,
}

/// One place of several that are wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Detail {
    /// What kind of mistake.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// Where: a JSON pointer into what was sent.
    pub target: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
