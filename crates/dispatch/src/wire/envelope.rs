//! The JSON envelope: payload and metadata in one body, `application/vnd.tpf.envelope.v1+json`.
//!
//! ```text
//! {"protocolVersion": "tpf.envelope.v1",
//!  "control": {"pipeline", "step", "operatorId", "context": {the metadata}},
//!  "payload": {"kind": "json", "contentType": "application/json", "data": …}}
//! ```
//! The context holds the metadata of this wire format; headers only repeat it. Payloads that refer to external data are
//! not supported. Failures are those of plain JSON.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::{JSON, REQUEST_BYTES_MAX, WireDecodeError, check_size, json, media_type, truncate_for_display};
use crate::metadata::{self, Metadata, MetadataError};

/// The only supported version.
pub const VERSION: &str = "tpf.envelope.v1";

const OPERATOR_ID: &str = "abide";

/// The keys of the metadata, their names in a context, and whether they are numbers.
pub const CONTEXT_FIELDS: [(&str, &str, bool); 7] = [
    (metadata::CORRELATION_ID, "correlationId", false),
    (metadata::EXECUTION_ID, "executionId", false),
    (metadata::IDEMPOTENCY_KEY, "idempotencyKey", false),
    (metadata::RETRY_ATTEMPT, "retryAttempt", true),
    (metadata::DEADLINE, "deadlineEpochMs", true),
    (metadata::DISPATCHED_AT, "dispatchTsEpochMs", true),
    (metadata::PARENT_ITEM_ID, "parentItemId", false),
];

/// A call to encode.
#[derive(Clone, Copy, Debug)]
pub struct EnvelopeRequest<'r> {
    /// The id of the definition; empty if it is not known.
    pub pipeline: &'r str,
    pub activity: &'r str,
    pub metadata: &'r Metadata,
    pub input: &'r Value,
}

/// A call as it was received.
#[derive(Clone, Debug)]
pub struct ReceivedEnvelope {
    /// The activity, by the name that the sender uses.
    pub step: String,
    /// The metadata, which may be absent or invalid.
    pub metadata: Result<Option<Metadata>, MetadataError>,
    /// The JSON text of the input, which is not parsed here.
    pub input: Bytes,
    /// The part that the response repeats.
    pub control: EnvelopeControl,
}

/// The part of a call that its response repeats.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeControl {
    #[serde(default)]
    pipeline: String,
    #[serde(default)]
    step: String,
    #[serde(default)]
    operator_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EnvelopeJson<C, D> {
    protocol_version: &'static str,
    control: C,
    payload: PayloadJson<D>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PayloadJson<D> {
    kind: &'static str,
    content_type: &'static str,
    data: D,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvelopeView<'e> {
    #[serde(default)]
    protocol_version: Option<Value>,
    #[serde(borrow)]
    control: Option<&'e RawValue>,
    #[serde(borrow)]
    payload: Option<&'e RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PayloadView<'e> {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(borrow)]
    data: Option<&'e RawValue>,
}

/// The fields of a context. The parser rejects a duplicate field, the metadata decoder a number of the wrong kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextJson {
    correlation_id: Option<String>,
    execution_id: Option<String>,
    idempotency_key: Option<String>,
    retry_attempt: Option<Number>,
    deadline_epoch_ms: Option<Number>,
    dispatch_ts_epoch_ms: Option<Number>,
    parent_item_id: Option<String>,
}

/// Encodes the body of a call.
pub fn write_request(request: &EnvelopeRequest<'_>) -> Vec<u8> {
    let control = serde_json::json!({
        "pipeline": request.pipeline,
        "step": request.activity,
        "operatorId": OPERATOR_ID,
        "context": context_json(request.metadata),
    });
    write(control, request.input)
}

/// Decodes the body of a call.
pub fn read_request(body: &[u8]) -> Result<ReceivedEnvelope, WireDecodeError> {
    let (control, payload) = split_envelope(body)?;
    let control: EnvelopeControl = match control {
        Some(control) => serde_json::from_str(control.get()).map_err(|error| json::not_json(&error))?,
        None => EnvelopeControl::default(),
    };
    let metadata = control.context.as_deref().map_or(Ok(None), read_context);
    let input = Bytes::copy_from_slice(payload_json(payload)?.as_bytes());
    Ok(ReceivedEnvelope { step: control.step.clone(), metadata, input, control })
}

