//! The JSON envelope: payload and metadata in one body, `application/vnd.tpf.envelope.v1+json`.
//!
//! ```text
//! {"protocolVersion": "tpf.envelope.v1",
//!  "control": {"pipeline", "step", "operatorId", "context": {the metadata}},
//!  "payload": {"kind": "json", "contentType": "application/json", "data": …}}
//! ```
//! The context is the metadata of this wire; headers only repeat it. Payloads that refer to something elsewhere are not read. Failures are
//! those of plain JSON.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::{BODY_BYTES_MAX, JSON, Unreadable, json, media_type, shown, within};
use crate::metadata::{self, MalformedMetadata, Metadata};

/// The one version that is known.
pub const VERSION: &str = "tpf.envelope.v1";

const OPERATOR: &str = "abide";

/// The names of the metadata in a context, and whether they are numbers.
pub const FIELDS: [(&str, &str, bool); 7] = [
    (metadata::CORRELATION_ID, "correlationId", false),
    (metadata::EXECUTION_ID, "executionId", false),
    (metadata::IDEMPOTENCY_KEY, "idempotencyKey", false),
    (metadata::RETRY_ATTEMPT, "retryAttempt", true),
    (metadata::DEADLINE, "deadlineEpochMs", true),
    (metadata::DISPATCHED_AT, "dispatchTsEpochMs", true),
    (metadata::PARENT_ITEM_ID, "parentItemId", false),
];

/// A call to be written.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The definition's id, or nothing if it is not known.
    pub pipeline: &'r str,
    /// The activity.
    pub activity: &'r str,
    /// What travels with the call.
    pub metadata: &'r Metadata,
    /// What the activity is given.
    pub input: &'r Value,
}

/// A call as it came in.
#[derive(Clone, Debug)]
pub struct Received {
    /// The activity, as the sender calls it.
    pub step: String,
    /// The metadata, which may be none, or none that can be understood.
    pub metadata: Result<Option<Metadata>, MalformedMetadata>,
    /// The JSON text of the input, which is not looked into.
    pub input: Bytes,
    /// What the answer repeats.
    pub control: Control,
}

/// What an answer repeats of its call.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Control {
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
struct Written<C, D> {
    protocol_version: &'static str,
    control: C,
    payload: WrittenPayload<D>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenPayload<D> {
    kind: &'static str,
    content_type: &'static str,
    data: D,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read<'e> {
    #[serde(default)]
    protocol_version: Option<Value>,
    #[serde(borrow)]
    control: Option<&'e RawValue>,
    #[serde(borrow)]
    payload: Option<&'e RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadPayload<'e> {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(borrow)]
    data: Option<&'e RawValue>,
}

/// A context taken apart. A field twice is an error of the reader, a number of the wrong kind one of the one decoder.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    correlation_id: Option<String>,
    execution_id: Option<String>,
    idempotency_key: Option<String>,
    retry_attempt: Option<Number>,
    deadline_epoch_ms: Option<Number>,
    dispatch_ts_epoch_ms: Option<Number>,
    parent_item_id: Option<String>,
}

/// The body of a call.
pub fn write_request(request: &Request<'_>) -> Vec<u8> {
    let control = serde_json::json!({
        "pipeline": request.pipeline,
        "step": request.activity,
        "operatorId": OPERATOR,
        "context": context(request.metadata),
    });
    write(control, request.input)
}

/// The call that a body is.
pub fn read_request(body: &[u8]) -> Result<Received, Unreadable> {
    let (control, payload) = open(body)?;
    let control: Control = match control {
        Some(control) => serde_json::from_str(control.get()).map_err(|error| json::not_json(&error))?,
        None => Control::default(),
    };
    let metadata = control.context.as_deref().map_or(Ok(None), read_context);
    let input = Bytes::copy_from_slice(data(payload)?.as_bytes());
    Ok(Received { step: control.step.clone(), metadata, input, control })
}

/// The body of a success, with an output that is JSON already.
pub fn write_response(control: &Control, output: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let data: &RawValue = serde_json::from_slice(output).map_err(|error| json::not_json(&error))?;
    Ok(write(control, data))
}

/// The output of a success's body. No body is null.
pub fn read_response(body: &[u8]) -> Result<Value, Unreadable> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let (_, payload) = open(body)?;
    json::read(data(payload)?.as_bytes())
}

fn write(control: impl Serialize, data: impl Serialize) -> Vec<u8> {
    let payload = WrittenPayload { kind: "json", content_type: JSON, data };
    // Texts, numbers and JSON into memory: there is nothing that could fail.
    serde_json::to_vec(&Written { protocol_version: VERSION, control, payload }).unwrap_or_default()
}

/// Control and payload of an envelope, whose version is looked at first: of another one nothing else is known.
fn open(body: &[u8]) -> Result<(Option<&RawValue>, Option<&RawValue>), Unreadable> {
    within(body.len(), BODY_BYTES_MAX)?;
    let read: Read<'_> = serde_json::from_slice(body).map_err(|error| json::not_json(&error))?;
    match read.protocol_version {
        Some(Value::String(version)) if version == VERSION => Ok((read.control, read.payload)),
        Some(Value::String(version)) => Err(Unreadable::Version { found: shown(&version) }),
        _ => Err(Unreadable::Version { found: String::new() }),
    }
}

/// The JSON text of a payload. No data is null.
fn data(payload: Option<&RawValue>) -> Result<&str, Unreadable> {
    let payload = payload.ok_or(Unreadable::Part { part: "/payload" })?;
    let payload: ReadPayload<'_> =
        serde_json::from_str(payload.get()).map_err(|error| json::not_json(&error))?;
    let data = payload.data.map_or("null", RawValue::get);
    match payload.kind.as_deref() {
        // Bytes are an object with their base64 text; whoever asks for them gets it as it is.
        Some("bytes") => Ok(data),
        Some("json") => match payload.content_type {
            Some(found) if media_type(&found) != JSON => {
                Err(Unreadable::ContentType { found: shown(&found) })
            }
            _ => Ok(data),
        },
        _ => Err(Unreadable::Part { part: "/payload/kind" }),
    }
}

/// The metadata as a context has it: what headers would carry, numbers as numbers.
fn context(metadata: &Metadata) -> Map<String, Value> {
    let fields = metadata.encode().filter_map(|(key, text)| {
        let (_, name, is_number) = FIELDS.into_iter().find(|(named, ..)| *named == key)?;
        let number = text.parse::<i64>().ok().filter(|_| is_number).map(Value::from);
        Some((name.to_owned(), number.unwrap_or_else(|| Value::String(text.into_owned()))))
    });
    fields.collect()
}

fn read_context(context: &RawValue) -> Result<Option<Metadata>, MalformedMetadata> {
    let unreadable = |error: serde_json::Error| {
        let reason = format!("/control/context: column {}", error.column());
        MalformedMetadata::Unreadable { reason }
    };
    let context: Option<Context> = serde_json::from_str(context.get()).map_err(unreadable)?;
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
    let pairs = FIELDS.iter().zip(&texts);
    Metadata::decode(pairs.filter_map(|((key, ..), text)| Some((*key, text.as_deref()?.as_bytes()))))
}

#[cfg(test)]
mod tests;
