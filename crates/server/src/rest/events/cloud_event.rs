//! CloudEvents 1.0 over HTTP: one in a body, one in headers and a body, or many in an array; each becomes the JSON object of the first form.
//!
//! Knows the specification and nothing of routes or entities.

use std::borrow::Cow;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use crate::asked;
use crate::error::ApiError;

/// One event: its attributes and data as one object, and the attributes that decide its way.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CloudEvent {
    pub(super) whole: Map<String, Value>,
    pub(super) source: String,
    pub(super) id: String,
    pub(super) kind: String,
}

/// How a request carries its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// One JSON object.
    Structured,
    /// An array of them.
    Batch,
    /// Attributes in headers, data in the body.
    Binary,
}

/// Characters of an attribute that decides an event's way.
const ATTRIBUTE_CHARS_MAX: usize = 1_024;
/// Attributes of one event.
const ATTRIBUTES_MAX: usize = 64;
/// Events of one request.
const BATCH_MAX: usize = 1_000;
/// What a header that carries an attribute begins with.
const HEADER_PREFIX: &str = "ce-";
/// What a body that has whole events begins its kind with.
const WHOLE_EVENTS: &str = "application/cloudevents";

impl Mode {
    /// What the headers say.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/cloudevents+json" => Ok(Self::Structured),
            "application/cloudevents-batch+json" => Ok(Self::Batch),
            // Another form of a whole event is not the data of one.
            _ if headers.contains_key("ce-specversion") && !kind.starts_with(WHOLE_EVENTS) => {
                Ok(Self::Binary)
            }
            "application/json" => Ok(Self::Structured),
            _ => Err(ApiError::refused(
                axum::http::StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "events come as application/cloudevents+json, as application/cloudevents-batch+json, or with ce- headers",
            )),
        }
    }
}

/// The events of a body that is JSON.
pub(super) fn of_json(mode: Mode, body: Value) -> Result<Vec<CloudEvent>, ApiError> {
    match (mode, body) {
        (Mode::Batch, Value::Array(events)) if events.len() <= BATCH_MAX => {
            let read = |(place, event)| of_object(event, &format!("/{place}"));
            events.into_iter().enumerate().map(read).collect()
        }
        (Mode::Batch, Value::Array(events)) => {
            let message = format!("{} events in one request; the limit is {BATCH_MAX}", events.len());
            Err(ApiError::invalid("", message))
        }
        (Mode::Batch, _) => Err(ApiError::invalid("", "a batch of events must be an array")),
        (_, event) => Ok(vec![of_object(event, "")?]),
    }
}

/// The event of headers and a body.
pub(super) fn of_headers(headers: &HeaderMap, body: &[u8]) -> Result<CloudEvent, ApiError> {
    let mut whole = Map::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(HEADER_PREFIX) else { continue };
        let target = format!("{HEADER_PREFIX}{name}");
        if matches!(name, "data" | "data_base64" | "datacontenttype") {
            return Err(ApiError::invalid(
                &target,
                "data is the body, and its type is the header content-type",
            ));
        }
        let value = unquoted(value.as_bytes());
        let value = value.ok_or_else(|| ApiError::invalid(&target, "its double quotes do not match"))?;
        let text = percent_decode(&value).decode_utf8();
        let text = text.map_err(|_| ApiError::invalid(&target, "it is not UTF-8 once decoded"))?;
        if whole.insert(name.to_owned(), Value::String(text.into_owned())).is_some() {
            return Err(ApiError::invalid(&target, "the header is there twice"));
        }
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    if let Some(kind) = &kind {
        whole.insert("datacontenttype".to_owned(), Value::String(kind.clone()));
    }
    if !body.is_empty() {
        let (name, data) = data_of(kind.as_deref().unwrap_or("application/json"), body)?;
        whole.insert(name.to_owned(), data);
    }
    check(whole, "")
}

