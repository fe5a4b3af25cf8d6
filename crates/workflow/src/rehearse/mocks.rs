//! What the mocked world answers, read from the author's files. Every mistake is told with its place.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::finding::pointer_token;
use crate::json::{self, JsonError};
use crate::time::{Duration, TimeError};

/// Answers by name. Each delivery takes the next; the last one is repeated.
#[derive(Clone, Debug, Default)]
pub struct Mocks {
    /// Of activities.
    pub activities: BTreeMap<String, Vec<Answer>>,
    /// Of child workflows.
    pub workflows: BTreeMap<String, Vec<Answer>>,
    /// Every delivery of the n-th dispatch (from 0) fails for good, whatever its mock says.
    pub sabotage: Option<usize>,
}

/// One answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// A result after a while.
    Result(Duration, Value),
    /// The input given back after a while.
    Echo(Duration),
    /// An error after a while.
    Error(Duration, Failure),
    /// Nothing, ever.
    Never,
}

/// Something from outside.
#[derive(Clone, PartialEq, Debug)]
pub enum Stimulus {
    /// An external event.
    Event {
        /// Its name.
        name: String,
        /// Its payload.
        data: Value,
    },
    /// An order.
    Suspend,
    /// An order.
    Resume,
    /// An order.
    Terminate,
    /// An order.
    Rewind,
}

/// Why a mock or event file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// Not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// Something other than what belongs there.
    #[error("{}: {message}", if pointer.is_empty() { "the file" } else { pointer.as_str() })]
    Wrong {
        /// Where, as a JSON pointer.
        pointer: String,
        /// What is wrong and what belongs there.
        message: String,
    },
    /// A duration that is none.
    #[error("{pointer}: {source}")]
    Time {
        /// Where, as a JSON pointer.
        pointer: String,
        /// What is wrong.
        source: TimeError,
    },
}

impl Mocks {
    /// Reads `{"activities": {name: answer | [answer…]}, "workflows": {…}}`.
    pub fn parse(text: &str) -> Result<Self, MockError> {
        let value = json::parse(text)?;
        let file = object(&value, "", &["activities", "workflows"])?;
        Ok(Self {
            activities: answers(file, "activities")?,
            workflows: answers(file, "workflows")?,
            sabotage: None,
        })
    }
}

/// Reads `[{"at": "PT1H", "event": name, "data": …} | {"at": …, "do": "suspend"}]`.
pub fn parse_stimuli(text: &str) -> Result<Vec<(Duration, Stimulus)>, MockError> {
    let value = json::parse(text)?;
    let entries = value.as_array().ok_or_else(|| wrong("", "an array of events is expected"))?;
    let read = |(position, entry): (usize, &Value)| {
        let at = format!("/{position}");
        let fields = object(entry, &at, &["at", "event", "data", "do"])?;
        let when = duration(fields, "at", &at)?
            .ok_or_else(|| wrong(&at, "\"at\" is missing: how long after the start"))?;
        match (text_field(fields, "event", &at)?, text_field(fields, "do", &at)?) {
            (Some(name), None) => {
                let data = fields.get("data").cloned().unwrap_or_default();
                Ok((when, Stimulus::Event { name: name.to_owned(), data }))
            }
            (None, Some(order)) => Ok((when, order_named(order, &at)?)),
            _ => Err(wrong(&at, "exactly one of \"event\" and \"do\" is expected")),
        }
    };
    entries.iter().enumerate().map(read).collect()
}

fn order_named(order: &str, at: &str) -> Result<Stimulus, MockError> {
    match order {
        "suspend" => Ok(Stimulus::Suspend),
        "resume" => Ok(Stimulus::Resume),
        "terminate" => Ok(Stimulus::Terminate),
        "rewind" => Ok(Stimulus::Rewind),
        _ => Err(wrong(&format!("{at}/do"), "suspend, resume, terminate or rewind is expected")),
    }
}

fn answers(file: &Map<String, Value>, kind: &str) -> Result<BTreeMap<String, Vec<Answer>>, MockError> {
    let Some(named) = file.get(kind) else { return Ok(BTreeMap::new()) };
    let at = format!("/{kind}");
    let named = named.as_object().ok_or_else(|| wrong(&at, "an object of answers by name is expected"))?;
    let read = |(name, value): (&String, &Value)| {
        let at = format!("{at}/{}", pointer_token(name));
        let answers = match value {
            Value::Array(list) if list.is_empty() => Err(wrong(&at, "the list of answers is empty")),
            Value::Array(list) => {
                list.iter().enumerate().map(|(n, value)| answer(value, &format!("{at}/{n}"))).collect()
            }
            one => answer(one, &at).map(|answer| vec![answer]),
        };
        Ok((name.clone(), answers?))
    };
    named.iter().map(read).collect()
}

