//! JSON over HTTP: the input is the body, and so is the output.

use hyper::body::Bytes;
use serde_json::Value;

use super::exchange::{success, unreadable};
use crate::guard::Target;
use crate::http::Exchanged;
use crate::transport::{Call, Failure};
use crate::wire::json;

pub(super) fn write(call: &Call) -> Bytes {
    json::write(&call.input).into()
}

pub(super) fn read(exchanged: &Exchanged, target: &Target) -> Result<Value, Failure> {
    let body = success(exchanged, target, json::read_failure)?;
    json::read_output(body).map_err(|error| unreadable(&error))
}
