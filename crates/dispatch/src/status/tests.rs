//! Every row of the table, and what a status becomes on its way to a workflow.

use super::*;

/// Number, name, HTTP, retryable: written out once more, so that a slip in the table is seen.
#[test]
fn every_code_has_the_number_name_http_status_and_class_of_the_contract() {
    let rows = [
        (0, "OK", 200, false),
        (1, "CANCELLED", 499, false),
        (2, "UNKNOWN", 500, true),
        (3, "INVALID_ARGUMENT", 400, false),
        (4, "DEADLINE_EXCEEDED", 504, true),
        (5, "NOT_FOUND", 404, false),
        (6, "ALREADY_EXISTS", 409, false),
        (7, "PERMISSION_DENIED", 403, false),
        (8, "RESOURCE_EXHAUSTED", 429, true),
        (9, "FAILED_PRECONDITION", 412, false),
        (10, "ABORTED", 409, true),
        (11, "OUT_OF_RANGE", 400, false),
        (12, "UNIMPLEMENTED", 501, false),
        (13, "INTERNAL", 500, true),
        (14, "UNAVAILABLE", 503, true),
        (15, "DATA_LOSS", 500, false),
        (16, "UNAUTHENTICATED", 401, false),
    ];
    assert_eq!(Code::all().count(), rows.len());
    for (code, (number, name, http, retryable)) in Code::all().zip(rows) {
        assert_eq!(
            (code.number(), code.name(), code.http(), code.is_retryable()),
            (number, name, http, retryable)
        );
        assert_eq!((Code::from_number(number), Code::from_name(name)), (code, Some(code)));
    }
}

#[test]
fn a_number_nobody_knows_is_an_unknown_failure_and_may_be_tried_again() {
    for number in [-1, 17, 99, i32::MAX, i32::MIN] {
        assert_eq!(Code::from_number(number), Code::Unknown);
        assert!(Code::from_number(number).is_retryable());
    }
    for name in ["", "not_found", "NotFound", "OK "] {
        assert_eq!(Code::from_name(name), None);
    }
}

#[test]
fn a_workflow_matches_the_reason_or_else_the_name_of_the_status() {
    let plain = Failure::from(Status::new(Code::Unavailable, "later").with_retry_after_ms(1_500));
    assert_eq!((plain.code.as_str(), plain.retryable, plain.outcome_unknown), ("UNAVAILABLE", true, false));
    assert_eq!((plain.retry_after_ms, plain.status.as_deref()), (Some(1_500), Some("503 UNAVAILABLE")));
    let reasoned =
        Status::new(Code::FailedPrecondition, "no").with_reason("CARD_DECLINED").with_domain("payments");
    let reasoned = Failure::from(reasoned);
    assert_eq!((reasoned.code.as_str(), reasoned.retryable), ("CARD_DECLINED", false));
    assert_eq!(reasoned.status.as_deref(), Some("412 FAILED_PRECONDITION"));
    for no_reason in ["", "  ", &"R".repeat(REASON_BYTES_MAX + 1)] {
        assert_eq!(Failure::from(Status::new(Code::Internal, "").with_reason(no_reason)).code, "INTERNAL");
    }
}

#[test]
fn a_status_is_bounded() {
    let status = Status::new(Code::Unknown, "ö".repeat(2_000)).with_retry_after_ms(u64::MAX);
    assert_eq!((status.message.len(), status.retry_after_ms), (MESSAGE_BYTES_MAX, Some(RETRY_AFTER_MS_MAX)));
}
