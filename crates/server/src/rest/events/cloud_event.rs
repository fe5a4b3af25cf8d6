//! Parses CloudEvents 1.0 from HTTP: structured, binary and batch mode. Each event becomes the JSON object of the
//! structured mode.
//!
//! Knows the specification, but nothing about event routes or entities.

use std::borrow::Cow;

use abide_workflow::Timestamp;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use crate::api_request;
use crate::error::ApiError;

/// One event: attributes and data as one object, and the attributes used for routing.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct InboundCloudEvent {
    pub(super) json: Map<String, Value>,
    pub(super) source: String,
    pub(super) id: String,
    pub(super) event_type: String,
}

/// How a request carries its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ContentMode {
    /// One JSON object.
    Structured,
    /// An array of events.
    Batch,
    /// Attributes in headers, data in the body.
    Binary,
}

/// Of an attribute that is used for routing.
const ATTRIBUTE_CHARS_MAX: usize = 1_024;
const ATTRIBUTES_MAX: usize = 64;
const BATCH_MAX: usize = 1_000;
/// The prefix of headers with attributes.
const HEADER_PREFIX: &str = "ce-";
/// The prefix of media types with whole events.
const CLOUD_EVENTS_MEDIA_PREFIX: &str = "application/cloudevents";

impl ContentMode {
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/cloudevents+json" => Ok(Self::Structured),
            "application/cloudevents-batch+json" => Ok(Self::Batch),
            // An unknown format of a whole event must not be taken for the data of an event.
            _ if headers.contains_key("ce-specversion") && !kind.starts_with(CLOUD_EVENTS_MEDIA_PREFIX) => {
                Ok(Self::Binary)
            }
            "application/json" => Ok(Self::Structured),
            _ => Err(ApiError::rejected(
                axum::http::StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "send events as application/cloudevents+json, as application/cloudevents-batch+json, or with ce- headers",
            )),
        }
    }
}

/// The events of a JSON body. One invalid event makes the whole batch invalid.
pub(super) fn parse_json(mode: ContentMode, body: Value) -> Result<Vec<InboundCloudEvent>, ApiError> {
    match (mode, body) {
        (ContentMode::Batch, Value::Array(events)) if events.len() <= BATCH_MAX => {
            let parse = |(index, event)| parse_object(event, &format!("/{index}"));
            events.into_iter().enumerate().map(parse).collect()
        }
        (ContentMode::Batch, Value::Array(events)) => {
            let message = format!("the batch has {} events; the limit is {BATCH_MAX}", events.len());
            Err(ApiError::invalid("", message))
        }
        (ContentMode::Batch, _) => Err(ApiError::invalid("", "a batch of events must be an array")),
        (_, event) => Ok(vec![parse_object(event, "")?]),
    }
}

/// The event in headers and body.
pub(super) fn parse_binary(headers: &HeaderMap, body: &[u8]) -> Result<InboundCloudEvent, ApiError> {
    let mut attributes = Map::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(HEADER_PREFIX) else { continue };
        let target = format!("{HEADER_PREFIX}{name}");
        if matches!(name, "data" | "data_base64" | "datacontenttype") {
            return Err(ApiError::invalid(
                &target,
                "put the data into the body and its type into the content-type header",
            ));
        }
        let value = unquote(value.as_bytes());
        let value = value.ok_or_else(|| ApiError::invalid(&target, "unbalanced double quotes"))?;
        let text = percent_decode(&value).decode_utf8();
        let text = text.map_err(|_| ApiError::invalid(&target, "not UTF-8 after decoding"))?;
        if attributes.insert(name.to_owned(), Value::String(text.into_owned())).is_some() {
            return Err(ApiError::invalid(&target, "duplicate header"));
        }
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    if let Some(kind) = &kind {
        attributes.insert("datacontenttype".to_owned(), Value::String(kind.clone()));
    }
    if !body.is_empty() {
        let (name, data) = parse_data(kind.as_deref().unwrap_or("application/json"), body)?;
        attributes.insert(name.to_owned(), data);
    }
    validate(attributes, "")
}

