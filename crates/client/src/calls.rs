//! `/api/dispatches`: lists and shows calls of activities, open and settled.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::address::ApiPath;
use crate::client::Client;
use crate::instance::Failure;
use crate::pages::Pages;
use crate::request::ClientRequest;

const DISPATCHES: &str = "/api/dispatches";

/// A call of an activity. Lists leave out its history events.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallView {
    /// The calling run: the instance id and the run number.
    pub execution_id: String,
    pub instance_id: String,
    /// The path of the calling state.
    pub step: String,
    pub activity: String,
    /// The key by which a receiver recognises a repeat.
    pub idempotency_key: String,
    /// `PENDING`, `SENT`, `FAILED_RETRYABLE`, `ACKED` or `FAILED_FINAL`.
    pub state: String,
    /// The number of the last attempt that may have been made, from 0.
    pub attempt: u32,
    /// When the call was recorded.
    pub created_at_utc: Timestamp,
    /// When the last attempt may have been sent.
    #[serde(default)]
    pub sent_at_utc: Option<Timestamp>,
    #[serde(default)]
    pub settled_at_utc: Option<Timestamp>,
    /// The deadline of the call, retries included.
    #[serde(default)]
    pub deadline_at_utc: Option<Timestamp>,
    /// When the next attempt is due, if the call waits for one.
    #[serde(default)]
    pub next_attempt_at_utc: Option<Timestamp>,
    /// What holds the call back.
    #[serde(default)]
    pub held: Option<HoldView>,
    /// The transport; `local` calls run in the server itself.
    pub transport: String,
    /// The address of the receiver.
    #[serde(default)]
    pub target: Option<String>,
    /// The error of the last failed attempt.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The transport's status of that attempt.
    #[serde(default)]
    pub last_status: Option<String>,
    /// Why the call failed permanently.
    #[serde(default)]
    pub terminal_reason: Option<String>,
    /// The history events of the call, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<CallHistoryEvent>,
    /// Every attempt that may have been made, in order. If there were many, only the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<AttemptView>,
}

/// What holds a call back: nothing of its next attempt has been sent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldView {
    /// `not_connected`, `circuit_open`, `rate_limit` or `concurrency_limit`.
    pub reason: String,
    /// Since when nothing could be sent.
    pub since_utc: Timestamp,
    /// When it was to be tried again, as of the time when the reason was recorded.
    pub until_utc: Timestamp,
}

/// One attempt of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptView {
    /// Its number, from 0.
    pub attempt: u32,
    /// When it was recorded as sent.
    pub sent_at_utc: Timestamp,
    #[serde(default)]
    pub ended_at_utc: Option<Timestamp>,
    /// `underWay`, `succeeded`, `failed`, `unanswered`, `orphaned` or `notSent`.
    pub outcome: String,
}

/// A history event of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallHistoryEvent {
    /// Its number in the history.
    pub sequence: u64,
    pub timestamp: Timestamp,
    /// `TaskScheduled`, `TaskFailed` or `TaskCompleted`.
    pub event_type: String,
    /// The number of the failed attempt, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// When the next attempt was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at_utc: Option<Timestamp>,
    /// True if the run no longer waited for the result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// A filter of calls. The empty filter lists all open calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallViewFilter {
    /// Open and settled calls of this run, given as `instance/run`, or of this instance's current run.
    pub execution_id: Option<String>,
    pub state: Option<String>,
    pub activity: Option<String>,
    /// The minimum age of a call, to the millisecond.
    pub older_than: Option<std::time::Duration>,
}

impl Client {
    /// Lists calls of activities.
    pub fn calls(&self, filter: &CallViewFilter) -> Pages<CallView> {
        let older_than =
            filter.older_than.map(|age| format!("PT{}.{:03}S", age.as_secs(), age.subsec_millis()));
        let path = ApiPath::new(DISPATCHES)
            .query("executionId", filter.execution_id.as_deref())
            .query("state", filter.state.as_deref())
            .query("activity", filter.activity.as_deref())
            .query("olderThan", older_than.as_deref());
        Pages::new(self, path)
    }

    /// Shows a call of an instance's run, with its history events.
    pub fn call(&self, instance_id: &str, run: u32, idempotency_key: &str) -> ClientRequest<CallView> {
        let path = ApiPath::new(DISPATCHES).segment(instance_id).segment(&run.to_string());
        ClientRequest::get(self, path.segment(idempotency_key))
    }
}
