//! `/api/dlq`: what could not be delivered, until somebody resolves it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::pages::Pages;

const DLQ: &str = "/api/dlq";

/// A message that was given up. Lists leave out the message itself and the resolution.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Whose it is.
    pub engine: String,
    /// Which, within the engine.
    pub row_key: String,
    /// The instance it was for.
    pub instance_id: String,
    /// Where it came from.
    pub original_queue: String,
    /// Why it failed last.
    pub error_message: String,
    /// How often it was tried.
    pub dequeue_count: u32,
    /// `Pending`, `Resolved` or `Expired`.
    pub status: String,
    /// When it failed first.
    pub first_failure_at_utc: Timestamp,
    /// When it failed last.
    pub last_failure_at_utc: Timestamp,
    /// What to look for in traces.
    pub correlation_id: String,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_message: Option<Value>,
    /// What was noted when it was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_notes: Option<String>,
    /// When it was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at_utc: Option<Timestamp>,
    /// Who resolved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
}

/// Which dead letters to list. Nothing means all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeadLetterFilter {
    /// Of this engine.
    pub engine: Option<String>,
    /// Of this status.
    pub status: Option<String>,
    /// For this instance.
    pub instance_id: Option<String>,
    /// Failed last then or later.
    pub from_date: Option<Timestamp>,
    /// Failed last before then.
    pub to_date: Option<Timestamp>,
}

impl Client {
    /// Lists dead letters, newest first.
    pub fn dead_letters(&self, filter: &DeadLetterFilter) -> Pages<DeadLetter> {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let path = Path::of(DLQ)
            .query("engine", filter.engine.as_deref())
            .query("status", filter.status.as_deref())
            .query("instanceId", filter.instance_id.as_deref())
            .query("fromDate", time(filter.from_date).as_deref())
            .query("toDate", time(filter.to_date).as_deref());
        Pages::new(self, path)
    }

    /// Shows a dead letter with its message.
    pub fn dead_letter(&self, engine: &str, row_key: &str) -> Call<DeadLetter> {
        Call::get(self, Path::of(DLQ).segment(engine).segment(row_key))
    }
}
