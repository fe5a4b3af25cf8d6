//! Parses the responses of all wires into one form: an output or a status, with the bytes that a duplicate must get.
//!
//! It does not know which response is right: checks compare.

use std::fmt;

use abide_dispatch::wire::{grpc, json, protobuf};
use abide_dispatch::{RpcCode, RpcStatus};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::WireFormat;
use crate::http_client::RawResponse;
use crate::violation::{CheckFailure, CheckResult};

/// Longer outputs and reasons are cut in reports.
const SHOWN_CHARS_MAX: usize = 160;

#[derive(Clone, Debug)]
pub(crate) struct ReceiverResponse {
    /// `None` over gRPC, which does not use it.
    pub(crate) http_status: Option<u16>,
    pub(crate) outcome: ResponseOutcome,
    /// The JSON text of the output, or the failure, exactly as received.
    pub(crate) result_bytes: Bytes,
    pub(crate) body: Bytes,
}

/// The outcome that a response reports.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ResponseOutcome {
    Output(Value),
    Failed(RpcStatus),
    /// Nothing that the contract defines; the text describes it.
    Unrecognized(&'static str),
}

pub(crate) fn parse_response(transport: WireFormat, raw: &RawResponse) -> ReceiverResponse {
    let body = raw.body.clone();
    if transport == WireFormat::Grpc {
        let (outcome, result_bytes) = parse_grpc(raw);
        return ReceiverResponse { http_status: None, outcome, result_bytes, body };
    }
    let http_status = Some(raw.status);
    let failure = match transport {
        WireFormat::Protobuf => protobuf::read_failure(&body),
        _ => json::read_failure(&body),
    };
    let (outcome, result_bytes) = match (raw.status, failure) {
        (200..=299, _) => parse_output(transport, &body),
        (_, Some(status)) => (ResponseOutcome::Failed(status), body.clone()),
        (_, None) => (ResponseOutcome::Unrecognized("a failure without a status in its body"), body.clone()),
    };
    ReceiverResponse { http_status, outcome, result_bytes, body }
}

fn parse_output(transport: WireFormat, body: &Bytes) -> (ResponseOutcome, Bytes) {
    let text = match transport {
        WireFormat::Rest | WireFormat::Grpc => Some(body.clone()),
        WireFormat::Protobuf => protobuf_output(body.clone()),
        WireFormat::Envelope => envelope_output(body),
    };
    let Some(text) = text else {
        return (ResponseOutcome::Unrecognized("a success that cannot be read"), body.clone());
    };
    match json::read_output(&text) {
        Ok(output) => (ResponseOutcome::Output(output), text),
        Err(_) => (ResponseOutcome::Unrecognized("a success whose output is not JSON"), text),
    }
}

fn protobuf_output(body: Bytes) -> Option<Bytes> {
    protobuf::payload_json(protobuf::read_invoke_response(body).ok()?.output).ok()
}

/// The JSON text of an envelope's payload, which `envelope::read_response` does not return.
fn envelope_output(body: &Bytes) -> Option<Bytes> {
    #[derive(serde::Deserialize)]
    struct Envelope<'e> {
        #[serde(borrow)]
        payload: Payload<'e>,
    }
    #[derive(serde::Deserialize)]
    struct Payload<'e> {
        #[serde(borrow)]
        data: Option<&'e RawValue>,
    }
    abide_dispatch::wire::envelope::read_response(body).ok()?;
    if body.is_empty() {
        return Some(body.clone());
    }
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    let text = envelope.payload.data.map_or("null", RawValue::get);
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn parse_grpc(raw: &RawResponse) -> (ResponseOutcome, Bytes) {
    let places = [&raw.trailers, &raw.headers];
    let Some((status, headers)) =
        places.into_iter().find_map(|headers| Some((tonic::Status::from_header_map(headers)?, headers)))
    else {
        return (ResponseOutcome::Unrecognized("a response without a grpc-status"), raw.body.clone());
    };
    if status.code() != tonic::Code::Ok {
        let value = |name| headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
        let bytes =
            [value("grpc-status"), value("grpc-message"), value("grpc-status-details-bin")].join(&b'\n');
        return (ResponseOutcome::Failed(grpc::read_failure(&status)), bytes.into());
    }
    match grpc::decode_frame(&raw.body) {
        Some(body) => parse_output(WireFormat::Protobuf, &body),
        None => (ResponseOutcome::Unrecognized("a success that is not one message"), raw.body.clone()),
    }
}

impl ReceiverResponse {
    /// The response must be this output.
    pub(crate) fn expect_output(&self, output: &Value) -> CheckResult {
        match &self.outcome {
            ResponseOutcome::Output(found) if found == output => Ok(()),
            _ => Err(CheckFailure::violation(shorten(&output.to_string()), self)),
        }
    }

    /// The response must be the output `{"runs": n}`.
    pub(crate) fn expect_run_count(&self, runs: u64) -> CheckResult {
        self.expect_output(&serde_json::json!({"runs": runs}))
    }

    /// The response must be the recorded result, byte for byte.
    pub(crate) fn expect_same_as(&self, first: &Self) -> CheckResult {
        if self.http_status != first.http_status || self.outcome != first.outcome {
            return Err(CheckFailure::violation(format!("the recorded result, {first}"), self));
        }
        if self.result_bytes != first.result_bytes {
            let (expected, found) = (
                shorten(&String::from_utf8_lossy(&first.result_bytes)),
                shorten(&String::from_utf8_lossy(&self.result_bytes)),
            );
            return Err(CheckFailure::violation(
                format!("the recorded result byte for byte, {expected}"),
                format!("different bytes, {found}"),
            ));
        }
        Ok(())
    }

    /// The response must be a failure with this code, the code's HTTP status and, if given, this reason.
    pub(crate) fn expect_failure(&self, code: RpcCode, reason: Option<&str>) -> CheckResult {
        self.expect_failure_with_http(code, reason, code.http_status())
    }

    /// Like [`Self::expect_failure`], but with another HTTP status than the code's.
    pub(crate) fn expect_failure_with_http(
        &self,
        code: RpcCode,
        reason: Option<&str>,
        http: u16,
    ) -> CheckResult {
        let is_code = matches!(&self.outcome, ResponseOutcome::Failed(status) if status.code == code);
        let is_reason = reason.is_none() || self.reason() == reason;
        let is_http = self.http_status.is_none_or(|found| found == http);
        if is_code && is_reason && is_http {
            return Ok(());
        }
        let number = if self.http_status.is_some() { format!("{http} ") } else { String::new() };
        let reason = reason.map(|reason| format!(" {reason}")).unwrap_or_default();
        Err(CheckFailure::violation(format!("{number}{code}{reason}"), self))
    }

    pub(crate) fn code(&self) -> Option<RpcCode> {
        if let ResponseOutcome::Failed(status) = &self.outcome { Some(status.code) } else { None }
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        if let ResponseOutcome::Failed(status) = &self.outcome { status.reason.as_deref() } else { None }
    }
}

impl fmt::Display for ReceiverResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(http) = self.http_status {
            write!(f, "{http} ")?;
        }
        match &self.outcome {
            ResponseOutcome::Output(output) => f.write_str(&shorten(&output.to_string())),
            ResponseOutcome::Failed(status) => {
                write!(f, "{}", status.code)?;
                status.reason.as_ref().map_or(Ok(()), |reason| write!(f, " {}", shorten(reason)))
            }
            ResponseOutcome::Unrecognized(what) => f.write_str(what),
        }
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS_MAX).chain(['…']).collect()
}
