//! Responses in the form of Durable Functions: JSON without an envelope, and three forms of errors.
//!
//! A missing or ended instance is a bare status; a failed precondition, or a purge without `createdTimeFrom`, is a
//! sentence; every other error is an object with a `Message`.

use abide_runtime::RequestError;
use abide_runtime::node::{RunReadError, ShardLost};
use abide_workflow::MessageRefusal;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::correlation::CorrelationId;
use crate::error::ApiError;
use crate::response;

pub(super) type DurableResult = Result<Response, DurableError>;

/// An error response of Durable Functions.
#[derive(Debug)]
pub(super) enum DurableError {
    /// Only the status, without a body.
    StatusOnly(StatusCode),
    /// A sentence, as a JSON string.
    Sentence(StatusCode, String),
    /// An error of the `rest` API.
    Api(ApiError),
}

/// An exception as Azure Functions hosts write it. Clients read one field or the other.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ExceptionJson<'a> {
    message: &'a str,
    exception_message: &'a str,
}

impl DurableError {
    /// The request is invalid because of this parameter.
    pub(super) fn invalid(parameter: &str, message: impl std::fmt::Display) -> Self {
        Self::Api(ApiError::invalid(parameter, format!("{parameter}: {message}")))
    }

    pub(super) fn to_response(&self, correlation: &CorrelationId) -> Response {
        match self {
            Self::StatusOnly(status) => status_only(*status, correlation),
            Self::Sentence(status, sentence) => json(*status, correlation, sentence),
            Self::Api(error) => error_response(error, correlation),
        }
    }
}

/// A response without a body.
pub(super) fn status_only(status: StatusCode, correlation: &CorrelationId) -> Response {
    let mut response = json(status, correlation, "");
    *response.body_mut() = Body::empty();
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// A response with this value as its JSON body, without an envelope.
pub(super) fn json<T: Serialize + ?Sized>(
    status: StatusCode,
    correlation: &CorrelationId,
    value: &T,
) -> Response {
    match serde_json::to_vec(value) {
        Ok(json) => {
            let content_type = HeaderValue::from_static("application/json; charset=utf-8");
            response::build_response(status, correlation, content_type, Body::from(json))
        }
        Err(error) => error_response(&ApiError::internal(&error), correlation),
    }
}

/// The object for an error of the `rest` API. Logs the error's detail for operators, if it has one.
fn error_response(error: &ApiError, correlation: &CorrelationId) -> Response {
    if let Some(detail) = error.log_detail() {
        tracing::error!(correlation_id = correlation.as_str(), detail, "request failed");
    }
    let status = match error.status() {
        // Durable Functions has one status for all invalid requests.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => StatusCode::BAD_REQUEST,
        status => status,
    };
    let message = error.full_message();
    let body = ExceptionJson { message: &message, exception_message: &message };
    // Serialising two strings cannot fail.
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let content_type = HeaderValue::from_static("application/json; charset=utf-8");
    let mut response = response::build_response(status, correlation, content_type, Body::from(body));
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

impl From<ApiError> for DurableError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<RequestError> for DurableError {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        match error {
            RequestError::NotFound { .. } => Self::StatusOnly(StatusCode::NOT_FOUND),
            RequestError::Message(MessageRefusal::RunEnded { .. }) => Self::StatusOnly(StatusCode::GONE),
            RequestError::Message(MessageRefusal::NotFailed { status }) if status.is_terminal() => {
                Self::StatusOnly(StatusCode::GONE)
            }
            RequestError::Message(
                MessageRefusal::NotFailed { .. }
                | MessageRefusal::AlreadyCompensated
                | MessageRefusal::NothingToRewind
                | MessageRefusal::NoFailedCompensation
                | MessageRefusal::NotEnded { .. }
                | MessageRefusal::RetryingCompensation,
            ) => Self::Sentence(StatusCode::PRECONDITION_FAILED, message),
            other => Self::Api(other.into()),
        }
    }
}

impl From<RunReadError> for DurableError {
    fn from(error: RunReadError) -> Self {
        Self::Api(error.into())
    }
}

impl From<ShardLost> for DurableError {
    fn from(error: ShardLost) -> Self {
        Self::Api(error.into())
    }
}
