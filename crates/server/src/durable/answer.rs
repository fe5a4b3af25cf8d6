//! Answers as Durable Functions spells them: JSON without an envelope, and three ways to say no.
//!
//! What is not there or has ended is a bare status; a precondition is a sentence; everything else is an object with a `Message`.

use abide_runtime::Refused;
use abide_runtime::node::{ShowError, Unanswered};
use abide_workflow::Refusal;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::correlation::CorrelationId;
use crate::envelope;
use crate::error::ApiError;

pub(super) type Answered = Result<Response, Otherwise>;

/// An answer that is not what was hoped for.
#[derive(Debug)]
pub(super) enum Otherwise {
    /// Nothing but the status.
    Bare(StatusCode),
    /// A sentence, as a JSON string.
    Said(StatusCode, String),
    /// As the own interface would refuse it.
    Failed(ApiError),
}

/// As their hosts write an exception. Clients read the one or the other.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FailedJson<'a> {
    message: &'a str,
    exception_message: &'a str,
}

impl Otherwise {
    /// The request itself is wrong, at this parameter.
    pub(super) fn invalid(parameter: &str, message: impl std::fmt::Display) -> Self {
        Self::Failed(ApiError::invalid(parameter, format!("{parameter}: {message}")))
    }

    pub(super) fn to_response(&self, correlation: &CorrelationId) -> Response {
        match self {
            Self::Bare(status) => bare(*status, correlation),
            Self::Said(status, sentence) => json(*status, correlation, sentence),
            Self::Failed(error) => failed(error, correlation),
        }
    }
}

/// Nothing but a status.
pub(super) fn bare(status: StatusCode, correlation: &CorrelationId) -> Response {
    let mut response = json(status, correlation, "");
    *response.body_mut() = Body::empty();
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// A value as it is.
pub(super) fn json<T: Serialize + ?Sized>(
    status: StatusCode,
    correlation: &CorrelationId,
    value: &T,
) -> Response {
    match serde_json::to_vec(value) {
        Ok(json) => {
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            envelope::respond(status, correlation, kind, Body::from(json))
        }
        Err(error) => failed(&ApiError::internal(&error), correlation),
    }
}

fn failed(error: &ApiError, correlation: &CorrelationId) -> Response {
    if let Some(detail) = error.logged() {
        tracing::error!(correlation_id = correlation.as_str(), detail, "a request failed");
    }
    let status = match error.status() {
        // Theirs knows one status for a request that is wrong.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => StatusCode::BAD_REQUEST,
        status => status,
    };
    let message = error.in_words();
    let body = FailedJson { message: &message, exception_message: &message };
    // Two strings can be written.
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    let mut response = envelope::respond(status, correlation, kind, Body::from(body));
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

impl From<ApiError> for Otherwise {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refused> for Otherwise {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::NotFound { .. } => Self::Bare(StatusCode::NOT_FOUND),
            Refused::Message(Refusal::RunEnded { .. }) => Self::Bare(StatusCode::GONE),
            Refused::Message(Refusal::NotFailed { status }) if status.is_terminal() => {
                Self::Bare(StatusCode::GONE)
            }
            Refused::Message(
                Refusal::NotFailed { .. } | Refusal::AlreadyCompensated | Refusal::NothingToRewind,
            ) => Self::Said(StatusCode::PRECONDITION_FAILED, message),
            other => Self::Failed(other.into()),
        }
    }
}

impl From<ShowError> for Otherwise {
    fn from(error: ShowError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Unanswered> for Otherwise {
    fn from(unanswered: Unanswered) -> Self {
        Self::Failed(unanswered.into())
    }
}
