//! `GET /api/dispatches/{instanceId}/{run}/{idempotencyKey}`: shows one call with its attempts and history events.

use abide_ids::{IdempotencyKey, PageNumber};
use abide_runtime::node::RunReadError;
use abide_runtime::run::{CallReader, CallRecord, CallState, RunRef, SettledCallCursor, TaskEvent};
use abide_store::Store;
use abide_store::tables::calls::{AttemptEnd, PastAttempt};
use abide_workflow::{InstanceId, RunNumber, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::item::CallItemJson;
use crate::api_request::ApiRequest;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{Field, FieldKind, OperationSpec, ResponseSpec};
use crate::response::Text;
use crate::rest::instances::INSTANCE_ID;

const INSTANCE: Field = Field { name: "instanceId", ..INSTANCE_ID };
const RUN: Field =
    Field::required("run", FieldKind::RUN_NUMBER, "The number of one of the instance's retained runs.");
const KEY: Field = Field::required(
    "idempotencyKey",
    FieldKind::Pattern { pattern: "^[0-9a-f]{64}$", chars_max: 64 },
    "The idempotency key of the call.",
);

pub(in crate::rest) const SHOW: OperationSpec = OperationSpec {
    id: "showDispatch",
    tag: "Dispatches",
    about: "Shows an activity call with its attempts and its history events.",
    path: &[INSTANCE, RUN, KEY],
    responses: &[ResponseSpec::enveloped::<CallJson>(200, "The call.")],
    error_statuses: &[404],
    ..OperationSpec::EMPTY
};

/// An activity call with its attempts and its history events.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Dispatch")]
struct CallJson {
    #[serde(flatten)]
    item: CallItemJson,
    /// The history events of the call in order: its scheduling, each failed attempt, its result.
    attempts: Vec<CallEventJson>,
    /// The last attempts that may have been sent, at most 33, in order.
    deliveries: Vec<CallAttemptJson>,
}

/// An attempt of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DispatchDelivery")]
#[serde(rename_all = "camelCase")]
struct CallAttemptJson {
    /// The number of the attempt, from 0, as receivers see it.
    attempt: u32,
    /// When it was recorded as sent; it may have waited for a permit after that.
    sent_at_utc: Text<Timestamp>,
    /// When it ended; null while it is in flight.
    ended_at_utc: Option<Text<Timestamp>>,
    /// `underWay`: in flight; `succeeded`; `failed`: the receiver, or something in front of it, reported a failure;
    /// `unanswered`: it is unknown whether the activity ran; `orphaned`: the sender died; `notSent`: it was never sent.
    #[schemars(extend("enum" = OUTCOMES))]
    outcome: &'static str,
}

const OUTCOMES: &[&str] = &["underWay", "succeeded", "failed", "unanswered", "orphaned", "notSent"];

impl CallAttemptJson {
    fn ended(past: &PastAttempt) -> Self {
        Self {
            attempt: past.attempt,
            sent_at_utc: Text(past.sent_at),
            ended_at_utc: Some(Text(past.ended_at)),
            outcome: match past.end {
                AttemptEnd::Failed => "failed",
                AttemptEnd::Unanswered => "unanswered",
                AttemptEnd::Orphaned => "orphaned",
                AttemptEnd::NotSent => "notSent",
            },
        }
    }

    /// The attempt that is in flight or that succeeded.
    fn latest(call: &CallRecord) -> Option<Self> {
        let outcome = match call.state {
            CallState::Sent => "underWay",
            CallState::Acked => "succeeded",
            CallState::Pending | CallState::FailedRetryable | CallState::FailedFinal(_) => return None,
        };
        Some(Self {
            attempt: call.attempt,
            sent_at_utc: Text(call.sent_at?),
            ended_at_utc: call.settled_at.map(Text),
            outcome,
        })
    }

    fn all(call: &CallRecord) -> Vec<Self> {
        call.past_attempts.iter().map(Self::ended).chain(Self::latest(call)).collect()
    }
}

/// A history event of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DispatchAttempt")]
#[serde(rename_all = "camelCase")]
struct CallEventJson {
    /// The event's number in the history.
    sequence: u64,
    #[schemars(extend("format" = "date-time"))]
    timestamp: String,
    /// `TaskScheduled`, `TaskFailed` or `TaskCompleted`.
    event_type: &'static str,
    /// The number of the failed attempt, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Why the attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    /// When the next attempt was due; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    retry_at_utc: Option<String>,
    /// Set if the run no longer waited for the result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

/// History pages of a run read at once.
const SCAN_PAGES: usize = 100;
/// The maximum number of events shown for one call; a definition allows a thousand attempts.
const EVENTS_MAX: usize = 2_000;

pub(in crate::rest) async fn show<S: Store>(
    app: &App<S>,
    request: &mut ApiRequest,
) -> Result<Response, ApiError> {
    let [] = request.raw_query([])?;
    let id = request.checked_path_param(&INSTANCE).await?;
    let id = InstanceId::new(id).map_err(|error| ApiError::invalid(INSTANCE.name, error.to_string()))?;
    let run = RUN.parse_run_number(&request.checked_path_param(&RUN).await?)?;
    let key = request.checked_path_param(&KEY).await?;
    let key = IdempotencyKey::parse(&key)
        .ok_or_else(|| ApiError::invalid(KEY.name, "must be 64 lower-case hexadecimal digits"))?;
    let found = app.with_timeout(read_call_with_events(app, &id, run, key)).await??;
    let (call, events) = found.ok_or_else(|| ApiError::not_found("call not found"))?;
    let data = CallJson {
        item: CallItemJson::of(&call),
        attempts: events.iter().map(CallEventJson::of).collect(),
        deliveries: CallAttemptJson::all(&call),
    };
    Ok(request.data_response(StatusCode::OK, app.now(), &data))
}

/// A call of a run, open or settled, and its history events in order; none if the run or the call is not retained.
async fn read_call_with_events<S: Store>(
    app: &App<S>,
    id: &InstanceId,
    run: RunNumber,
    key: IdempotencyKey,
) -> Result<Option<(CallRecord, Vec<TaskEvent>)>, RunReadError> {
    let node = app.node();
    let Some(reader) = node.call_reader(node.shard_of_instance(id)) else { return Ok(None) };
    let Some(run) = reader.find_run(id, Some(run)).await? else { return Ok(None) };
    // The open record first: it is deleted only when a history page has the settled call.
    let (call, last_page) = match reader.open_call(&run, key).await? {
        Some(call) => (call, None),
        None => match find_settled(&reader, &run, key).await? {
            Some((position, call)) => (call, Some(position.page)),
            None => return Ok(None),
        },
    };
    let mut events = Vec::new();
    let mut next = Some(PageNumber::FIRST);
    while let Some(page) =
        next.filter(|page| last_page.is_none_or(|last| *page <= last) && events.len() < EVENTS_MAX)
    {
        let (more, after) = reader.call_events(&run, call.command, page, SCAN_PAGES).await?;
        events.extend(more);
        next = after;
        // Reading these pages takes a few milliseconds; other tasks run in between.
        tokio::task::yield_now().await;
    }
    events.truncate(EVENTS_MAX);
    Ok(Some((call, events)))
}

/// The settled call of a run with this key, and its position: the newest, if a rewind made the call again under its
/// key. Runs have no index of settled calls, so this scans their history pages.
async fn find_settled<S: Store>(
    reader: &CallReader<'_, S>,
    run: &RunRef,
    key: IdempotencyKey,
) -> Result<Option<(SettledCallCursor, CallRecord)>, RunReadError> {
    let mut next = Some(SettledCallCursor::FIRST);
    let mut newest = None;
    while let Some(from) = next {
        let page = reader.settled_calls(run, from, SCAN_PAGES).await?;
        newest = page.calls.into_iter().rfind(|(_, call)| call.idempotency_key == key).or(newest);
        // A call that succeeded is never made again.
        if newest.as_ref().is_some_and(|(_, call)| call.state == CallState::Acked) {
            break;
        }
        next = page.next;
        tokio::task::yield_now().await;
    }
    Ok(newest)
}

impl CallEventJson {
    fn of(event: &TaskEvent) -> Self {
        Self {
            sequence: event.sequence,
            timestamp: event.timestamp.clone(),
            event_type: event.event_type.as_str(),
            attempt: event.attempt,
            error: event.error.as_ref().and_then(|error| serde_json::from_str(error.get()).ok()),
            retry_at_utc: event.retry_at.clone(),
            late: event.late,
        }
    }
}
