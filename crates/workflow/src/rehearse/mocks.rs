//! What the mocked world answers, read from the author's files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::json::{self, JsonError};
use crate::time::{Duration, TimeError};

/// Answers by name. Each call takes the next; the last one is repeated.
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
    /// Not of the expected shape.
    #[error("it does not have the expected shape: {0}")]
    Shape(#[from] serde_json::Error),
    /// A duration that is none.
    #[error("{0}")]
    Time(#[from] TimeError),
    /// An answer that says nothing, or two things.
    #[error("{place}: an answer has exactly one of result, error, echo and never")]
    Answer {
        /// Where.
        place: String,
    },
    /// No answers at all.
    #[error("{place}: the list of answers is empty")]
    Empty {
        /// Where.
        place: String,
    },
    /// A stimulus that says nothing, or two things.
    #[error("entry {position}: it has exactly one of event and do")]
    Stimulus {
        /// Which entry.
        position: usize,
    },
}

impl Mocks {
    /// Reads `{"activities": {name: answer | [answer…]}, "workflows": {…}}`.
    pub fn parse(text: &str) -> Result<Self, MockError> {
        let file: MockFile = serde_json::from_value(json::parse(text)?)?;
        Ok(Self {
            activities: answers(file.activities)?,
            workflows: answers(file.workflows)?,
            sabotage: None,
        })
    }
}

/// Reads `[{"at": "PT1H", "event": name, "data": …} | {"at": …, "do": "suspend"}]`.
pub fn parse_stimuli(text: &str) -> Result<Vec<(Duration, Stimulus)>, MockError> {
    let entries: Vec<StimulusEntry> = serde_json::from_value(json::parse(text)?)?;
    let read = |(position, entry): (usize, StimulusEntry)| {
        let at = Duration::parse(&entry.at)?;
        match (entry.event, entry.order) {
            (Some(name), None) => Ok((at, Stimulus::Event { name, data: entry.data })),
            (None, Some(order)) => Ok((at, order.into())),
            _ => Err(MockError::Stimulus { position }),
        }
    };
    entries.into_iter().enumerate().map(read).collect()
}

fn answers(mocks: BTreeMap<String, OneOrMany>) -> Result<BTreeMap<String, Vec<Answer>>, MockError> {
    let read = |(name, mocks): (String, OneOrMany)| {
        let mocks = match mocks {
            OneOrMany::One(mock) => vec![mock],
            OneOrMany::Many(mocks) => mocks,
        };
        if mocks.is_empty() {
            return Err(MockError::Empty { place: name });
        }
        let answers: Result<Vec<Answer>, MockError> =
            mocks.into_iter().enumerate().map(|(n, mock)| mock.answer(&format!("{name}[{n}]"))).collect();
        Ok((name, answers?))
    };
    mocks.into_iter().map(read).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MockFile {
    #[serde(default)]
    activities: BTreeMap<String, OneOrMany>,
    #[serde(default)]
    workflows: BTreeMap<String, OneOrMany>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<Mock>),
    One(Mock),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mock {
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<MockFailure>,
    #[serde(default)]
    echo: bool,
    #[serde(default)]
    never: bool,
    after: Option<String>,
}

/// `"result": null` is a result.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Mock {
    fn answer(self, place: &str) -> Result<Answer, MockError> {
        let after = self.after.as_deref().map(Duration::parse).transpose()?.unwrap_or_default();
        match (self.result, self.error, self.echo, self.never) {
            (Some(result), None, false, false) => Ok(Answer::Result(after, result)),
            (None, Some(error), false, false) => Ok(Answer::Error(after, error.into())),
            (None, None, true, false) => Ok(Answer::Echo(after)),
            (None, None, false, true) => Ok(Answer::Never),
            _ => Err(MockError::Answer { place: place.to_owned() }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MockFailure {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    retryable: bool,
}

impl From<MockFailure> for Failure {
    fn from(failure: MockFailure) -> Self {
        Self { code: failure.code, message: failure.message, state: None, retryable: failure.retryable }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StimulusEntry {
    at: String,
    event: Option<String>,
    #[serde(default)]
    data: Value,
    #[serde(rename = "do")]
    order: Option<Order>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Order {
    Suspend,
    Resume,
    Terminate,
    Rewind,
}

impl From<Order> for Stimulus {
    fn from(order: Order) -> Self {
        match order {
            Order::Suspend => Self::Suspend,
            Order::Resume => Self::Resume,
            Order::Terminate => Self::Terminate,
            Order::Rewind => Self::Rewind,
        }
    }
}
