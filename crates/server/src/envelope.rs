//! The envelope around every answer, and the headers every answer has. Written once, from borrowed data.

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

/// Something written as its text.
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
pub(crate) struct Succeeded<'a, T> {
    #[schemars(extend("const" = SUCCEEDED))]
    status: &'static str,
    correlation_id: &'a str,
    timestamp: Text<Timestamp>,
    data: &'a T,
}

/// The envelope around an error.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failed<'a> {
    #[schemars(extend("const" = FAILED))]
    status: &'static str,
    correlation_id: &'a str,
    timestamp: Text<Timestamp>,
    error: ErrorJson<'a>,
}

/// An answer with data.
pub(crate) fn succeeded<T: Serialize>(
    status: StatusCode,
    correlation: &CorrelationId,
    now: Timestamp,
    data: &T,
) -> Response {
    let envelope =
        Succeeded { status: SUCCEEDED, correlation_id: correlation.as_str(), timestamp: Text(now), data };
    match serde_json::to_vec(&envelope) {
        Ok(json) => with_headers(status, correlation, json),
        Err(error) => failed(&ApiError::internal(&error), correlation, now),
    }
}

/// An answer that says why there is none.
pub(crate) fn failed(error: &ApiError, correlation: &CorrelationId, now: Timestamp) -> Response {
    if let Some(detail) = error.logged() {
        tracing::error!(correlation_id = correlation.as_str(), detail, "a request failed");
    }
    let envelope = Failed {
        status: FAILED,
        correlation_id: correlation.as_str(),
        timestamp: Text(now),
        error: error.to_json(),
    };
    // Nothing in it can fail to be written.
    let json = serde_json::to_vec(&envelope).unwrap_or_default();
    let mut response = with_headers(error.status(), correlation, json);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn with_headers(status: StatusCode, correlation: &CorrelationId, json: Vec<u8>) -> Response {
    respond(status, correlation, HeaderValue::from_static("application/json"), Body::from(json))
}

/// A response of any content with the headers that all have.
pub(crate) fn respond(
    status: StatusCode,
    correlation: &CorrelationId,
    content_type: HeaderValue,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(correlation::HEADER, correlation.header());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
