//! JSON over HTTP: the input is the body of the request, and the output is the body of the response.
//!
//! Knows nothing about connections or retries.

use hyper::body::Bytes;
use serde_json::Value;

use super::exchange::{output_undecodable, success_body};
use crate::egress_guard::Target;
use crate::http::HttpResponse;
use crate::transport::{CallAttempt, CallFailure};
use crate::wire::json;

pub(super) fn write(call: &CallAttempt) -> Bytes {
    json::write(&call.input).into()
}

pub(super) fn read(response: &HttpResponse, target: &Target) -> Result<Value, CallFailure> {
    let body = success_body(response, target, json::read_failure)?;
    json::read_output(body).map_err(|error| output_undecodable(&error, response))
}
