//! `GET /api/dispatches/{instanceId}/{run}/{idempotencyKey}`: one call, and what the history tells of it.

use abide_runtime::hands::Store;
use abide_runtime::node::ShowError;
use abide_runtime::run::{CallReader, CallState, JournaledCall, NumberedRun, SettledPlace, TaskEvent};
use abide_store::tables::dispatches::{DeliveryEnd, PastDelivery};
use abide_workflow::{InstanceId, RunNumber, Timestamp};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::item::ItemJson;
use crate::app::App;
use crate::asked::Asked;
use crate::envelope::Text;
use crate::error::ApiError;
use crate::openapi::{Answer, Field, Kind, Operation};
use crate::rest::instances::INSTANCE_ID;

const INSTANCE: Field = Field { name: "instanceId", ..INSTANCE_ID };
const RUN: Field =
    Field::required("run", Kind::RUN_NUMBER, "The number of one of its runs that is still kept.");
const KEY: Field = Field::required(
    "idempotencyKey",
    Kind::Pattern { pattern: "^[0-9a-f]{64}$", chars_max: 64 },
    "The key of the call.",
);

pub(in crate::rest) const SHOW: Operation = Operation {
    id: "showDispatch",
    tag: "Dispatches",
    about: "Shows a call of an activity, with each delivery that its history tells of.",
    path: &[INSTANCE, RUN, KEY],
    answers: &[Answer::data::<CallJson>(200, "The call.")],
    refuses: &[404],
    ..Operation::NONE
};

/// A call of an activity, with what the history tells of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Dispatch")]
struct CallJson {
    #[serde(flatten)]
    item: ItemJson,
    /// In order: that it was asked for, each delivery that failed, its answer.
    attempts: Vec<AttemptJson>,
    /// Every delivery there may have been, at most the last 33, in order.
    deliveries: Vec<DeliveryJson>,
}

/// A delivery of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DispatchDelivery")]
#[serde(rename_all = "camelCase")]
struct DeliveryJson {
    /// Its number, from 0, as receivers are told it.
    attempt: u32,
    /// When it was recorded as sent; it may have waited for its turn since.
    sent_at_utc: Text<Timestamp>,
    /// When it was over; null while it is out.
    ended_at_utc: Option<Text<Timestamp>>,
    /// `underWay`; `succeeded`; `failed`: whoever was called said so; `unanswered`: nobody knows whether the activity ran; `orphaned`: its sender died; `notSent`: it never left.
    #[schemars(extend("enum" = OUTCOMES))]
    outcome: &'static str,
}

const OUTCOMES: &[&str] = &["underWay", "succeeded", "failed", "unanswered", "orphaned", "notSent"];

impl DeliveryJson {
    fn past(past: &PastDelivery) -> Self {
        Self {
            attempt: past.attempt,
            sent_at_utc: Text(Timestamp(past.sent_at)),
            ended_at_utc: Some(Text(Timestamp(past.ended_at))),
            outcome: match past.end {
                DeliveryEnd::Failed => "failed",
                DeliveryEnd::Unanswered => "unanswered",
                DeliveryEnd::Orphaned => "orphaned",
                DeliveryEnd::NotSent => "notSent",
            },
        }
    }

