//! Rules for the identity of a call: execution id, activity and idempotency key, and nothing else.

use abide_dispatch::status::reason;
use abide_dispatch::{Metadata, RpcCode};
use abide_ids::Duration;
use futures_util::future::join_all;
use serde_json::json;

use super::ContractCheck;
use crate::harness::Harness;
use crate::response::ResponseOutcome;
use crate::violation::{CheckFailure, CheckResult};

const CONCURRENT_DUPLICATES: usize = 16;
/// How long the duplicate that runs takes, so that the others arrive meanwhile.
const CONCURRENT_WAIT_MS: u64 = 700;

pub(super) fn all() -> Vec<ContractCheck> {
    vec![
        ContractCheck::new(
            "serves",
            "the activity runs, counts its runs and returns its output",
            |harness| Box::pin(serves(harness)),
        ),
        ContractCheck::new(
            "duplicate",
            "a duplicate gets the recorded result, byte for byte, and runs nothing",
            |harness| Box::pin(duplicate(harness)),
        ),
        ContractCheck::new(
            "duplicate-attempt",
            "another attempt number, dispatch time, correlation id or deadline is still the same call",
            |harness| Box::pin(duplicate_attempt(harness)),
        ),
        ContractCheck::new(
            "duplicate-input",
            "the content of a duplicate is not examined: another input gets the recorded result",
            |harness| Box::pin(duplicate_input(harness)),
        ),
        ContractCheck::new(
            "duplicate-at-once",
            "of 16 concurrent duplicates one runs; the others are ABORTED, IN_PROGRESS, or get its result",
            |harness| Box::pin(duplicates_at_once(harness)),
        ),
        ContractCheck::new(
            "other-execution",
            "the same key under another execution id is another call",
            |harness| Box::pin(other_execution(harness)),
        ),
        ContractCheck::new(
            "other-key",
            "another key under the same execution id is another call",
            |harness| Box::pin(other_key(harness)),
        ),
    ]
}

async fn serves(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    harness
        .send(&work.run_request())
        .await?
        .expect_run_count(1)
        .map_err(|failure| failure.with_context("op run"))?;
    harness.expect_runs(&work.tag, 1).await.map_err(|failure| failure.with_context("op count"))?;
    let value = json!([null, true, 1, "ä", {"a": []}]);
    let echoed = harness.send(&harness.new_work().echo_request(&value)).await?;
    echoed.expect_output(&json!({"value": value})).map_err(|failure| failure.with_context("op echo"))
}

async fn duplicate(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let first = harness.send(&work.run_request()).await?;
    first.expect_run_count(1)?;
    for _ in 0..2 {
        harness.send(&work.run_request()).await?.expect_same_as(&first)?;
    }
    harness.expect_runs(&work.tag, 1).await
}

async fn duplicate_attempt(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let first = harness.send(&work.run_request()).await?;
    first.expect_run_count(1)?;
    let metadata = &work.metadata;
    let later = metadata.dispatched_at.plus(Duration::seconds(1));
    let others = [
        ("retry attempt 1", Metadata { retry_attempt: 1, ..metadata.clone() }),
        ("the highest retry attempt", Metadata { retry_attempt: u32::MAX, ..metadata.clone() }),
        ("a later dispatch time", Metadata { dispatched_at: later, ..metadata.clone() }),
        ("another correlation id", Metadata { correlation_id: "another".to_owned(), ..metadata.clone() }),
        ("no deadline", Metadata { deadline: None, ..metadata.clone() }),
        ("a parent item", Metadata { parent_item_id: Some("item-7".to_owned()), ..metadata.clone() }),
    ];
    for (case, metadata) in others {
        let again = harness.send(&work.with_metadata(metadata).run_request()).await?;
        again.expect_same_as(&first).map_err(|failure| failure.with_context(case))?;
    }
    harness.expect_runs(&work.tag, 1).await
}

async fn duplicate_input(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let other = harness.new_work();
    let first = harness.send(&work.run_request()).await?;
    first.expect_run_count(1)?;
    let again = harness.send(&other.with_metadata(work.metadata.clone()).run_request()).await?;
    again.expect_same_as(&first)?;
    harness.expect_runs(&other.tag, 0).await
}

async fn duplicates_at_once(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let request = work.wait_request(CONCURRENT_WAIT_MS);
    let responses = join_all((0..CONCURRENT_DUPLICATES).map(|_| harness.send(&request))).await;
    let mut finished = 0;
    for response in responses {
        let response = response?;
        if let ResponseOutcome::Output(_) = response.outcome {
            response.expect_run_count(1)?;
            finished += 1;
        } else {
            let busy = response.expect_failure(RpcCode::Aborted, Some(reason::IN_PROGRESS));
            busy.map_err(|failure| failure.with_context("the result of the duplicate that runs, or"))?;
        }
    }
    if finished == 0 {
        return Err(CheckFailure::violation("one duplicate that runs", "all were rejected as in progress"));
    }
    harness.expect_runs(&work.tag, 1).await?;
    harness
        .send(&request)
        .await?
        .expect_run_count(1)
        .map_err(|failure| failure.with_context("one more duplicate afterwards"))
}

async fn other_execution(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    harness.send(&work.run_request()).await?.expect_run_count(1)?;
    let execution_id = format!("{}-2", work.metadata.execution_id);
    let other = work.with_metadata(Metadata { execution_id, ..work.metadata.clone() });
    harness.send(&other.run_request()).await?.expect_run_count(2)?;
    harness.expect_runs(&work.tag, 2).await
}

async fn other_key(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    harness.send(&work.run_request()).await?.expect_run_count(1)?;
    let idempotency_key = format!("{}-2", work.metadata.idempotency_key);
    let other = work.with_metadata(Metadata { idempotency_key, ..work.metadata.clone() });
    harness.send(&other.run_request()).await?.expect_run_count(2)?;
    harness.expect_runs(&work.tag, 2).await
}
