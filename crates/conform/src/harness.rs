//! The receiver under test as the checks see it: creates test calls, sends requests, and reads how often a call ran.
//!
//! It knows no rule of the contract.

use std::sync::atomic::{AtomicU64, Ordering};

use abide_dispatch::Metadata;
use abide_ids::{Duration, Timestamp};
use serde_json::{Value, json};

use crate::http_client::ReceiverClient;
use crate::raw_encoding::encode;
use crate::response::{self, ReceiverResponse, ResponseOutcome};
use crate::test_request::{SentMetadata, TestRequest};
use crate::violation::{CheckFailure, CheckResult};
use crate::{ConformOptions, WireFormat};

/// Distance of deadlines from now: no two clocks differ that much.
const DEADLINE_DISTANCE: Duration = Duration::hours(1);

pub(crate) struct Harness {
    client: ReceiverClient,
    pub(crate) transport: WireFormat,
    activity: String,
    unique_prefix: String,
    now: Timestamp,
    works_created: AtomicU64,
}

/// A call that no receiver has seen yet, and a counter that no other call uses.
#[derive(Clone, Debug)]
pub(crate) struct TestWork {
    pub(crate) metadata: Metadata,
    pub(crate) tag: String,
}

impl TestWork {
    pub(crate) fn sent_metadata(&self) -> SentMetadata {
        SentMetadata::Valid(self.metadata.clone())
    }

    /// Adds one to the counter.
    pub(crate) fn run_request(&self) -> TestRequest {
        TestRequest::new(self.sent_metadata(), json!({"op": "run", "tag": self.tag}))
    }

    /// Adds one to the counter, and fails until the counter exceeds `times`.
    pub(crate) fn fail_request(&self, status: &str, times: u64) -> TestRequest {
        TestRequest::new(
            self.sent_metadata(),
            json!({"op": "fail", "tag": self.tag, "status": status, "times": times}),
        )
    }

    /// Adds one to the counter and takes `ms` milliseconds.
    pub(crate) fn wait_request(&self, ms: u64) -> TestRequest {
        TestRequest::new(self.sent_metadata(), json!({"op": "wait", "tag": self.tag, "ms": ms}))
    }

    /// Returns `value` and counts nothing.
    pub(crate) fn echo_request(&self, value: &Value) -> TestRequest {
        TestRequest::new(self.sent_metadata(), json!({"op": "echo", "value": value}))
    }

    /// The same counter under other metadata.
    #[must_use]
    pub(crate) fn with_metadata(&self, metadata: Metadata) -> Self {
        Self { metadata, tag: self.tag.clone() }
    }
}

impl Harness {
    pub(crate) fn new(client: ReceiverClient, options: &ConformOptions) -> Self {
        Self {
            client,
            transport: options.transport,
            activity: options.activity.clone(),
            unique_prefix: options.unique_prefix.clone(),
            now: options.now,
            works_created: AtomicU64::new(0),
        }
    }

    pub(crate) fn new_work(&self) -> TestWork {
        let number = self.works_created.fetch_add(1, Ordering::Relaxed);
        let execution_id = format!("conform-{}/{number}", self.unique_prefix);
        let metadata = Metadata {
            correlation_id: execution_id.clone(),
            execution_id,
            idempotency_key: format!("key-{number}"),
            retry_attempt: 0,
            deadline: Some(self.future_deadline()),
            dispatched_at: self.now,
            parent_item_id: None,
        };
        TestWork { metadata, tag: format!("conform-{}-{number}", self.unique_prefix) }
    }

    pub(crate) fn past_deadline(&self) -> Timestamp {
        self.now.minus(DEADLINE_DISTANCE).max(Timestamp(0))
    }

    pub(crate) fn future_deadline(&self) -> Timestamp {
        self.now.plus(DEADLINE_DISTANCE)
    }

    /// Sends one request. The check is skipped if the wire cannot express it.
    pub(crate) async fn send(&self, request: &TestRequest) -> CheckResult<ReceiverResponse> {
        let encoded = encode(self.transport, &self.client.url, &self.activity, request);
        let encoded = encoded.map_err(|error| CheckFailure::Skipped(error.0))?;
        Ok(response::parse_response(self.transport, &self.client.send(encoded).await?))
    }

    /// The counter of this tag must be at `runs`.
    pub(crate) async fn expect_runs(&self, tag: &str, runs: u64) -> CheckResult {
        let count_request =
            TestRequest::new(self.new_work().sent_metadata(), json!({"op": "count", "tag": tag}));
        let response = self.send(&count_request).await?;
        match &response.outcome {
            ResponseOutcome::Output(output) if *output == json!({"runs": runs}) => Ok(()),
            ResponseOutcome::Output(output) if output.get("runs").is_some_and(Value::is_u64) => {
                let found = output.get("runs").unwrap_or(&Value::Null);
                Err(CheckFailure::violation(
                    format!("{runs} run{}", plural(runs)),
                    format!("a count of {found}"),
                ))
            }
            _ => Err(CheckFailure::violation(format!("a count of {runs}"), response)),
        }
    }
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