/// Encodes the body of a success, with an output that is JSON already.
pub fn write_response(control: &EnvelopeControl, output: &[u8]) -> Result<Vec<u8>, WireDecodeError> {
    let data: &RawValue = serde_json::from_slice(output).map_err(|error| json::not_json(&error))?;
    Ok(write(control, data))
}

/// Decodes the output in the body of a success. An empty body means null.
pub fn read_response(body: &[u8]) -> Result<Value, WireDecodeError> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let (_, payload) = split_envelope(body)?;
    json::read_output(payload_json(payload)?.as_bytes())
}

fn write(control: impl Serialize, data: impl Serialize) -> Vec<u8> {
    let payload = PayloadJson { kind: "json", content_type: JSON, data };
    // Encoding texts, numbers and JSON into memory cannot fail.
    serde_json::to_vec(&EnvelopeJson { protocol_version: VERSION, control, payload }).unwrap_or_default()
}

/// The control and the payload of an envelope. The version is checked first: nothing is known about other versions.
fn split_envelope(body: &[u8]) -> Result<(Option<&RawValue>, Option<&RawValue>), WireDecodeError> {
    check_size(body.len(), REQUEST_BYTES_MAX)?;
    let envelope: EnvelopeView<'_> = serde_json::from_slice(body).map_err(|error| json::not_json(&error))?;
    match envelope.protocol_version {
        Some(Value::String(version)) if version == VERSION => Ok((envelope.control, envelope.payload)),
        Some(Value::String(version)) => {
            Err(WireDecodeError::UnsupportedVersion { found: truncate_for_display(&version) })
        }
        _ => Err(WireDecodeError::UnsupportedVersion { found: String::new() }),
    }
}

/// The JSON text of a payload. Absent data means null.
fn payload_json(payload: Option<&RawValue>) -> Result<&str, WireDecodeError> {
    let payload = payload.ok_or(WireDecodeError::UnsupportedPart { part: "/payload" })?;
    let payload: PayloadView<'_> =
        serde_json::from_str(payload.get()).map_err(|error| json::not_json(&error))?;
    let data = payload.data.map_or("null", RawValue::get);
    match payload.kind.as_deref() {
        // Bytes are an object with their base64 text, which is passed on as it is.
        Some("bytes") => Ok(data),
        Some("json") => match payload.content_type {
            Some(found) if media_type(&found) != JSON => {
                Err(WireDecodeError::UnsupportedContentType { found: truncate_for_display(&found) })
            }
            _ => Ok(data),
        },
        _ => Err(WireDecodeError::UnsupportedPart { part: "/payload/kind" }),
    }
}

/// The metadata as a context: the same fields as in headers, with numbers as numbers.
fn context_json(metadata: &Metadata) -> Map<String, Value> {
    let fields = metadata.encode().filter_map(|(key, text)| {
        let (_, name, is_number) = CONTEXT_FIELDS.into_iter().find(|(named, ..)| *named == key)?;
        let number = text.parse::<i64>().ok().filter(|_| is_number).map(Value::from);
        Some((name.to_owned(), number.unwrap_or_else(|| Value::String(text.into_owned()))))
    });
    fields.collect()
}

fn read_context(context: &RawValue) -> Result<Option<Metadata>, MetadataError> {
    let unreadable = |error: serde_json::Error| {
        let reason = format!("/control/context: column {}", error.column());
        MetadataError::Unreadable { reason }
    };
    let context: Option<ContextJson> = serde_json::from_str(context.get()).map_err(unreadable)?;
    let Some(context) = context else { return Ok(None) };
    let number = |number: Option<Number>| number.map(|number| number.to_string());
    let texts = [
        context.correlation_id,
        context.execution_id,
        context.idempotency_key,
        number(context.retry_attempt),
        number(context.deadline_epoch_ms),
        number(context.dispatch_ts_epoch_ms),
        context.parent_item_id,
    ];
    let pairs = CONTEXT_FIELDS.iter().zip(&texts);
    Metadata::decode(pairs.filter_map(|((key, ..), text)| Some((*key, text.as_deref()?.as_bytes()))))
}

#[cfg(test)]
mod tests;
