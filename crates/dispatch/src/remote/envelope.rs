//! The JSON envelope over HTTP: payload and metadata in one body, both ways; failures as in plain JSON.

use hyper::body::Bytes;
use serde_json::Value;

use super::exchange::{success, unreadable};
use crate::guard::Target;
use crate::http::Exchanged;
use crate::transport::{Call, Failure};
use crate::wire::{envelope, json};

pub(super) fn write(call: &Call) -> Bytes {
    // Which definition calls is not known here.
    let request = envelope::Request {
        pipeline: "",
        activity: &call.activity,
        metadata: &call.metadata,
        input: &call.input,
    };
    envelope::write_request(&request).into()
}

pub(super) fn read(exchanged: &Exchanged, target: &Target) -> Result<Value, Failure> {
    let body = success(exchanged, target, json::read_failure)?;
    envelope::read_response(body).map_err(|error| unreadable(&error))
}