/// A header's value without surrounding double quotes and escapes; none if the quotes do not enclose all of it.
fn unquote(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(quoted) = value.strip_prefix(b"\"") else { return Some(Cow::Borrowed(value)) };
    let mut plain = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    loop {
        match bytes.next()? {
            b'"' => return bytes.as_slice().is_empty().then_some(Cow::Owned(plain)),
            b'\\' => plain.push(*bytes.next()?),
            byte => plain.push(*byte),
        }
    }
}

/// The data as in the structured mode: JSON unchanged, text as a string, anything else in base64.
fn parse_data(kind: &str, body: &[u8]) -> Result<(&'static str, Value), ApiError> {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind.ends_with("+json") {
        return Ok(("data", abide_workflow::json::parse(api_request::utf8_text(body)?)?));
    }
    match std::str::from_utf8(body) {
        Ok(text) if kind.starts_with("text/") => Ok(("data", Value::String(text.to_owned()))),
        _ => Ok(("data_base64", Value::String(STANDARD.encode(body)))),
    }
}

fn parse_object(event: Value, pointer: &str) -> Result<InboundCloudEvent, ApiError> {
    match event {
        Value::Object(attributes) => validate(attributes, pointer),
        _ => Err(ApiError::invalid(pointer, "an event must be an object")),
    }
}

/// Checks the attributes of an event of any mode and extracts those used for routing. `pointer` is the place of the
/// event in the body, for error messages.
fn validate(mut attributes: Map<String, Value>, pointer: &str) -> Result<InboundCloudEvent, ApiError> {
    // An attribute that is null counts as absent.
    attributes.retain(|name, value| name == "data" || !value.is_null());
    let wrong = |name: &str, message: &str| Err(ApiError::invalid(format!("{pointer}/{name}"), message));
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(ApiError::invalid(
            pointer,
            format!("an event may have at most {ATTRIBUTES_MAX} attributes"),
        ));
    }
    for (name, value) in &attributes {
        match name.as_str() {
            "data" => {}
            "data_base64" => {
                let is_base64 = value.as_str().is_some_and(|text| STANDARD.decode(text).is_ok());
                if !is_base64 {
                    return wrong(name, "must be base64");
                }
            }
            _ if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) => {
                return wrong(name, "attribute names may only have a-z and 0-9");
            }
            "subject" | "sessionid" | "datacontenttype" | "dataschema" if !value.is_string() => {
                return wrong(name, "must be a string");
            }
            _ if !is_attribute_value(value) => {
                return wrong(name, "an attribute must be a string, a boolean or a 32-bit integer");
            }
            _ => {}
        }
    }
    if attributes.get("specversion").and_then(Value::as_str) != Some("1.0") {
        return wrong("specversion", "must be \"1.0\"");
    }
    if attributes.contains_key("data") && attributes.contains_key("data_base64") {
        return wrong("data_base64", "an event cannot have both data and data_base64");
    }
    let required = |name: &str| match attributes.get(name).and_then(Value::as_str) {
        Some(text) if (1..=ATTRIBUTE_CHARS_MAX).contains(&text.chars().count()) => Ok(text.to_owned()),
        _ => Err(ApiError::invalid(
            format!("{pointer}/{name}"),
            format!("must have 1 to {ATTRIBUTE_CHARS_MAX} characters"),
        )),
    };
    let source = required("source")?;
    let id = required("id")?;
    let event_type = required("type")?;
    if let Some(time) = attributes.get("time")
        && parse_time(time).is_none()
    {
        return wrong("time", "must be an RFC 3339 timestamp");
    }
    Ok(InboundCloudEvent { json: attributes, source, id, event_type })
}

/// True if the value has a type that attributes may have.
fn is_attribute_value(value: &Value) -> bool {
    match value {
        Value::String(_) | Value::Bool(_) => true,
        Value::Number(number) => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn parse_time(time: &Value) -> Option<Timestamp> {
    Timestamp::parse(time.as_str()?).ok()
}

impl InboundCloudEvent {
    /// The session of the event: its `sessionid`, else its `subject`, if it has one.
    pub(super) fn session(&self) -> Option<&str> {
        let text = |name: &str| self.json.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("sessionid").or_else(|| text("subject"))
    }

    /// The event's correlation id, if it has one.
    pub(super) fn correlation_id(&self) -> Option<&str> {
        self.json.get("correlationid").and_then(Value::as_str)
    }
}
