//! Every planted fault is found by the check of its rule, and by no check of a rule that it does not break.

use std::time::Duration;

use crate::fault_injection::ReceiverFault;
use crate::fixture::{options, serve_with_fault};
use abide_conform::WireFormat::{Envelope, Grpc, Protobuf, Rest};
use abide_conform::{CheckVerdict, ConformError, ConformOptions, ConformReport, WireFormat, run};
use futures_util::future::join_all;

async fn report(fault: ReceiverFault, transport: WireFormat) -> ConformReport {
    run(&options(&serve_with_fault(fault).await, transport), |_| {}).await.unwrap()
}

fn failed(report: &ConformReport) -> Vec<&'static str> {
    let failed = report.checks.iter().filter(|report| matches!(report.verdict, CheckVerdict::Failed { .. }));
    failed.map(|report| report.check).collect()
}

/// Each fault, over its wire, must fail exactly these checks. A list that ends with `…` allows further failed checks.
async fn expect_violations(table: &[(ReceiverFault, WireFormat, &[&str])]) {
    let reports = table.iter().map(|(fault, transport, _)| report(*fault, *transport));
    let reports = join_all(reports).await;
    let mut wrong = String::new();
    for ((fault, transport, expected), report) in table.iter().zip(&reports) {
        let failed = failed(report);
        let is_expected = match expected.split_last() {
            Some((&"…", named)) => named.iter().all(|name| failed.contains(name)),
            _ => failed == *expected,
        };
        if !is_expected {
            wrong.push_str(&format!("{fault:?} over {transport:?}: {failed:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_the_identity_of_calls_are_found() {
    let forgets =
        &["duplicate", "duplicate-attempt", "duplicate-input", "duplicate-at-once", "failure-final", "…"];
    expect_violations(&[
        (ReceiverFault::ForgetsDuplicates, Rest, forgets),
        (ReceiverFault::ForgetsDuplicates, Protobuf, forgets),
        (ReceiverFault::ForgetsDuplicates, Grpc, forgets),
        (ReceiverFault::WritesAnswersAnew, Rest, &["duplicate", "failure-final", "…"]),
        (ReceiverFault::TakesAttemptsForWork, Rest, &["duplicate-attempt"]),
        (ReceiverFault::TakesInputsForWork, Rest, &["duplicate-input"]),
        (ReceiverFault::RunsDuplicatesAtOnce, Rest, &["duplicate-at-once"]),
        (ReceiverFault::RunsDuplicatesAtOnce, Grpc, &["duplicate-at-once"]),
        (ReceiverFault::IgnoresExecutions, Rest, &["other-execution"]),
        (ReceiverFault::IgnoresKeys, Rest, &["other-key"]),
        (ReceiverFault::NeverTheSameWithoutMetadata, Rest, &["metadata-none"]),
        (ReceiverFault::AllTheSameWithoutMetadata, Protobuf, &["metadata-none"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_deadlines_are_found() {
    expect_violations(&[
        (ReceiverFault::IgnoresDeadlines, Rest, &["deadline-expired", "…"]),
        (ReceiverFault::IgnoresDeadlines, Grpc, &["deadline-expired", "…"]),
        (ReceiverFault::RecordsDeadlines, Rest, &["deadline-not-recorded"]),
        (ReceiverFault::DemandsDeadlines, Protobuf, &["deadline-absent", "…"]),
        (ReceiverFault::LooksAtDeadlinesFirst, Rest, &["deadline-finished"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_metadata_are_found() {
    let numbers = &["metadata-sign", "metadata-digits", "metadata-blank-inside", "metadata-overflow"];
    expect_violations(&[
        (ReceiverFault::TakesTheFirstOfTwo, Rest, &["metadata-repeated"]),
        (ReceiverFault::TakesTheFirstOfTwo, Grpc, &["metadata-repeated"]),
        (ReceiverFault::TakesWrongNumbers, Rest, numbers),
        (ReceiverFault::TakesWrongNumbers, Grpc, numbers),
        (ReceiverFault::TakesAnyText, Rest, &["metadata-too-long", "metadata-not-ascii"]),
        (ReceiverFault::InventsIdentities, Rest, &["metadata-missing"]),
        (
            ReceiverFault::RefusesWithoutAWord,
            Rest,
            &["metadata-sign", "metadata-repeated", "metadata-missing", "…"],
        ),
        (ReceiverFault::TakesNamesByCase, Rest, &["header-case"]),
        (ReceiverFault::TakesNamesByCase, Protobuf, &["header-case"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_failures_are_found() {
    expect_violations(&[
        (ReceiverFault::RecordsEverything, Rest, &["failure-retryable", "status-unavailable", "…"]),
        (ReceiverFault::RecordsSuccessOnly, Rest, &["failure-final", "status-not-found", "…"]),
        (ReceiverFault::AnswersInternalForDataLoss, Rest, &["status-data-loss"]),
        (
            ReceiverFault::AnswersPlain500,
            Rest,
            &["status-not-found", "status-unavailable", "deadline-expired", "…"],
        ),
        (
            ReceiverFault::AnswersEverythingWith200,
            Rest,
            &["status-not-found", "failure-final", "deadline-expired", "…"],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_bodies_are_found() {
    expect_violations(&[
        (ReceiverFault::CutsPayloads, Rest, &["big-payload"]),
        (ReceiverFault::RefusesBigBodies, Rest, &["big-payload", "largest-input", "too-big"]),
        (ReceiverFault::BreaksOffBigBodies, Rest, &["too-big"]),
        (ReceiverFault::TakesAnySize, Rest, &["too-big"]),
        (ReceiverFault::AsksToTryTooBigAgain, Rest, &["too-big"]),
        (ReceiverFault::RunsUnknownActivities, Rest, &["activity-unknown"]),
        (ReceiverFault::TakesAnyContentType, Rest, &["content-type"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_in_envelopes_and_probes_are_found() {
    expect_violations(&[
        (ReceiverFault::TakesAnyVersion, Envelope, &["envelope-version"]),
        (ReceiverFault::ForgetsContexts, Envelope, &["envelope-answer"]),
        (ReceiverFault::BelievesContextsOnly, Envelope, &["envelope-disagreeing"]),
        (ReceiverFault::ProbesForgetful, Rest, &["probe-finished", "probe-in-progress"]),
        (ReceiverFault::ProbesForgetful, Protobuf, &["probe-finished", "probe-in-progress"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_probes_are_skipped_and_break_no_rule() {
    let report = report(ReceiverFault::IgnoresProbes, Rest).await;
    let skipped =
        report.checks.iter().filter(|report| matches!(report.verdict, CheckVerdict::Skipped { .. }));
    let skipped: Vec<&str> = skipped.map(|report| report.check).collect();
    assert_eq!(skipped, ["probe-unknown", "probe-finished", "probe-in-progress"]);
    assert!(report.is_conformant());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_kind_of_service_fails_the_first_check_and_the_others_are_skipped() {
    let report = report(ReceiverFault::IsSomebodyElse, Rest).await;
    assert_eq!(failed(&report), ["serves"]);
    assert_eq!(report.counts(), (0, 1, report.checks.len() - 1));
    let CheckVerdict::Failed { expected, found } = &report.checks[0].verdict else { unreachable!() };
    assert_eq!(
        (expected.as_str(), found.as_str()),
        (r#"op run: {"runs":1}"#, "200 a success whose output is not JSON")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_fails_checks_instead_of_hanging_them() {
    let short_timeouts = |url: &str| ConformOptions {
        exchange_timeout: Duration::from_millis(300),
        total_timeout: Duration::from_secs(2),
        ..options(url, Rest)
    };
    let hung = run(&short_timeouts(&serve_with_fault(ReceiverFault::Hangs).await), |_| {}).await.unwrap();
    let CheckVerdict::Failed { expected, found } = &hung.checks[0].verdict else { unreachable!() };
    assert_eq!((expected.as_str(), found.as_str()), ("a response", "no response within 300ms"));
    let at_times = run(&short_timeouts(&serve_with_fault(ReceiverFault::HangsOnDuplicates).await), |_| {})
        .await
        .unwrap();
    assert!(failed(&at_times).starts_with(&["duplicate", "duplicate-attempt", "duplicate-input"]));
    let last = &at_times.checks.last().unwrap().verdict;
    assert!(matches!(last, CheckVerdict::Failed { found, .. } if found == "timed out"), "{last:?}");
}

#[tokio::test]
async fn unreachable_receivers_invalid_urls_and_invalid_tokens_are_different_errors() {
    let unreachable = run(&options("http://127.0.0.1:1", Rest), |_| {}).await.unwrap_err();
    assert!(matches!(unreachable, ConformError::Unreachable { .. }), "{unreachable}");
    let invalid_url = run(&options("127.0.0.1:8081", Rest), |_| {}).await.unwrap_err();
    assert!(matches!(invalid_url, ConformError::Url(_)), "{invalid_url}");
    let invalid_token =
        ConformOptions { bearer_token: Some("a\nb".to_owned()), ..options("http://127.0.0.1:1", Rest) };
    assert_eq!(run(&invalid_token, |_| {}).await.unwrap_err(), ConformError::BearerToken);
}
