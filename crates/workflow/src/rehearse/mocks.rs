//! Mocked outcomes and outside events of a rehearsal, read from the author's files. Every error names its place in the
//! file. This file does not run anything.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::finding::pointer_token;
use crate::json::{self, JsonError};
use crate::time::{Duration, TimeError};

/// Outcomes by name. Each attempt uses the next one; the last one is repeated.
#[derive(Clone, Debug, Default)]
pub struct Mocks {
    pub activities: BTreeMap<String, Vec<MockOutcome>>,
    /// Outcomes of child workflows.
    pub workflows: BTreeMap<String, Vec<MockOutcome>>,
    /// Fault injection: every attempt of the n-th call (from 0) fails permanently, regardless of its mock.
    pub fault_at_call: Option<usize>,
}

/// The outcome of one attempt or child run.
#[derive(Clone, PartialEq, Debug)]
pub enum MockOutcome {
    /// A result, after this time.
    Result(Duration, Value),
    /// The input as the result, after this time.
    Echo(Duration),
    /// An error, after this time.
    Error(Duration, Failure),
    /// There is never an outcome.
    Never,
}

/// An event or a control operation from outside.
#[derive(Clone, PartialEq, Debug)]
pub enum Stimulus {
    /// An external event.
    Event {
        name: String,
        data: Value,
    },
    Suspend,
    Resume,
    Terminate,
    Rewind,
}

/// Why a mock or event file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A value that is not valid at its place.
    #[error("{}: {message}", if pointer.is_empty() { "the file" } else { pointer.as_str() })]
    Invalid {
        /// JSON pointer into the file.
        pointer: String,
        message: String,
    },
    /// An invalid duration.
    #[error("{pointer}: {source}")]
    Time {
        /// JSON pointer into the file.
        pointer: String,
        source: TimeError,
    },
}

impl Mocks {
    /// Parses `{"activities": {name: outcome | [outcome…]}, "workflows": {…}}`.
    pub fn parse(text: &str) -> Result<Self, MockError> {
        let value = json::parse(text)?;
        let file = object(&value, "", &["activities", "workflows"])?;
        Ok(Self {
            activities: parse_outcomes(file, "activities")?,
            workflows: parse_outcomes(file, "workflows")?,
            fault_at_call: None,
        })
    }
}

/// Parses `[{"at": "PT1H", "event": name, "data": …} | {"at": …, "do": "suspend"}]`.
pub fn parse_stimuli(text: &str) -> Result<Vec<(Duration, Stimulus)>, MockError> {
    let value = json::parse(text)?;
    let entries = value.as_array().ok_or_else(|| invalid("", "expected an array of events"))?;
    let read = |(position, entry): (usize, &Value)| {
        let at = format!("/{position}");
        let fields = object(entry, &at, &["at", "event", "data", "do"])?;
        let when = duration(fields, "at", &at)?
            .ok_or_else(|| invalid(&at, "\"at\" is missing: set the time after the start"))?;
        match (text_field(fields, "event", &at)?, text_field(fields, "do", &at)?) {
            (Some(name), None) => {
                let data = fields.get("data").cloned().unwrap_or_default();
                Ok((when, Stimulus::Event { name: name.to_owned(), data }))
            }
            (None, Some(control)) => Ok((when, parse_control(control, &at)?)),
            _ => Err(invalid(&at, "expected exactly one of \"event\" and \"do\"")),
        }
    };
    entries.iter().enumerate().map(read).collect()
}

fn parse_control(control: &str, at: &str) -> Result<Stimulus, MockError> {
    match control {
        "suspend" => Ok(Stimulus::Suspend),
        "resume" => Ok(Stimulus::Resume),
        "terminate" => Ok(Stimulus::Terminate),
        "rewind" => Ok(Stimulus::Rewind),
        _ => Err(invalid(&format!("{at}/do"), "expected suspend, resume, terminate or rewind")),
    }
}

fn parse_outcomes(
    file: &Map<String, Value>,
    kind: &str,
) -> Result<BTreeMap<String, Vec<MockOutcome>>, MockError> {
    let Some(named) = file.get(kind) else { return Ok(BTreeMap::new()) };
    let at = format!("/{kind}");
    let named = named.as_object().ok_or_else(|| invalid(&at, "expected an object of outcomes by name"))?;
    let read = |(name, value): (&String, &Value)| {
        let at = format!("{at}/{}", pointer_token(name));
        let outcomes = match value {
            Value::Array(list) if list.is_empty() => Err(invalid(&at, "the list of outcomes is empty")),
            Value::Array(list) => {
                list.iter().enumerate().map(|(n, value)| parse_outcome(value, &format!("{at}/{n}"))).collect()
            }
            one => parse_outcome(one, &at).map(|outcome| vec![outcome]),
        };
        Ok((name.clone(), outcomes?))
    };
    named.iter().map(read).collect()
}

