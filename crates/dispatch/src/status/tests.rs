//! Every row of the code table, and the failure that a status becomes for a workflow.

use super::*;

/// Number, name, HTTP, retryable: written out a second time, so that a slip in the table is noticed.
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
    assert_eq!(RpcCode::all().count(), rows.len());
    for (code, (number, name, http, retryable)) in RpcCode::all().zip(rows) {
        assert_eq!(
            (code.number(), code.name(), code.http_status(), code.is_retryable()),
            (number, name, http, retryable)
        );
        assert_eq!((RpcCode::from_number(number), RpcCode::from_name(name)), (code, Some(code)));
    }
}

#[test]
fn a_number_outside_the_table_is_unknown_and_retryable() {
    for number in [-1, 17, 99, i32::MAX, i32::MIN] {
        assert_eq!(RpcCode::from_number(number), RpcCode::Unknown);
        assert!(RpcCode::from_number(number).is_retryable());
    }
    for name in ["", "not_found", "NotFound", "OK "] {
        assert_eq!(RpcCode::from_name(name), None);
    }
}

#[test]
fn a_workflow_matches_the_reason_or_else_the_name_of_the_status() {
    let plain = CallFailure::from(RpcStatus::new(RpcCode::Unavailable, "later").with_retry_after_ms(1_500));
    assert_eq!((plain.code.as_str(), plain.retryable, plain.outcome_unknown), ("UNAVAILABLE", true, false));
    assert_eq!((plain.retry_after_ms, plain.status.as_deref()), (Some(1_500), Some("503 UNAVAILABLE")));
    let reasoned = RpcStatus::new(RpcCode::FailedPrecondition, "no")
        .with_reason("CARD_DECLINED")
        .with_domain("payments");
    let reasoned = CallFailure::from(reasoned);
    assert_eq!((reasoned.code.as_str(), reasoned.retryable), ("CARD_DECLINED", false));
    assert_eq!(reasoned.status.as_deref(), Some("412 FAILED_PRECONDITION"));
    for no_reason in ["", "  ", &"R".repeat(REASON_BYTES_MAX + 1)] {
        assert_eq!(
            CallFailure::from(RpcStatus::new(RpcCode::Internal, "").with_reason(no_reason)).code,
            "INTERNAL"
        );
    }
}

#[test]
fn the_message_and_the_retry_delay_of_a_status_are_bounded() {
    let status = RpcStatus::new(RpcCode::Unknown, "ö".repeat(2_000)).with_retry_after_ms(u64::MAX);
    assert_eq!((status.message.len(), status.retry_after_ms), (MESSAGE_BYTES_MAX, Some(RETRY_AFTER_MS_MAX)));
}
