//! Rules for failures: every code of the table arrives unchanged; permanent ones are recorded, retryable ones are not.

use abide_dispatch::RpcCode;

use super::ContractCheck;
use crate::harness::Harness;
use crate::violation::CheckResult;

/// The reason of the failures that `op fail` requests.
const REQUESTED_REASON: &str = "CONFORMANCE";

const RETRYABLE_RULE: &str =
    "the code arrives unchanged, with its HTTP status; it is not recorded, and the next attempt runs";
const PERMANENT_RULE: &str =
    "the code arrives unchanged, with its HTTP status; it is recorded, and duplicates get it";

const CODES: [(RpcCode, &str); 16] = [
    (RpcCode::Cancelled, "status-cancelled"),
    (RpcCode::Unknown, "status-unknown"),
    (RpcCode::InvalidArgument, "status-invalid-argument"),
    (RpcCode::DeadlineExceeded, "status-deadline-exceeded"),
    (RpcCode::NotFound, "status-not-found"),
    (RpcCode::AlreadyExists, "status-already-exists"),
    (RpcCode::PermissionDenied, "status-permission-denied"),
    (RpcCode::ResourceExhausted, "status-resource-exhausted"),
    (RpcCode::FailedPrecondition, "status-failed-precondition"),
    (RpcCode::Aborted, "status-aborted"),
    (RpcCode::OutOfRange, "status-out-of-range"),
    (RpcCode::Unimplemented, "status-unimplemented"),
    (RpcCode::Internal, "status-internal"),
    (RpcCode::Unavailable, "status-unavailable"),
    (RpcCode::DataLoss, "status-data-loss"),
    (RpcCode::Unauthenticated, "status-unauthenticated"),
];

pub(super) fn all() -> Vec<ContractCheck> {
    let mut all = vec![
        ContractCheck::new(
            "failure-retryable",
            "a retryable failure is not recorded: attempts run until one succeeds, which is recorded",
            |harness| Box::pin(retryable(harness)),
        ),
        ContractCheck::new(
            "failure-final",
            "a permanent failure is recorded: duplicates get it byte for byte, and run nothing",
            |harness| Box::pin(permanent(harness)),
        ),
    ];
    all.extend(CODES.into_iter().map(|(code, name)| {
        let rule = if code.is_retryable() { RETRYABLE_RULE } else { PERMANENT_RULE };
        ContractCheck::new(name, rule, move |harness| Box::pin(arrives_unchanged(harness, code)))
    }));
    all
}

async fn retryable(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let request = work.fail_request(RpcCode::Unavailable.name(), 2);
    for _ in 0..2 {
        harness.send(&request).await?.expect_failure(RpcCode::Unavailable, Some(REQUESTED_REASON))?;
    }
    let success = harness.send(&request).await?;
    success.expect_run_count(3).map_err(|failure| failure.with_context("the third attempt"))?;
    harness.send(&request).await?.expect_same_as(&success)?;
    harness.expect_runs(&work.tag, 3).await
}

async fn permanent(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let request = work.fail_request(RpcCode::FailedPrecondition.name(), 1);
    let first = harness.send(&request).await?;
    first.expect_failure(RpcCode::FailedPrecondition, Some(REQUESTED_REASON))?;
    for _ in 0..2 {
        harness.send(&request).await?.expect_same_as(&first)?;
    }
    harness.expect_runs(&work.tag, 1).await
}

async fn arrives_unchanged(harness: &Harness, code: RpcCode) -> CheckResult {
    let work = harness.new_work();
    let request = work.fail_request(code.name(), 1);
    let first = harness.send(&request).await?;
    first.expect_failure(code, Some(REQUESTED_REASON))?;
    let again = harness.send(&request).await?;
    if code.is_retryable() { again.expect_run_count(2) } else { again.expect_same_as(&first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_code_has_a_check_named_after_it() {
        let codes: Vec<RpcCode> = CODES.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, RpcCode::all().filter(|code| *code != RpcCode::Ok).collect::<Vec<_>>());
        for (code, name) in CODES {
            assert_eq!(name, format!("status-{}", code.name().to_lowercase().replace('_', "-")));
        }
    }
}
