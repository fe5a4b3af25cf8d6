//! `/api/dlq`: lists and shows dead letters.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::ApiPath;
use crate::client::Client;
use crate::pages::Pages;
use crate::request::ClientRequest;

const DLQ: &str = "/api/dlq";

/// A message that could not be processed. Lists leave out the message itself and the resolution.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// `ingress` for an event, the workflow of the call for an activity call.
    pub engine: String,
    /// Its key within the engine.
    pub row_key: String,
    /// The instance it was for.
    pub instance_id: String,
    /// `ingress` for an event, the activity for an activity call.
    pub original_queue: String,
    /// The last error.
    pub error_message: String,
    /// The number of attempts.
    pub dequeue_count: u32,
    /// `Pending`, `Resolved` or `Expired`.
    pub status: String,
    pub first_failure_at_utc: Timestamp,
    pub last_failure_at_utc: Timestamp,
    pub correlation_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_message: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_notes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at_utc: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
}

/// A filter of dead letters. The empty filter lists all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadLetterFilter {
    pub engine: Option<String>,
    pub status: Option<String>,
    pub instance_id: Option<String>,
    /// The last failure was at this time or later.
    pub from_date: Option<Timestamp>,
    /// The last failure was before this time.
    pub to_date: Option<Timestamp>,
}

impl Client {
    /// Lists dead letters, newest first.
    pub fn dead_letters(&self, filter: &DeadLetterFilter) -> Pages<DeadLetter> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let path = ApiPath::new(DLQ)
            .query("engine", filter.engine.as_deref())
            .query("status", filter.status.as_deref())
            .query("instanceId", filter.instance_id.as_deref())
            .query("fromDate", time(filter.from_date).as_deref())
            .query("toDate", time(filter.to_date).as_deref());
        Pages::new(self, path)
    }

    /// Shows a dead letter with its message.
    pub fn dead_letter(&self, engine: &str, row_key: &str) -> ClientRequest<DeadLetter> {
        ClientRequest::get(self, ApiPath::new(DLQ).segment(engine).segment(row_key))
    }
}
