//! `/api/dispatches`: every call of an activity, open or settled.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::address::Path;
use crate::call::Call;
use crate::client::Client;
use crate::instance::Failure;
use crate::pages::Pages;

const DISPATCHES: &str = "/api/dispatches";

/// A call of an activity. Lists leave out what the history tells of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    /// The run that calls: the instance and the number of the run.
    pub execution_id: String,
    /// The instance that calls.
    pub instance_id: String,
    /// The path of the state that calls.
    pub step: String,
    /// What is called.
    pub activity: String,
    /// By which receivers tell a repeat from new work.
    pub idempotency_key: String,
    /// `PENDING`, `SENT`, `FAILED_RETRYABLE`, `ACKED` or `FAILED_FINAL`.
    pub state: String,
    /// The last delivery there may have been, from 0.
    pub attempt: u32,
    /// When it was promised.
    pub created_at_utc: Timestamp,
    /// When it may have been sent last.
    #[serde(default)]
    pub sent_at_utc: Option<Timestamp>,
    /// When it was settled.
    #[serde(default)]
    pub settled_at_utc: Option<Timestamp>,
    /// When it is given up, retries included.
    #[serde(default)]
    pub deadline_at_utc: Option<Timestamp>,
    /// When it is delivered again, if it waits for that.
    #[serde(default)]
    pub next_attempt_at_utc: Option<Timestamp>,
    /// How it is sent; `local` is in the server itself.
    pub transport: String,
    /// Where to.
    #[serde(default)]
    pub target: Option<String>,
    /// Why it failed last.
    #[serde(default)]
    pub last_error: Option<String>,
    /// What the wire said of that.
    #[serde(default)]
    pub last_status: Option<String>,
    /// Why it was given up.
    #[serde(default)]
    pub terminal_reason: Option<String>,
    /// What the history tells of it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<DispatchAttempt>,
    /// Every delivery there may have been, in order; the last ones if there were many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<DispatchDelivery>,
}

/// A delivery of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchDelivery {
    /// Its number, from 0.
    pub attempt: u32,
    /// When it was recorded as sent.
    pub sent_at_utc: Timestamp,
    /// When it was over.
    #[serde(default)]
    pub ended_at_utc: Option<Timestamp>,
    /// `underWay`, `succeeded`, `failed`, `unanswered`, `orphaned` or `notSent`.
    pub outcome: String,
}

/// What the history tells of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchAttempt {
    /// Its number in the history.
    pub sequence: u64,
    /// When.
    pub timestamp: Timestamp,
    /// `TaskScheduled`, `TaskFailed` or `TaskCompleted`.
    pub event_type: String,
    /// The delivery that failed, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// When it was to be delivered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at_utc: Option<Timestamp>,
    /// Nobody waited for it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// Which calls to list. Nothing means all that are open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DispatchFilter {
    /// Of this run, as `instance/run`, or of this instance's current one: open and settled ones.
    pub execution_id: Option<String>,
    /// In this state.
    pub state: Option<String>,
    /// Of this activity.
    pub activity: Option<String>,
    /// Promised at least so long ago, to the millisecond.
    pub older_than: Option<std::time::Duration>,
}

impl Client {
    /// Lists calls of activities.
    pub fn dispatches(&self, filter: &DispatchFilter) -> Pages<Dispatch> {
        let older_than =
            filter.older_than.map(|age| format!("PT{}.{:03}S", age.as_secs(), age.subsec_millis()));
        let path = Path::of(DISPATCHES)
            .query("executionId", filter.execution_id.as_deref())
            .query("state", filter.state.as_deref())
            .query("activity", filter.activity.as_deref())
            .query("olderThan", older_than.as_deref());
        Pages::new(self, path)
    }

    /// Shows a call of an instance's run, with what the history tells of it.
    pub fn dispatch(&self, instance_id: &str, run: u32, idempotency_key: &str) -> Call<Dispatch> {
        let path = Path::of(DISPATCHES).segment(instance_id).segment(&run.to_string());
        Call::get(self, path.segment(idempotency_key))
    }
}