    /// The delivery that is out, or that succeeded.
    fn last(call: &JournaledCall) -> Option<Self> {
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

    fn all(call: &JournaledCall) -> Vec<Self> {
        call.past.iter().map(Self::past).chain(Self::last(call)).collect()
    }
}

/// What the history tells of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DispatchAttempt")]
#[serde(rename_all = "camelCase")]
struct AttemptJson {
    /// Its number in the history.
    sequence: u64,
    #[schemars(extend("format" = "date-time"))]
    timestamp: String,
    /// `TaskScheduled`, `TaskFailed` or `TaskCompleted`.
    event_type: &'static str,
    /// The delivery that failed, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    /// When it was to be delivered again; absent if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    retry_at_utc: Option<String>,
    /// Nobody waited for it any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
}

/// Pages of a run looked at at once.
const LOOK_PAGES: usize = 100;
/// What is told of one call at most; its definition allows a thousand deliveries.
const TOLD_MAX: usize = 2_000;

/// Shows one.
pub(in crate::rest) async fn show<S: Store>(app: &App<S>, asked: &mut Asked) -> Result<Response, ApiError> {
    let [] = asked.query([])?;
    let id = asked.part(&INSTANCE).await?;
    let id = InstanceId::new(id).map_err(|error| ApiError::invalid(INSTANCE.name, error.to_string()))?;
    let run = RUN.run_number(&asked.part(&RUN).await?)?;
    let key = asked.part(&KEY).await?;
    let key =
        read_key(&key).ok_or_else(|| ApiError::invalid(KEY.name, "it must be 64 hexadecimal digits"))?;
    let found = app.in_time(find(app, &id, run, key)).await??;
    let (call, told) = found.ok_or_else(|| ApiError::not_found("there is no such call"))?;
    let data = CallJson {
        item: ItemJson::of(&call),
        attempts: told.iter().map(AttemptJson::of).collect(),
        deliveries: DeliveryJson::all(&call),
    };
    Ok(asked.succeed(StatusCode::OK, app.now(), &data))
}

async fn find<S: Store>(
    app: &App<S>,
    id: &InstanceId,
    run: RunNumber,
    key: [u8; 32],
) -> Result<Option<(JournaledCall, Vec<TaskEvent>)>, ShowError> {
    let node = app.node();
    let Some(reader) = node.calls_of(node.shard_of_instance(id)) else { return Ok(None) };
    let Some(run) = reader.run(id, Some(run)).await? else { return Ok(None) };
    // The record first: it is gone only when a page has what is kept of it.
    let (call, last_page) = match reader.open_call(&run, key).await? {
        Some(call) => (call, u64::MAX),
        None => match settled(&reader, &run, key).await? {
            Some((place, call)) => (call, place.page),
            None => return Ok(None),
        },
    };
    let (mut told, mut next) = (Vec::new(), Some(1));
    while let Some(page) = next.filter(|page| *page <= last_page && told.len() < TOLD_MAX) {
        let (more, after) = reader.told(&run, call.command, page, LOOK_PAGES).await?;
        told.extend(more);
        next = after;
        // A look is a few milliseconds of work; others are heard in between.
        tokio::task::yield_now().await;
    }
    told.truncate(TOLD_MAX);
    Ok(Some((call, told)))
}

/// The settled call of a run with this key, and where it is. Runs have no index of them: their pages are walked.
async fn settled<S: Store>(
    reader: &CallReader<'_, S>,
    run: &NumberedRun,
    key: [u8; 32],
) -> Result<Option<(SettledPlace, JournaledCall)>, ShowError> {
    let mut next = Some(SettledPlace::FIRST);
    while let Some(from) = next {
        let looked = reader.settled(run, from, LOOK_PAGES).await?;
        let found = looked.calls.into_iter().find(|(_, call)| call.idempotency_key == key);
        if found.is_some() {
            return Ok(found);
        }
        next = looked.next;
        tokio::task::yield_now().await;
    }
    Ok(None)
}

/// A key as it is shown, in small letters.
fn read_key(text: &str) -> Option<[u8; 32]> {
    let digit = |digit: &u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let digits: Option<Vec<u8>> = text.as_bytes().iter().map(digit).collect();
    let (pairs, rest) = digits.as_ref()?.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok().filter(|_| rest.is_empty())
}

impl AttemptJson {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_shown_and_in_no_other_way() {
        let key: [u8; 32] = std::array::from_fn(|place| u8::try_from(place * 8).unwrap());
        let shown = abide_dispatch::IdempotencyKey(key).to_string();
        assert_eq!(read_key(&shown), Some(key));
        for wrong in
            ["", "0", &shown[1..], &shown[2..], &shown.to_uppercase(), &format!("{shown}00"), &"é".repeat(32)]
        {
            assert_eq!(read_key(wrong), None, "{wrong}");
        }
    }
}
