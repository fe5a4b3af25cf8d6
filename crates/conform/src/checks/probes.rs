//! Rules for probes, which a receiver need not support: a probe returns what is recorded and runs nothing.

use abide_dispatch::RpcCode;
use abide_dispatch::status::reason;
use futures_util::future::join;

use super::ContractCheck;
use crate::harness::{Harness, TestWork};
use crate::response::{ReceiverResponse, ResponseOutcome};
use crate::test_request::Deviation;
use crate::violation::{CheckFailure, CheckResult};

/// How long the call runs that is probed meanwhile.
const WAIT_MS: u64 = 700;
/// How often a call is probed that has not begun.
const PROBES_MAX: usize = 200;

pub(super) fn all() -> Vec<ContractCheck> {
    vec![
        ContractCheck::new(
            "probe-unknown",
            "optional: a probe of an unknown call is NOT_FOUND, and runs nothing",
            |harness| Box::pin(unknown(harness)),
        ),
        ContractCheck::new(
            "probe-finished",
            "optional: a probe of a finished call returns its recorded result",
            |harness| Box::pin(finished(harness)),
        ),
        ContractCheck::new(
            "probe-in-progress",
            "optional: a probe of a call in progress is ABORTED, IN_PROGRESS",
            |harness| Box::pin(in_progress(harness)),
        ),
    ]
}

async fn probe(harness: &Harness, work: &TestWork) -> CheckResult<ReceiverResponse> {
    harness.send(&work.run_request().with_deviation(Deviation::Probe)).await
}

/// Skips the check if the receiver does not support probes: then it runs the call, or rejects it.
async fn require_probe_support(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let response = probe(harness, &work).await?;
    match &response.outcome {
        ResponseOutcome::Output(_) => {
            Err(probes_unsupported("probes are not supported: a probe ran as a call"))
        }
        ResponseOutcome::Failed(status) if status.code == RpcCode::Unimplemented => {
            Err(probes_unsupported("probes are not supported"))
        }
        _ if matches!(response.http_status, Some(400 | 405 | 501)) => {
            Err(probes_unsupported("probes are not supported: a probe was rejected"))
        }
        _ => Ok(()),
    }
}

fn probes_unsupported(reason: &str) -> CheckFailure {
    CheckFailure::Skipped(format!("{reason}; leave `probe` out of the activity's declaration"))
}

async fn unknown(harness: &Harness) -> CheckResult {
    require_probe_support(harness).await?;
    let work = harness.new_work();
    probe(harness, &work).await?.expect_failure(RpcCode::NotFound, None)?;
    harness.expect_runs(&work.tag, 0).await
}

async fn finished(harness: &Harness) -> CheckResult {
    require_probe_support(harness).await?;
    let work = harness.new_work();
    let first = harness.send(&work.run_request()).await?;
    probe(harness, &work).await?.expect_same_as(&first)?;
    let work = harness.new_work();
    let request = work.fail_request(RpcCode::FailedPrecondition.name(), 1);
    let first = harness.send(&request).await?;
    harness.send(&request.with_deviation(Deviation::Probe)).await?.expect_same_as(&first)?;
    harness.expect_runs(&work.tag, 1).await
}

async fn in_progress(harness: &Harness) -> CheckResult {
    require_probe_support(harness).await?;
    let work = harness.new_work();
    let request = work.wait_request(WAIT_MS);
    let probing = async {
        let probe = request.clone().with_deviation(Deviation::Probe);
        for _ in 0..PROBES_MAX {
            let response = harness.send(&probe).await?;
            // The call has not begun yet.
            if response.code() != Some(RpcCode::NotFound) {
                return response.expect_failure(RpcCode::Aborted, Some(reason::IN_PROGRESS));
            }
        }
        Err(CheckFailure::violation("ABORTED while the call runs", "NOT_FOUND for every probe"))
    };
    let (finished, probed) = join(harness.send(&request), probing).await;
    finished?.expect_run_count(1)?;
    probed
}