/// A header's value without the double quotes around it, and what is escaped in them; none if they are not around all of it.
fn unquoted(value: &[u8]) -> Option<Cow<'_, [u8]>> {
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

/// Data as the JSON form has it: JSON as it is, text as text, anything else in base64.
fn data_of(kind: &str, body: &[u8]) -> Result<(&'static str, Value), ApiError> {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || kind.ends_with("+json") {
        return Ok(("data", abide_workflow::json::parse(asked::text(body)?)?));
    }
    match std::str::from_utf8(body) {
        Ok(text) if kind.starts_with("text/") => Ok(("data", Value::String(text.to_owned()))),
        _ => Ok(("data_base64", Value::String(STANDARD.encode(body)))),
    }
}

fn of_object(event: Value, place: &str) -> Result<CloudEvent, ApiError> {
    match event {
        Value::Object(whole) => check(whole, place),
        _ => Err(ApiError::invalid(place, "an event must be an object")),
    }
}

fn check(mut whole: Map<String, Value>, place: &str) -> Result<CloudEvent, ApiError> {
    // An attribute that is null is one that is not there.
    whole.retain(|name, value| name == "data" || !value.is_null());
    let wrong = |name: &str, message: &str| Err(ApiError::invalid(format!("{place}/{name}"), message));
    if whole.len() > ATTRIBUTES_MAX {
        return Err(ApiError::invalid(place, format!("an event has at most {ATTRIBUTES_MAX} attributes")));
    }
    for (name, value) in &whole {
        match name.as_str() {
            "data" => {}
            "data_base64" => {
                let fine = value.as_str().is_some_and(|text| STANDARD.decode(text).is_ok());
                if !fine {
                    return wrong(name, "it must be base64");
                }
            }
            _ if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) => {
                return wrong(name, "names of attributes have only a-z and 0-9");
            }
            "subject" | "sessionid" | "datacontenttype" | "dataschema" if !value.is_string() => {
                return wrong(name, "it must be a string");
            }
            _ if !is_plain(value) => {
                return wrong(name, "an attribute is a string, a boolean or a whole number of 32 bits");
            }
            _ => {}
        }
    }
    if whole.get("specversion").and_then(Value::as_str) != Some("1.0") {
        return wrong("specversion", "it must be \"1.0\"");
    }
    if whole.contains_key("data") && whole.contains_key("data_base64") {
        return wrong("data_base64", "an event has data in one form");
    }
    let required = |name: &str| match whole.get(name).and_then(Value::as_str) {
        Some(text) if (1..=ATTRIBUTE_CHARS_MAX).contains(&text.chars().count()) => Ok(text.to_owned()),
        _ => Err(ApiError::invalid(
            format!("{place}/{name}"),
            format!("it must have 1 to {ATTRIBUTE_CHARS_MAX} characters"),
        )),
    };
    let (source, id, kind) = (required("source")?, required("id")?, required("type")?);
    if let Some(time) = whole.get("time")
        && time_ms(time).is_none()
    {
        return wrong("time", "it must be a time as RFC 3339 has it");
    }
    Ok(CloudEvent { whole, source, id, kind })
}

/// Whether it is of one of the types that attributes have.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(_) | Value::Bool(_) => true,
        Value::Number(number) => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn time_ms(time: &Value) -> Option<i64> {
    abide_workflow::Timestamp::parse(time.as_str()?).ok().map(|time| time.0)
}

impl CloudEvent {
    /// When it happened, if it says so.
    pub(super) fn at(&self) -> Option<i64> {
        self.whole.get("time").and_then(time_ms)
    }

    /// What events of one order have in common, if the event says so.
    pub(super) fn session(&self) -> Option<&str> {
        let text = |name: &str| self.whole.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("sessionid").or_else(|| text("subject"))
    }

    /// The trace it belongs to, if it says so.
    pub(super) fn correlation(&self) -> Option<&str> {
        self.whole.get("correlationid").and_then(Value::as_str)
    }
}
