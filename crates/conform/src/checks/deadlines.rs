//! Rules for deadlines: a late call does not run, and a call that finished in time keeps its result.

use abide_dispatch::status::reason;
use abide_dispatch::{Metadata, RpcCode};
use abide_ids::Timestamp;

use super::ContractCheck;
use crate::harness::{Harness, TestWork};
use crate::violation::CheckResult;

pub(super) fn all() -> Vec<ContractCheck> {
    vec![
        ContractCheck::new(
            "deadline-expired",
            "a call after its deadline is DEADLINE_EXCEEDED, DEADLINE_EXPIRED, and does not run",
            |harness| Box::pin(expired(harness)),
        ),
        ContractCheck::new(
            "deadline-not-recorded",
            "an expired deadline is not recorded: the same call with a later deadline runs",
            |harness| Box::pin(not_recorded(harness)),
        ),
        ContractCheck::new("deadline-absent", "a call without a deadline runs", |harness| {
            Box::pin(absent(harness))
        }),
        ContractCheck::new(
            "deadline-ahead",
            "a call before its deadline runs, even if that is the latest possible time",
            |harness| Box::pin(ahead(harness)),
        ),
        ContractCheck::new(
            "deadline-finished",
            "a finished call keeps its result after its deadline",
            |harness| Box::pin(finished(harness)),
        ),
    ]
}

fn with_deadline(work: &TestWork, deadline: Timestamp) -> TestWork {
    work.with_metadata(Metadata { deadline: Some(deadline), ..work.metadata.clone() })
}

async fn expired(harness: &Harness) -> CheckResult {
    for deadline in [harness.past_deadline(), Timestamp(0)] {
        let work = harness.new_work();
        let response = harness.send(&with_deadline(&work, deadline).run_request()).await?;
        response.expect_failure(RpcCode::DeadlineExceeded, Some(reason::DEADLINE_EXPIRED))?;
        harness.expect_runs(&work.tag, 0).await?;
    }
    Ok(())
}

async fn not_recorded(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    harness.send(&with_deadline(&work, harness.past_deadline()).run_request()).await?;
    let response = harness.send(&with_deadline(&work, harness.future_deadline()).run_request()).await?;
    response
        .expect_run_count(1)
        .map_err(|failure| failure.with_context("the same call with a later deadline"))
}

async fn absent(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let without_deadline = work.with_metadata(Metadata { deadline: None, ..work.metadata.clone() });
    harness.send(&without_deadline.run_request()).await?.expect_run_count(1)
}

async fn ahead(harness: &Harness) -> CheckResult {
    for (case, deadline) in
        [("an hour ahead", harness.future_deadline()), ("the latest possible time", Timestamp::MAX)]
    {
        let work = harness.new_work();
        // The handler waits briefly, so a receiver whose timers cannot reach that far fails here.
        let request = with_deadline(&work, deadline).wait_request(20);
        harness.send(&request).await?.expect_run_count(1).map_err(|failure| failure.with_context(case))?;
    }
    Ok(())
}

async fn finished(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let first = harness.send(&with_deadline(&work, harness.future_deadline()).run_request()).await?;
    first.expect_run_count(1)?;
    harness
        .send(&with_deadline(&work, harness.past_deadline()).run_request())
        .await?
        .expect_same_as(&first)?;
    harness.expect_runs(&work.tag, 1).await
}
