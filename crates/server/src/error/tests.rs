//! Tests the error table row by row.

use abide_runtime::placement::ShardCount;
use abide_runtime::{QueueLimit, RequestError};
use abide_workflow::{InstanceId, MessageRefusal, RunNumber, Status};

use super::*;

fn status_and_code(error: impl Into<ApiError>) -> (u16, String, Option<u16>) {
    let error = error.into();
    let code = serde_json::to_value(error.code).unwrap().as_str().unwrap().to_owned();
    (error.status.as_u16(), code, error.retry_after_seconds())
}

#[test]
fn every_error_has_its_status_and_code_and_transient_ones_have_a_retry_after() {
    let instance_id = InstanceId::new("a").unwrap();
    let reason = || "r".to_owned();
    let status = Status::Completed;
    let shard = ShardCount::new(1).unwrap().shards().next().unwrap();
    for (error, expected) in [
        (RequestError::NotFound { instance_id: instance_id.clone() }, (404, "RESOURCE_NOT_FOUND", None)),
        (
            RequestError::AlreadyRunning { instance_id: instance_id.clone(), run_number: RunNumber(1) },
            (409, "CONFLICT", None),
        ),
        (
            RequestError::Parked { instance_id: instance_id.clone(), reason: reason() },
            (409, "CONFLICT", None),
        ),
        (RequestError::KeyReused, (409, "CONFLICT", None)),
        (RequestError::KeyExpired { instance_id: instance_id.clone() }, (409, "CONFLICT", None)),
        (
            RequestError::NotCurrent { instance_id: instance_id.clone(), run_number: RunNumber(1) },
            (409, "CONFLICT", None),
        ),
        (RequestError::Damaged { instance_id, reason: reason() }, (500, "INTERNAL_ERROR", None)),
        (RequestError::Busy { shard, limit: QueueLimit::Items }, (429, "RATE_LIMITED", Some(1))),
        (RequestError::Busy { shard, limit: QueueLimit::Bytes }, (429, "RATE_LIMITED", Some(1))),
        (RequestError::NotReady, (503, "SERVICE_UNAVAILABLE", Some(1))),
        (RequestError::Draining, (503, "SERVICE_UNAVAILABLE", Some(1))),
        (RequestError::Message(MessageRefusal::RunEnded { status }), (409, "CONFLICT", None)),
        (RequestError::Message(MessageRefusal::NotSuspended { status }), (409, "CONFLICT", None)),
        (RequestError::Message(MessageRefusal::NotFailed { status }), (409, "CONFLICT", None)),
        (
            RequestError::Message(MessageRefusal::BufferFull { buffered: 1, limit: 1 }),
            (429, "RATE_LIMITED", Some(1)),
        ),
        (
            RequestError::Message(MessageRefusal::PayloadTooLarge { bytes: 2, limit: 1 }),
            (413, "VALIDATION_ERROR", None),
        ),
        (
            RequestError::Message(MessageRefusal::InvalidEventName { chars: 0 }),
            (400, "VALIDATION_ERROR", None),
        ),
    ] {
        let transient = error.is_transient();
        let (status, code, retry) = status_and_code(error.clone());
        assert_eq!((status, code.as_str(), retry), expected, "{error:?}");
        assert!(!transient || retry.is_some(), "{error:?}");
    }
}

#[test]
fn errors_that_clients_must_distinguish_have_their_own_detail_code() {
    let code = |error: ApiError| error.details.first().map(|detail| detail.code.clone());
    let expired = RequestError::KeyExpired { instance_id: InstanceId::new("a").unwrap() };
    assert_eq!(code(expired.into()).as_deref(), Some("IDEMPOTENCY_KEY_EXPIRED"));
    assert_eq!(code(RequestError::KeyReused.into()).as_deref(), Some("IDEMPOTENCY_KEY_REUSED"));
    assert_eq!(code(ShardLost.into()).as_deref(), Some("OUTCOME_UNKNOWN"));
    assert_eq!(code(RequestError::NotReady.into()), None, "this certainly had no effect");
}

#[test]
fn details_of_damaged_data_are_logged_and_not_sent_to_the_client() {
    let instance_id = InstanceId::new("a").unwrap();
    let error = ApiError::from(RequestError::Damaged { instance_id, reason: "row 7".to_owned() });
    assert!(error.log_detail().is_some_and(|detail| detail.contains("row 7")));
    assert!(!serde_json::to_string(&error.to_json()).unwrap().contains("row 7"));
}

#[test]
fn an_unavailable_store_is_a_503_and_a_damaged_row_a_500() {
    let unavailable = StoreError::Unavailable { reason: "gone".to_owned() };
    assert_eq!(status_and_code(unavailable).0, 503);
    assert_eq!(status_and_code(ShardLost).0, 503);
    let key = abide_store::rows::Key::new(*b"k");
    let partition = abide_store::rows::Partition::new("p").unwrap();
    assert_eq!(status_and_code(StoreError::Corrupt { partition, key, reason: "bits".to_owned() }).0, 500);
}
