//! Builds every response: the JSON envelope around data or error, and the headers common to all responses.
//!
//! Does not decide which error a failure becomes. The envelope is serialised once, from borrowed data. Durable
//! Functions, metrics and the OpenAPI document have no envelope and use only [`build_response`].

use std::fmt::Display;

use abide_workflow::Timestamp;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::correlation::{self, CorrelationId};
use crate::error::{ApiError, ErrorJson};

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// Serialises a value as its display text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The envelope around data.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SuccessEnvelope<'a, T> {
    #[schemars(extend("const" = SUCCEEDED))]
    status: &'static str,
    correlation_id: &'a str,
    timestamp: Text<Timestamp>,
    data: &'a T,
}

/// The envelope around an error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Failed")]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureEnvelope<'a> {
    #[schemars(extend("const" = FAILED))]
    status: &'static str,
    correlation_id: &'a str,
    timestamp: Text<Timestamp>,
    error: ErrorJson<'a>,
}

pub(crate) fn success_response<T: Serialize>(
    status: StatusCode,
    correlation: &CorrelationId,
    now: Timestamp,
    data: &T,
) -> Response {
    let envelope = SuccessEnvelope {
        status: SUCCEEDED,
        correlation_id: correlation.as_str(),
        timestamp: Text(now),
        data,
    };
    match serde_json::to_vec(&envelope) {
        Ok(json) => json_response(status, correlation, json),
        Err(error) => error_response(&ApiError::internal(&error), correlation, now),
    }
}

/// The response for an error. Logs the error's detail for operators, if it has one.
pub(crate) fn error_response(error: &ApiError, correlation: &CorrelationId, now: Timestamp) -> Response {
    if let Some(detail) = error.log_detail() {
        tracing::error!(correlation_id = correlation.as_str(), detail, "request failed");
    }
    let envelope = FailureEnvelope {
        status: FAILED,
        correlation_id: correlation.as_str(),
        timestamp: Text(now),
        error: error.to_json(),
    };
    // Serialising these fields cannot fail.
    let json = serde_json::to_vec(&envelope).unwrap_or_default();
    let mut response = json_response(error.status(), correlation, json);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn json_response(status: StatusCode, correlation: &CorrelationId, json: Vec<u8>) -> Response {
    build_response(status, correlation, HeaderValue::from_static("application/json"), Body::from(json))
}

/// A response of any content type, with the common headers.
pub(crate) fn build_response(
    status: StatusCode,
    correlation: &CorrelationId,
    content_type: HeaderValue,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(correlation::HEADER, correlation.header_value());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
