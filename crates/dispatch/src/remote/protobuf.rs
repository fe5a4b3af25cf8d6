//! Protobuf messages over HTTP: `InvokeRequest` and `InvokeResponse` as bodies, `google.rpc.Status` where it failed.

use hyper::body::Bytes;
use serde_json::Value;

use super::exchange::{success, unreadable};
use crate::guard::Target;
use crate::http::Exchanged;
use crate::transport::{Call, Failure};
use crate::wire::protobuf;

pub(super) fn write(call: &Call) -> Bytes {
    protobuf::write(&protobuf::invoke(&call.activity, &call.input)).into()
}

pub(super) fn read(exchanged: &Exchanged, target: &Target) -> Result<Value, Failure> {
    let body = success(exchanged, target, protobuf::read_failure)?;
    protobuf::read_response(body.clone()).map_err(|error| unreadable(&error))
}