fn answer(value: &Value, at: &str) -> Result<Answer, MockError> {
    let fields = object(value, at, &["result", "error", "echo", "never", "after"])?;
    let after = duration(fields, "after", at)?.unwrap_or_default();
    let flag = |name: &str| match fields.get(name) {
        None | Some(Value::Bool(false)) => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(_) => Err(wrong(&format!("{at}/{name}"), "true or false is expected")),
    };
    match (fields.get("result"), fields.get("error"), flag("echo")?, flag("never")?) {
        (Some(result), None, false, false) => Ok(Answer::Result(after, result.clone())),
        (None, Some(error), false, false) => {
            Ok(Answer::Error(after, failure(error, &format!("{at}/error"))?))
        }
        (None, None, true, false) => Ok(Answer::Echo(after)),
        (None, None, false, true) => Ok(Answer::Never),
        _ => Err(wrong(at, "exactly one of \"result\", \"error\", \"echo\" and \"never\" is expected")),
    }
}

fn failure(value: &Value, at: &str) -> Result<Failure, MockError> {
    let fields = object(value, at, &["code", "message", "retryable"])?;
    let code = text_field(fields, "code", at)?.ok_or_else(|| wrong(at, "\"code\" is missing"))?;
    let message = text_field(fields, "message", at)?.unwrap_or_default();
    let retryable = match fields.get("retryable") {
        None => false,
        Some(Value::Bool(retryable)) => *retryable,
        Some(_) => return Err(wrong(&format!("{at}/retryable"), "true or false is expected")),
    };
    Ok(Failure { code: code.to_owned(), message: message.to_owned(), state: None, retryable })
}

fn object<'a>(value: &'a Value, at: &str, known: &[&str]) -> Result<&'a Map<String, Value>, MockError> {
    let expected = || format!("an object with {} is expected", known.join(", "));
    let fields = value.as_object().ok_or_else(|| wrong(at, expected()))?;
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(wrong(at, format!("{name:?} is not known here; known are {}", known.join(", ")))),
        None => Ok(fields),
    }
}

fn text_field<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
    at: &str,
) -> Result<Option<&'a str>, MockError> {
    let not_text = || wrong(&format!("{at}/{name}"), "a string is expected");
    fields.get(name).map(|value| value.as_str().ok_or_else(not_text)).transpose()
}

fn duration(fields: &Map<String, Value>, name: &str, at: &str) -> Result<Option<Duration>, MockError> {
    let unreadable = |source| MockError::Time { pointer: format!("{at}/{name}"), source };
    text_field(fields, name, at)?.map(|text| Duration::parse(text).map_err(unreadable)).transpose()
}

fn wrong(pointer: &str, message: impl Into<String>) -> MockError {
    MockError::Wrong { pointer: pointer.to_owned(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, said) in [
            ("[]", "the file: an object with activities, workflows is expected"),
            (r#"{"activities": {"A": 1}}"#, "/activities/A: an object with result, error"),
            (r#"{"activities": {"A": {"results": 1}}}"#, "/activities/A: \"results\" is not known here"),
            (r#"{"activities": {"A": [{"error": "Boom"}]}}"#, "/activities/A/0/error: an object with code"),
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
                "/activities/A/after: a string is expected",
            ),
            (r#"{"activities": {"A": {"result": 1, "never": true}}}"#, "/activities/A: exactly one of"),
            (r#"{"activities": {"A": []}}"#, "/activities/A: the list of answers is empty"),
            (r#"{"workflows": []}"#, "/workflows: an object of answers by name"),
        ] {
            let error = Mocks::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        for (text, said) in [
            ("{}", "the file: an array of events"),
            (r#"[["PT1H", "Go"]]"#, "/0: an object with at, event"),
            (r#"[{"event": "Go"}]"#, "/0: \"at\" is missing"),
            (r#"[{"at": "PT1H"}]"#, "/0: exactly one of \"event\" and \"do\""),
            (r#"[{"at": "PT1H", "do": "stop"}]"#, "/0/do: suspend, resume"),
            (r#"[{"at": "1h", "event": "Go"}]"#, "/0/at: \"1h\" is not"),
        ] {
            let error = parse_stimuli(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_null_result_is_a_result() {
        let mocks = Mocks::parse(r#"{"activities": {"A": {"result": null}}}"#).unwrap();
        assert_eq!(mocks.activities["A"], [Answer::Result(Duration::ZERO, Value::Null)]);
    }
}