fn parse_outcome(value: &Value, at: &str) -> Result<MockOutcome, MockError> {
    let fields = object(value, at, &["result", "error", "echo", "never", "after"])?;
    let after = duration(fields, "after", at)?.unwrap_or_default();
    let flag = |name: &str| match fields.get(name) {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(_) => Err(invalid(&format!("{at}/{name}"), "expected true or false")),
    };
    match (fields.get("result"), fields.get("error"), flag("echo")?, flag("never")?) {
        (Some(result), None, false, false) => Ok(MockOutcome::Result(after, result.clone())),
        (None, Some(error), false, false) => {
            Ok(MockOutcome::Error(after, parse_failure(error, &format!("{at}/error"))?))
        }
        (None, None, true, false) => Ok(MockOutcome::Echo(after)),
        (None, None, false, true) => Ok(MockOutcome::Never),
        _ => Err(invalid(at, "expected exactly one of \"result\", \"error\", \"echo\" and \"never\"")),
    }
}

fn parse_failure(value: &Value, at: &str) -> Result<Failure, MockError> {
    let fields = object(value, at, &["code", "message", "retryable"])?;
    let code = text_field(fields, "code", at)?.ok_or_else(|| invalid(at, "\"code\" is missing"))?;
    let message = text_field(fields, "message", at)?.unwrap_or_default();
    let retryable = match fields.get("retryable") {
        None => false,
        Some(Value::Bool(retryable)) => *retryable,
        Some(_) => return Err(invalid(&format!("{at}/retryable"), "expected true or false")),
    };
    Ok(Failure { code: code.to_owned(), message: message.to_owned(), state: None, retryable })
}

fn object<'a>(value: &'a Value, at: &str, known: &[&str]) -> Result<&'a Map<String, Value>, MockError> {
    let expected = || format!("expected an object with {}", known.join(", "));
    let fields = value.as_object().ok_or_else(|| invalid(at, expected()))?;
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            Err(invalid(at, format!("unknown field {name:?}; known fields are {}", known.join(", "))))
        }
        None => Ok(fields),
    }
}

fn text_field<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    at: &str,
) -> Result<Option<&'a str>, MockError> {
    let not_text = || invalid(&format!("{at}/{name}"), "expected a string");
    fields.get(name).map(|value| value.as_str().ok_or_else(not_text)).transpose()
}

fn duration(fields: &Map<String, Value>, name: &str, at: &str) -> Result<Option<Duration>, MockError> {
    let unreadable = |source| MockError::Time { pointer: format!("{at}/{name}"), source };
    text_field(fields, name, at)?.map(|text| Duration::parse(text).map_err(unreadable)).transpose()
}

fn invalid(pointer: &str, message: impl Into<String>) -> MockError {
    MockError::Invalid { pointer: pointer.to_owned(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_place_in_the_file() {
        for (text, expected) in [
            ("[]", "the file: expected an object with activities, workflows"),
            (r#"{"activities": {"A": 1}}"#, "/activities/A: expected an object with result, error"),
            (r#"{"activities": {"A": {"results": 1}}}"#, "/activities/A: unknown field \"results\""),
            (
                r#"{"activities": {"A": [{"error": "Boom"}]}}"#,
                "/activities/A/0/error: expected an object with code",
            ),
            (
                r#"{"activities": {"A": {"error": {"message": "x"}}}}"#,
                "/activities/A/error: \"code\" is missing",
            ),
            (
                r#"{"activities": {"A": {"result": 1, "after": "5s"}}}"#,
                "/activities/A/after: \"5s\" is not an ISO-8601",
            ),
            (
                r#"{"activities": {"A": {"result": 1, "after": -5}}}"#,
                "/activities/A/after: expected a string",
            ),
            (
                r#"{"activities": {"A": {"result": 1, "never": true}}}"#,
                "/activities/A: expected exactly one of",
            ),
            (r#"{"activities": {"A": []}}"#, "/activities/A: the list of outcomes is empty"),
            (r#"{"workflows": []}"#, "/workflows: expected an object of outcomes by name"),
        ] {
            let error = Mocks::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("{}", "the file: expected an array of events"),
            (r#"[["PT1H", "Go"]]"#, "/0: expected an object with at, event"),
            (r#"[{"event": "Go"}]"#, "/0: \"at\" is missing"),
            (r#"[{"at": "PT1H"}]"#, "/0: expected exactly one of \"event\" and \"do\""),
            (r#"[{"at": "PT1H", "do": "stop"}]"#, "/0/do: expected suspend, resume"),
            (r#"[{"at": "1h", "event": "Go"}]"#, "/0/at: \"1h\" is not"),
        ] {
            let error = parse_stimuli(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_null_result_is_a_result() {
        let mocks = Mocks::parse(r#"{"activities": {"A": {"result": null}}}"#).unwrap();
        assert_eq!(mocks.activities["A"], [MockOutcome::Result(Duration::ZERO, Value::Null)]);
    }
}
