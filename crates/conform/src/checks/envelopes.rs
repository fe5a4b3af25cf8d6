//! Rules for envelopes alone: their version, the context as metadata, headers that may repeat it, and their responses.

use abide_dispatch::status::reason;
use abide_dispatch::wire::envelope;
use abide_dispatch::{Metadata, RpcCode};
use serde_json::Value;

use super::ContractCheck;
use crate::harness::Harness;
use crate::test_request::{Deviation, SentMetadata, TestRequest};
use crate::violation::{CheckFailure, CheckResult};

pub(super) fn all() -> Vec<ContractCheck> {
    vec![
        ContractCheck::new(
            "envelope-version",
            "an envelope of another version is INVALID_ARGUMENT, PROTOCOL_UNSUPPORTED, and runs nothing",
            |harness| Box::pin(version(harness)),
        ),
        ContractCheck::new(
            "envelope-context",
            "the context is the metadata: headers may be omitted",
            |harness| Box::pin(context(harness)),
        ),
        ContractCheck::new(
            "envelope-answer",
            "a response is an envelope of the same version with the same context",
            |harness| Box::pin(answer(harness)),
        ),
        ContractCheck::new(
            "envelope-disagreeing",
            "headers that contradict the context are METADATA_MALFORMED, and nothing runs",
            |harness| Box::pin(disagreeing(harness)),
        ),
        ContractCheck::new(
            "envelope-types",
            "in a context, numbers are JSON numbers and texts are JSON strings, else METADATA_MALFORMED",
            |harness| Box::pin(types(harness)),
        ),
    ]
}

async fn version(harness: &Harness) -> CheckResult {
    for other in ["tpf.envelope.v2", ""] {
        let work = harness.new_work();
        let response = harness.send(&work.run_request().with_deviation(Deviation::Version(other))).await?;
        let rejected = response.expect_failure(RpcCode::InvalidArgument, Some(reason::PROTOCOL_UNSUPPORTED));
        rejected.map_err(|failure| failure.with_context(format!("{other:?}")))?;
        harness.expect_runs(&work.tag, 0).await?;
    }
    Ok(())
}

async fn context(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let without_headers =
        TestRequest { metadata: SentMetadata::ContextOnly(work.metadata.clone()), ..work.run_request() };
    let first = harness.send(&without_headers).await?;
    first.expect_run_count(1)?;
    harness
        .send(&work.run_request())
        .await?
        .expect_same_as(&first)
        .map_err(|failure| failure.with_context("the same call with headers"))?;
    harness.expect_runs(&work.tag, 1).await
}

async fn answer(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    for attempt in [0, 1] {
        let metadata = Metadata { retry_attempt: attempt, ..work.metadata.clone() };
        let response = harness.send(&work.with_metadata(metadata).run_request()).await?;
        response.expect_run_count(1)?;
        let envelope: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let field = |pointer: &str| envelope.pointer(pointer).cloned().unwrap_or_default();
        if field("/protocolVersion") != envelope::VERSION {
            return Err(CheckFailure::violation(
                format!("version {}", envelope::VERSION),
                field("/protocolVersion"),
            ));
        }
        for (pointer, sent) in [
            ("/control/context/executionId", Value::from(work.metadata.execution_id.as_str())),
            ("/control/context/idempotencyKey", Value::from(work.metadata.idempotency_key.as_str())),
            ("/control/context/retryAttempt", Value::from(attempt)),
        ] {
            if field(pointer) != sent {
                return Err(CheckFailure::violation(format!("{pointer} {sent}"), field(pointer)));
            }
        }
    }
    Ok(())
}

async fn disagreeing(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let metadata = &work.metadata;
    let others = [
        ("the key", Metadata { idempotency_key: "another".to_owned(), ..metadata.clone() }),
        ("the execution id", Metadata { execution_id: "another/1".to_owned(), ..metadata.clone() }),
        ("the attempt", Metadata { retry_attempt: 7, ..metadata.clone() }),
        ("the deadline", Metadata { deadline: None, ..metadata.clone() }),
    ];
    for (case, headers) in others {
        let disagreeing = SentMetadata::Disagreeing(metadata.clone(), headers);
        let response = harness.send(&TestRequest { metadata: disagreeing, ..work.run_request() }).await?;
        let rejected = response.expect_failure(RpcCode::InvalidArgument, Some(reason::METADATA_MALFORMED));
        rejected.map_err(|failure| failure.with_context(case))?;
    }
    harness.expect_runs(&work.tag, 0).await
}

async fn types(harness: &Harness) -> CheckResult {
    for (name, text) in [
        ("retryAttempt", "\"1\""),
        ("retryAttempt", "true"),
        ("deadlineEpochMs", "\"9000000000000\""),
        ("executionId", "7"),
        ("idempotencyKey", "7"),
        ("idempotencyKey", "[\"a\"]"),
    ] {
        let work = harness.new_work();
        let metadata = SentMetadata::RawContextFields(vec![(name, text)], work.metadata.clone());
        let response = harness.send(&TestRequest { metadata, ..work.run_request() }).await?;
        let rejected = response.expect_failure(RpcCode::InvalidArgument, Some(reason::METADATA_MALFORMED));
        rejected.map_err(|failure| failure.with_context(format!("{name} {text}")))?;
        harness.expect_runs(&work.tag, 0).await?;
    }
    Ok(())
}
