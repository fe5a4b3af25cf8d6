//! `/api/events`: sends CloudEvents and reads a receipt for each of them.

use hyper::Method;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::ApiPath;
use crate::client::Client;
use crate::request::ClientRequest;
use crate::retry::RetrySafety;

/// An event as CloudEvents 1.0 writes it in JSON. Extensions, such as `sessionid`, are members like the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CloudEvent {
    /// `1.0`.
    pub specversion: String,
    /// Unique within the source. The server recognises a repeated event by source and id.
    pub id: String,
    /// The origin of the event.
    pub source: String,
    /// The event type, which selects the event route.
    #[serde(rename = "type")]
    pub kind: String,
    /// The subject of the event. It names the session if there is no extension `sessionid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// All other attributes: `time`, `data`, `datacontenttype`, extensions.
    #[serde(flatten)]
    pub attributes: Map<String, Value>,
}

impl CloudEvent {
    /// An event without a subject and without data.
    pub fn new(source: impl Into<String>, id: impl Into<String>, kind: impl Into<String>) -> Self {
        let id = id.into();
        let source = source.into();
        let kind = kind.into();
        Self { specversion: "1.0".to_owned(), id, source, kind, subject: None, attributes: Map::new() }
    }

    #[must_use]
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    #[must_use]
    pub fn data(self, data: Value) -> Self {
        self.attribute("data", data)
    }

    /// Sets an attribute or extension.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.attributes.insert(name.to_owned(), value.into());
        self
    }
}

/// The receipts of a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventReceipts {
    /// The number of accepted events.
    pub accepted: u64,
    /// One receipt per event, in order.
    pub items: Vec<EventReceipt>,
}

/// The server's receipt for one event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventReceipt {
    pub source: String,
    pub id: String,
    pub status: EventReceiptStatus,
    /// The type of the entity that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_type: Option<String>,
    /// The key of the entity that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entity_key: Option<String>,
    /// Its position among the entity's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The run it started or reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Why it could not be routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its dead letter, if it could not be routed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dlq: Option<DeadLetterKey>,
    /// When the first copy was acknowledged, if this event is a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answered_at_utc: Option<Timestamp>,
    /// Until when the server recognises a duplicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ends_at_utc: Option<Timestamp>,
}

/// The key of a dead letter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterKey {
    pub engine: String,
    pub row_key: String,
}

/// The outcome of sending an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventReceiptStatus {
    /// The entity has recorded it and delivers it as its route says.
    Recorded,
    /// The entity had recorded it before.
    Duplicate,
    /// It could not be routed.
    DeadLettered,
    /// A status that this client does not know.
    #[serde(other)]
    Unknown,
}

impl Client {
    /// Sends up to 1,000 events. A retry is safe: the server recognises events by source and id.
    pub fn send_events(&self, events: &[CloudEvent]) -> ClientRequest<EventReceipts> {
        let request = ClientRequest::new(self, Method::POST, ApiPath::new("/api/events"), RetrySafety::Safe);
        request.json_as("application/cloudevents-batch+json", &events)
    }
}
