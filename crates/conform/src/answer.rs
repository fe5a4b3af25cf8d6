//! What a response says, whatever the wire: an output or a status, with the bytes that a duplicate must be answered with again.

use std::fmt;

use abide_dispatch::wire::{grpc, json, protobuf};
use abide_dispatch::{Code, Status};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Wire;
use crate::exchange::Exchanged;
use crate::unmet::{Met, Unmet};

/// Characters of an answer that are shown.
const SHOWN_CHARS_MAX: usize = 160;

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The HTTP status; none over gRPC, which has no use for it.
    pub(crate) http: Option<u16>,
    pub(crate) said: Said,
    /// The JSON text of the output, or the failure, as it came.
    pub(crate) bytes: Bytes,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// What it says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Said {
    Output(Value),
    Failed(Status),
    /// Nothing that the contract knows.
    Unclear(&'static str),
}

/// Reads a response.
pub(crate) fn read(transport: Wire, exchanged: &Exchanged) -> Answer {
    let body = exchanged.body.clone();
    if transport == Wire::Grpc {
        let (said, bytes) = of_grpc(exchanged);
        return Answer { http: None, said, bytes, body };
    }
    let http = Some(exchanged.status);
    let told = match transport {
        Wire::Protobuf => protobuf::read_failure(&body),
        _ => json::read_failure(&body),
    };
    let (said, bytes) = match (exchanged.status, told) {
        (200..=299, _) => output(transport, &body),
        (_, Some(status)) => (Said::Failed(status), body.clone()),
        (_, None) => (Said::Unclear("a failure without a status in its body"), body.clone()),
    };
    Answer { http, said, bytes, body }
}

fn output(transport: Wire, body: &Bytes) -> (Said, Bytes) {
    let text = match transport {
        Wire::Rest | Wire::Grpc => Some(body.clone()),
        Wire::Protobuf => message(body.clone()),
        Wire::Envelope => payload(body),
    };
    let Some(text) = text else { return (Said::Unclear("a success that cannot be read"), body.clone()) };
    match json::read_output(&text) {
        Ok(output) => (Said::Output(output), text),
        Err(_) => (Said::Unclear("a success whose output is not JSON"), text),
    }
}

fn message(body: Bytes) -> Option<Bytes> {
    protobuf::json_of(protobuf::read_answer(body).ok()?.output).ok()
}

/// The text of an envelope's payload, which its reader does not keep.
fn payload(body: &Bytes) -> Option<Bytes> {
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

fn of_grpc(exchanged: &Exchanged) -> (Said, Bytes) {
    let both = [&exchanged.trailers, &exchanged.headers];
    let Some((told, headers)) =
        both.into_iter().find_map(|headers| Some((tonic::Status::from_header_map(headers)?, headers)))
    else {
        return (Said::Unclear("an answer without a grpc-status"), exchanged.body.clone());
    };
    if told.code() != tonic::Code::Ok {
        let of = |name| headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
        let bytes = [of("grpc-status"), of("grpc-message"), of("grpc-status-details-bin")].join(&b'\n');
        return (Said::Failed(grpc::read_failure(&told)), bytes.into());
    }
    match grpc::unframed(&exchanged.body) {
        Some(body) => output(Wire::Protobuf, &body),
        None => (Said::Unclear("a success that is not one message"), exchanged.body.clone()),
    }
}

impl Answer {
    /// The output, which must be this.
    pub(crate) fn is(&self, output: &Value) -> Met {
        match &self.said {
            Said::Output(found) if found == output => Ok(()),
            _ => Err(Unmet::broken(shown(&output.to_string()), self)),
        }
    }

    /// `{"runs": n}`.
    pub(crate) fn is_run(&self, runs: u64) -> Met {
        self.is(&serde_json::json!({"runs": runs}))
    }

    /// The very answer that was given before.
    pub(crate) fn repeats(&self, first: &Self) -> Met {
        if self.http != first.http || self.said != first.said {
            return Err(Unmet::broken(format!("the recorded answer, {first}"), self));
        }
        if self.bytes != first.bytes {
            let (expected, found) =
                (shown(&String::from_utf8_lossy(&first.bytes)), shown(&String::from_utf8_lossy(&self.bytes)));
            return Err(Unmet::broken(
                format!("the recorded answer byte for byte, {expected}"),
                format!("other bytes, {found}"),
            ));
        }
        Ok(())
    }

    /// A failure of this kind, with its own HTTP status and, if one is asked for, this reason.
    pub(crate) fn fails(&self, code: Code, reason: Option<&str>) -> Met {
        self.fails_as(code, reason, code.http())
    }

    /// The same, with an HTTP status that says it better.
    pub(crate) fn fails_as(&self, code: Code, reason: Option<&str>, http: u16) -> Met {
        let is_code = matches!(&self.said, Said::Failed(status) if status.code == code);
        let is_reason = reason.is_none() || self.reason() == reason;
        let is_http = self.http.is_none_or(|found| found == http);
        if is_code && is_reason && is_http {
            return Ok(());
        }
        let number = if self.http.is_some() { format!("{http} ") } else { String::new() };
        let reason = reason.map(|reason| format!(" {reason}")).unwrap_or_default();
        Err(Unmet::broken(format!("{number}{code}{reason}"), self))
    }

    /// The failure's code.
    pub(crate) fn code(&self) -> Option<Code> {
        if let Said::Failed(status) = &self.said { Some(status.code) } else { None }
    }

    /// The failure's reason.
    pub(crate) fn reason(&self) -> Option<&str> {
        if let Said::Failed(status) = &self.said { status.reason.as_deref() } else { None }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(http) = self.http {
            write!(f, "{http} ")?;
        }
        match &self.said {
            Said::Output(output) => f.write_str(&shown(&output.to_string())),
            Said::Failed(status) => {
                write!(f, "{}", status.code)?;
                status.reason.as_ref().map_or(Ok(()), |reason| write!(f, " {}", shown(reason)))
            }
            Said::Unclear(what) => f.write_str(what),
        }
    }
}

fn shown(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS_MAX).chain(['…']).collect()
}
