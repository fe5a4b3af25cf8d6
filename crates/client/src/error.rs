//! Why a request failed. The type tells the classes apart: the server refused the request, the request never reached
//! the server, or the outcome is unknown. Retries are decided in [`crate::retry`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The base URL cannot be that of a server.
    #[error("{url:?} is not the URL of a server: {reason}")]
    InvalidUrl { url: String, reason: String },
    /// The server understood the request and refused it.
    #[error(transparent)]
    Refused(Box<ErrorResponse>),
    /// No connection to the server could be made. Nothing was sent, so nothing can have happened.
    #[error("cannot connect to http://{server}")]
    Unreachable { server: String, source: std::io::Error },
    /// The connection broke before the response was complete. The outcome of the request is unknown.
    #[error("the connection to http://{server} broke before the response was complete")]
    Interrupted { server: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The response did not arrive in time. The outcome of the request is unknown.
    #[error("http://{server} did not respond within {} seconds", within.as_secs_f64())]
    Timeout {
        server: String,
        /// How long the client waited, all retries together.
        within: Duration,
    },
    /// The response is not one of the Abide API.
    #[error("unexpected response from http://{server} (HTTP {status}): {reason}")]
    UnexpectedResponse { server: String, status: u16, reason: String },
    /// The request could not be built, so nothing was sent.
    #[error("cannot build the request: {reason}")]
    InvalidRequest { reason: String },
}

impl ClientError {
    /// The server's error response, if the server refused the request.
    pub fn error_response(&self) -> Option<&ErrorResponse> {
        match self {
            Self::Refused(response) => Some(response),
            _ => None,
        }
    }

    /// True if the server reported that the resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.error_response().is_some_and(|response| response.code == ErrorCode::ResourceNotFound)
    }
}

/// The response of a server that refused a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
#[serde(rename_all = "camelCase")]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The class of the error, for programs.
    pub code: ErrorCode,
    /// The reason, for people.
    pub message: String,
    /// The invalid place in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// All invalid places, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<ErrorDetail>,
    /// The id under which the server logged the request.
    pub correlation_id: String,
}

/// The class of an error response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// The request is invalid.
    ValidationError,
    /// The client's identity is missing or not accepted.
    AuthenticationFailed,
    /// The client may not do this.
    AuthorizationFailed,
    /// The resource does not exist.
    ResourceNotFound,
    /// The present state of the resource does not allow the request.
    Conflict,
    /// Too many requests: retry later.
    RateLimited,
    /// The server failed.
    InternalError,
    /// The server cannot do this now: retry later.
    ServiceUnavailable,
    /// A class that this client does not know.
    #[serde(other)]
    Unknown,
}

/// One of the invalid places of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorDetail {
    pub code: String,
    pub message: String,
    /// A JSON pointer into the request body.
    pub target: String,
    /// How to fix it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
