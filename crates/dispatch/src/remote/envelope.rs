//! The JSON envelope over HTTP: payload and metadata in one body, in both directions; failures as in plain JSON.
//!
//! Knows nothing about connections or retries.

use hyper::body::Bytes;
use serde_json::Value;

use super::exchange::{output_undecodable, success_body};
use crate::egress_guard::Target;
use crate::http::HttpResponse;
use crate::transport::{CallAttempt, CallFailure};
use crate::wire::{envelope, json};

pub(super) fn write(call: &CallAttempt) -> Bytes {
    // The definition that makes the call is not known here.
    let request = envelope::EnvelopeRequest {
        pipeline: "",
        activity: &call.activity,
        metadata: &call.metadata,
        input: &call.input,
    };
    envelope::write_request(&request).into()
}

pub(super) fn read(response: &HttpResponse, target: &Target) -> Result<Value, CallFailure> {
    let body = success_body(response, target, json::read_failure)?;
    envelope::read_response(body).map_err(|error| output_undecodable(&error, response))
}
