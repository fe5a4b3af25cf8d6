//! The table, row by row.

use abide_runtime::Refused;
use abide_workflow::{InstanceId, Refusal, RunNumber, Status};

use super::*;

fn told(error: impl Into<ApiError>) -> (u16, String, Option<u16>) {
    let error = error.into();
    let code = serde_json::to_value(error.code).unwrap().as_str().unwrap().to_owned();
    (error.status.as_u16(), code, error.retry_after_seconds())
}

#[test]
fn every_refusal_has_its_status_and_code_and_what_is_transient_says_when_to_come_back() {
    let instance_id = InstanceId::new("a").unwrap();
    let reason = || "r".to_owned();
    let status = Status::Completed;
    for (refused, expected) in [
        (Refused::NotFound { instance_id: instance_id.clone() }, (404, "RESOURCE_NOT_FOUND", None)),
        (Refused::Live { instance_id: instance_id.clone(), run: RunNumber(1) }, (409, "CONFLICT", None)),
        (Refused::Parked { instance_id: instance_id.clone(), reason: reason() }, (409, "CONFLICT", None)),
        (Refused::KeyReused, (409, "CONFLICT", None)),
        (Refused::KeyExpired { instance_id: instance_id.clone() }, (409, "CONFLICT", None)),
        (
            Refused::NotCurrent { instance_id: instance_id.clone(), run: RunNumber(1) },
            (409, "CONFLICT", None),
        ),
        (Refused::Damaged { instance_id, reason: reason() }, (500, "INTERNAL_ERROR", None)),
        (Refused::Busy, (429, "RATE_LIMITED", Some(1))),
        (Refused::NotReady, (503, "SERVICE_UNAVAILABLE", Some(1))),
        (Refused::Draining, (503, "SERVICE_UNAVAILABLE", Some(1))),
        (Refused::Message(Refusal::RunEnded { status }), (409, "CONFLICT", None)),
        (Refused::Message(Refusal::NotSuspended { status }), (409, "CONFLICT", None)),
        (Refused::Message(Refusal::NotFailed { status }), (409, "CONFLICT", None)),
        (Refused::Message(Refusal::BufferFull { buffered: 1, limit: 1 }), (429, "RATE_LIMITED", Some(1))),
        (Refused::Message(Refusal::PayloadTooLarge { bytes: 2, limit: 1 }), (413, "VALIDATION_ERROR", None)),
        (Refused::Message(Refusal::EventName { chars: 0 }), (400, "VALIDATION_ERROR", None)),
    ] {
        let transient = refused.is_transient();
        let (status, code, retry) = told(refused.clone());
        assert_eq!((status, code.as_str(), retry), expected, "{refused:?}");
        assert!(!transient || retry.is_some(), "{refused:?}");
    }
}

#[test]
fn what_clients_must_tell_apart_has_a_code_of_its_own() {
    let code = |error: ApiError| error.details.first().map(|detail| detail.code.clone());
    let expired = Refused::KeyExpired { instance_id: InstanceId::new("a").unwrap() };
    assert_eq!(code(expired.into()).as_deref(), Some("IDEMPOTENCY_KEY_EXPIRED"));
    assert_eq!(code(Refused::KeyReused.into()).as_deref(), Some("IDEMPOTENCY_KEY_REUSED"));
    assert_eq!(code(Unanswered.into()).as_deref(), Some("OUTCOME_UNKNOWN"));
    assert_eq!(code(Refused::NotReady.into()), None, "this was surely not done");
}

#[test]
fn what_is_damaged_is_logged_and_not_told() {
    let instance_id = InstanceId::new("a").unwrap();
    let error = ApiError::from(Refused::Damaged { instance_id, reason: "row 7".to_owned() });
    assert!(error.logged().is_some_and(|detail| detail.contains("row 7")));
    assert!(!serde_json::to_string(&error.to_json()).unwrap().contains("row 7"));
}

#[test]
fn a_store_that_cannot_be_reached_is_for_later_and_a_damaged_row_is_not() {
    let unavailable = StoreError::Unavailable { reason: "gone".to_owned() };
    assert_eq!(told(unavailable).0, 503);
    assert_eq!(told(Unanswered).0, 503);
    let key = abide_store::rows::Key::new(*b"k");
    let partition = abide_store::rows::Partition::new("p").unwrap();
    assert_eq!(told(StoreError::Corrupt { partition, key, reason: "bits".to_owned() }).0, 500);
}
