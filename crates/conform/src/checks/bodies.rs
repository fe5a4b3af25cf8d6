//! Rules for bodies: how large and how deeply nested they may be, and how a receiver rejects invalid ones.

use abide_dispatch::RpcCode;
use abide_dispatch::status::reason;
use abide_dispatch::wire::{INPUT_BYTES_MAX, JSON_DEPTH_MAX};
use bytes::Bytes;
use serde_json::{Value, json};

use super::ContractCheck;
use crate::WireFormat;
use crate::harness::{Harness, TestWork};
use crate::response::ResponseOutcome;
use crate::test_request::{Deviation, RequestContent, TestRequest};
use crate::violation::{CheckFailure, CheckResult};

/// A size that every receiver must accept and return.
const BIG_BYTES: usize = 256 * 1024;
/// A size that no receiver may accept, whatever the encoding adds.
const TOO_BIG_BYTES: usize = INPUT_BYTES_MAX + 128 * 1024;
/// An activity that no receiver serves.
const UNKNOWN_ACTIVITY: &str = "abide-conform.not-served";

pub(super) fn all(transport: WireFormat) -> Vec<ContractCheck> {
    let mut all = vec![
        ContractCheck::new(
            "big-payload",
            "256 KiB arrive unchanged in both directions, for a duplicate as well",
            |harness| Box::pin(big(harness)),
        ),
        ContractCheck::new("largest-input", "an input of 3.5 MiB is accepted", |harness| {
            Box::pin(largest(harness))
        }),
        ContractCheck::new(
            "too-big",
            "a larger body fails permanently with OUT_OF_RANGE, and runs nothing",
            |harness| Box::pin(too_big(harness)),
        ),
        ContractCheck::new(
            "nesting",
            "JSON nested 64 deep is accepted; deeper is INVALID_ARGUMENT, and nothing runs",
            |harness| Box::pin(nesting(harness)),
        ),
        ContractCheck::new("body-malformed", "a body that cannot be read is INVALID_ARGUMENT", |harness| {
            Box::pin(malformed(harness))
        }),
        ContractCheck::new(
            "input-unknown",
            "an input that the activity does not support is INVALID_ARGUMENT",
            |harness| Box::pin(unknown_input(harness)),
        ),
        ContractCheck::new("activity-unknown", "an activity that is not served is NOT_FOUND", |harness| {
            Box::pin(unknown_activity(harness))
        }),
    ];
    if transport != WireFormat::Grpc {
        all.push(ContractCheck::new(
            "content-type",
            "an unsupported content type is 415, and nothing runs",
            |harness| Box::pin(content_type(harness)),
        ));
    }
    all
}

async fn big(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let value = Value::from("x".repeat(BIG_BYTES));
    let first = harness.send(&work.echo_request(&value)).await?;
    first.expect_output(&json!({"value": value}))?;
    harness.send(&work.echo_request(&value)).await?.expect_same_as(&first)
}

/// A request to run whose input is padded with spaces to this many bytes.
fn padded(work: &TestWork, bytes: usize) -> TestRequest {
    let text = json!({"op": "run", "tag": work.tag}).to_string();
    let blanks = " ".repeat(bytes.saturating_sub(text.len()));
    let text = format!("{}{blanks}}}", text.strip_suffix('}').unwrap_or(&text));
    work.run_request().with_content(RequestContent::RawInput(text.into()))
}

async fn largest(harness: &Harness) -> CheckResult {
    harness.send(&padded(&harness.new_work(), INPUT_BYTES_MAX)).await?.expect_run_count(1)
}

async fn too_big(harness: &Harness) -> CheckResult {
    let work = harness.new_work();
    let response = harness.send(&padded(&work, TOO_BIG_BYTES)).await?;
    // Over gRPC the library rejects the message, with its own reason.
    let reason = Some(reason::BODY_TOO_LARGE).filter(|_| harness.transport != WireFormat::Grpc);
    response.expect_failure_with_http(RpcCode::OutOfRange, reason, 413)?;
    harness.expect_runs(&work.tag, 0).await
}

async fn nesting(harness: &Harness) -> CheckResult {
    // The input itself is the outermost level.
    let nested = |depth: usize| {
        let text = format!("{}{}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        RequestContent::RawInput(format!(r#"{{"op":"echo","value":{text}}}"#).into())
    };
    let deepest = harness.new_work().run_request().with_content(nested(JSON_DEPTH_MAX));
    let response = harness.send(&deepest).await?;
    if !matches!(response.outcome, ResponseOutcome::Output(_)) {
        return Err(CheckFailure::violation(format!("{JSON_DEPTH_MAX} deep: the same value back"), response));
    }
    let response =
        harness.send(&harness.new_work().run_request().with_content(nested(JSON_DEPTH_MAX + 1))).await?;
    let rejected = response.expect_failure(RpcCode::InvalidArgument, Some(reason::BODY_MALFORMED));
    rejected.map_err(|failure| failure.with_context(format!("{} deep", JSON_DEPTH_MAX + 1)))
}

async fn malformed(harness: &Harness) -> CheckResult {
    let text = |text: &'static str| RequestContent::RawInput(Bytes::from_static(text.as_bytes()));
    let mut wrong = vec![
        ("incomplete JSON", text("{\"op\":")),
        ("JSON followed by more", text("{} {}")),
        ("not UTF-8", RequestContent::RawInput(Bytes::from_static(b"\"\xff\""))),
    ];
    if harness.transport != WireFormat::Grpc {
        wrong.push((
            "not a body of this wire",
            RequestContent::RawBody(Bytes::from_static(b"\xff\xff not a body")),
        ));
    }
    for (case, content) in wrong {
        let response = harness.send(&harness.new_work().run_request().with_content(content)).await?;
        let rejected = response.expect_failure(RpcCode::InvalidArgument, Some(reason::BODY_MALFORMED));
        rejected.map_err(|failure| failure.with_context(case))?;
    }
    Ok(())
}

async fn unknown_input(harness: &Harness) -> CheckResult {
    for input in [json!({"op": "dance"}), json!({"op": "run"}), json!({}), json!(null), json!("run")] {
        let case = input.to_string();
        let response = harness
            .send(&harness.new_work().run_request().with_content(RequestContent::Input(input)))
            .await?;
        response
            .expect_failure(RpcCode::InvalidArgument, None)
            .map_err(|failure| failure.with_context(case))?;
    }
    Ok(())
}

async fn unknown_activity(harness: &Harness) -> CheckResult {
    let response = harness
        .send(&harness.new_work().run_request().with_deviation(Deviation::Activity(UNKNOWN_ACTIVITY)))
        .await?;
    // A router in front of the activities may return its own 404.
    if response.http_status == Some(404) && matches!(response.outcome, ResponseOutcome::Unrecognized(_)) {
        return Ok(());
    }
    response.expect_failure(RpcCode::NotFound, Some(reason::ACTIVITY_UNKNOWN))
}

async fn content_type(harness: &Harness) -> CheckResult {
    for other in ["text/plain", "application/octet-stream"] {
        let work = harness.new_work();
        let response =
            harness.send(&work.run_request().with_deviation(Deviation::ContentType(other))).await?;
        if response.http_status != Some(415) {
            return Err(CheckFailure::violation(format!("{other}: 415"), response));
        }
        harness.expect_runs(&work.tag, 0).await.map_err(|failure| failure.with_context(other))?;
    }
    Ok(())
}
