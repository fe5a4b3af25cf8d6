//! Protobuf messages over HTTP: `InvokeRequest` and `InvokeResponse` as bodies, and `google.rpc.Status` for failures.
//!
//! Knows nothing about connections or retries.

use hyper::body::Bytes;
use serde_json::Value;

use super::exchange::{output_undecodable, success_body};
use crate::egress_guard::Target;
use crate::http::HttpResponse;
use crate::transport::{CallAttempt, CallFailure};
use crate::wire::protobuf;

pub(super) fn write(call: &CallAttempt) -> Bytes {
    protobuf::write(&protobuf::invoke_request(&call.activity, &call.input)).into()
}

pub(super) fn read(response: &HttpResponse, target: &Target) -> Result<Value, CallFailure> {
    let body = success_body(response, target, protobuf::read_failure)?;
    protobuf::read_response(body.clone()).map_err(|error| output_undecodable(&error, response))
}
