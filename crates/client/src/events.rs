//! `/api/events`: CloudEvents in, and what became of each.

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::retry::Repeat;

/// An event as CloudEvents 1.0 writes it in JSON. Extensions, such as `sessionid`, are members like the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CloudEvent {
    /// `1.0`.
    pub specversion: String,
    /// Unique within the source: by both a repeat is recognised.
    pub id: String,
    /// Where it happened.
    pub source: String,
    /// What kind of thing happened; the route goes by it.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it happened to; the session, if there is no extension `sessionid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The rest: `time`, `data`, `datacontenttype`, extensions.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl CloudEvent {
    /// An event without a subject and without data.
    pub fn new(source: impl Into<String>, id: impl Into<String>, kind: impl Into<String>) -> Self {
        let (id, source, kind) = (id.into(), source.into(), kind.into());
        Self { specversion: "1.0".to_owned(), id, source, kind, subject: None, more: Map::new() }
    }

    /// The same, about this.
    #[must_use]
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// The same, with this data.
    #[must_use]
    pub fn data(self, data: Value) -> Self {
        self.with("data", data)
    }

    /// The same, with this attribute or extension.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

/// What became of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Received {
    /// How many events were taken.
    pub accepted: u64,
    /// One receipt per event, in order.
    pub items: Vec<Receipt>,
}

/// What became of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The event's source.
    pub source: String,
    /// The event's id.
    pub id: String,
    /// What became of it.
    pub status: ReceiptStatus,
    /// The type of the entity that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_type: Option<String>,
    /// The key of the entity that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_key: Option<String>,
    /// Its place among the entity's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The run it started or reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Why it could not be routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where it was put, if it could not be routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dlq: Option<DeadLetterKey>,
    /// When it was answered first, if this is a repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answered_at_utc: Option<Timestamp>,
    /// Until when a repeat is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ends_at_utc: Option<Timestamp>,
}

/// A row of the dead letters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterKey {
    /// Whose.
    pub engine: String,
    /// Which.
    pub row_key: String,
}

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReceiptStatus {
    /// It is in its entity, and its run has it.
    Recorded,
    /// It was there already.
    Duplicate,
    /// Nothing is routed there.
    DeadLettered,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Client {
    /// Sends events, at most 1,000 at once. Repeated safely: they are recognised by source and id.
    pub fn send(&self, events: &[CloudEvent]) -> Call<Received> {
        let call = Call::new(self, Method::POST, Path::of("/api/events"), Repeat::Safe);
        call.json_as("application/cloudevents-batch+json", &events)
    }
}
