//! Every planted mistake is found by the check of its rule, and by no check of a rule that it leaves alone.

use std::time::Duration;

use crate::planted::Mistake;
use crate::world::{serve, setting};
use abide_conform::Wire::{Envelope, Grpc, Protobuf, Rest};
use abide_conform::{ConformError, Report, Setting, Verdict, Wire, run};
use futures_util::future::join_all;

async fn report(mistake: Mistake, transport: Wire) -> Report {
    run(&setting(&serve(mistake).await, transport), |_| {}).await.unwrap()
}

fn failed(report: &Report) -> Vec<&'static str> {
    let failed = report.findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Failed { .. }));
    failed.map(|finding| finding.check).collect()
}

/// Each of these mistakes, over this wire, is found by these checks, and by others only where the list ends with `…`.
async fn found(table: &[(Mistake, Wire, &[&str])]) {
    let reports = table.iter().map(|(mistake, transport, _)| report(*mistake, *transport));
    let reports = join_all(reports).await;
    let mut wrong = String::new();
    for ((mistake, transport, expected), report) in table.iter().zip(&reports) {
        let failed = failed(report);
        let as_expected = match expected.split_last() {
            Some((&"…", named)) => named.iter().all(|name| failed.contains(name)),
            _ => failed == *expected,
        };
        if !as_expected {
            wrong.push_str(&format!("{mistake:?} over {transport:?}: {failed:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_about_what_is_one_piece_of_work_are_found() {
    let forgets =
        &["duplicate", "duplicate-attempt", "duplicate-input", "duplicate-at-once", "failure-final", "…"];
    found(&[
        (Mistake::ForgetsDuplicates, Rest, forgets),
        (Mistake::ForgetsDuplicates, Protobuf, forgets),
        (Mistake::ForgetsDuplicates, Grpc, forgets),
        (Mistake::WritesAnswersAnew, Rest, &["duplicate", "failure-final", "…"]),
        (Mistake::TakesAttemptsForWork, Rest, &["duplicate-attempt"]),
        (Mistake::TakesInputsForWork, Rest, &["duplicate-input"]),
        (Mistake::RunsDuplicatesAtOnce, Rest, &["duplicate-at-once"]),
        (Mistake::RunsDuplicatesAtOnce, Grpc, &["duplicate-at-once"]),
        (Mistake::IgnoresExecutions, Rest, &["other-execution"]),
        (Mistake::IgnoresKeys, Rest, &["other-key"]),
        (Mistake::NeverTheSameWithoutMetadata, Rest, &["metadata-none"]),
        (Mistake::AllTheSameWithoutMetadata, Protobuf, &["metadata-none"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_about_deadlines_are_found() {
    found(&[
        (Mistake::IgnoresDeadlines, Rest, &["deadline-expired", "…"]),
        (Mistake::IgnoresDeadlines, Grpc, &["deadline-expired", "…"]),
        (Mistake::RecordsDeadlines, Rest, &["deadline-not-recorded"]),
        (Mistake::DemandsDeadlines, Protobuf, &["deadline-absent", "…"]),
        (Mistake::LooksAtDeadlinesFirst, Rest, &["deadline-finished"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_about_metadata_are_found() {
    let numbers = &["metadata-sign", "metadata-digits", "metadata-blank-inside", "metadata-overflow"];
    found(&[
        (Mistake::TakesTheFirstOfTwo, Rest, &["metadata-repeated"]),
        (Mistake::TakesTheFirstOfTwo, Grpc, &["metadata-repeated"]),
        (Mistake::TakesWrongNumbers, Rest, numbers),
        (Mistake::TakesWrongNumbers, Grpc, numbers),
        (Mistake::TakesAnyText, Rest, &["metadata-too-long", "metadata-not-ascii"]),
        (Mistake::InventsIdentities, Rest, &["metadata-missing"]),
        (
            Mistake::RefusesWithoutAWord,
            Rest,
            &["metadata-sign", "metadata-repeated", "metadata-missing", "…"],
        ),
        (Mistake::TakesNamesByCase, Rest, &["header-case"]),
        (Mistake::TakesNamesByCase, Protobuf, &["header-case"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_about_failures_are_found() {
    found(&[
        (Mistake::RecordsEverything, Rest, &["failure-retryable", "status-unavailable", "…"]),
        (Mistake::RecordsSuccessOnly, Rest, &["failure-final", "status-not-found", "…"]),
        (Mistake::AnswersInternalForDataLoss, Rest, &["status-data-loss"]),
        (
            Mistake::AnswersPlain500,
            Rest,
            &["status-not-found", "status-unavailable", "deadline-expired", "…"],
        ),
        (
            Mistake::AnswersEverythingWith200,
            Rest,
            &["status-not-found", "failure-final", "deadline-expired", "…"],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_about_bodies_are_found() {
    found(&[
        (Mistake::CutsPayloads, Rest, &["big-payload"]),
        (Mistake::RefusesBigBodies, Rest, &["big-payload", "largest-input", "too-big"]),
        (Mistake::BreaksOffBigBodies, Rest, &["too-big"]),
        (Mistake::TakesAnySize, Rest, &["too-big"]),
        (Mistake::AsksToTryTooBigAgain, Rest, &["too-big"]),
        (Mistake::RunsUnknownActivities, Rest, &["activity-unknown"]),
        (Mistake::TakesAnyContentType, Rest, &["content-type"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_about_envelopes_and_probes_are_found() {
    found(&[
        (Mistake::TakesAnyVersion, Envelope, &["envelope-version"]),
        (Mistake::ForgetsContexts, Envelope, &["envelope-answer"]),
        (Mistake::BelievesContextsOnly, Envelope, &["envelope-disagreeing"]),
        (Mistake::ProbesForgetful, Rest, &["probe-finished", "probe-in-progress"]),
        (Mistake::ProbesForgetful, Protobuf, &["probe-finished", "probe-in-progress"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_that_are_not_supported_are_skipped_and_break_no_rule() {
    let report = report(Mistake::IgnoresProbes, Rest).await;
    let skipped = report.findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Skipped { .. }));
    let skipped: Vec<&str> = skipped.map(|finding| finding.check).collect();
    assert_eq!(skipped, ["probe-unknown", "probe-finished", "probe-in-progress"]);
    assert!(report.is_conformant());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_somebody_else_breaks_the_first_rule_and_is_asked_no_further() {
    let report = report(Mistake::IsSomebodyElse, Rest).await;
    assert_eq!(failed(&report), ["serves"]);
    assert_eq!(report.counts(), (0, 1, report.findings.len() - 1));
    let Verdict::Failed { expected, found } = &report.findings[0].verdict else { unreachable!() };
    assert_eq!(
        (expected.as_str(), found.as_str()),
        (r#"op run: {"runs":1}"#, "200 a success whose output is not JSON")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_breaks_rules_instead_of_hanging_the_check() {
    let hurried = |url: &str| Setting {
        exchange_time_max: Duration::from_millis(300),
        whole_time_max: Duration::from_secs(2),
        ..setting(url, Rest)
    };
    let hung = run(&hurried(&serve(Mistake::Hangs).await), |_| {}).await.unwrap();
    let Verdict::Failed { expected, found } = &hung.findings[0].verdict else { unreachable!() };
    assert_eq!((expected.as_str(), found.as_str()), ("an answer", "none within 300ms"));
    let at_times = run(&hurried(&serve(Mistake::HangsOnDuplicates).await), |_| {}).await.unwrap();
    assert!(failed(&at_times).starts_with(&["duplicate", "duplicate-attempt", "duplicate-input"]));
    let last = &at_times.findings.last().unwrap().verdict;
    assert!(matches!(last, Verdict::Failed { found, .. } if found == "the time was up"), "{last:?}");
}

#[tokio::test]
async fn nobody_at_all_and_what_is_no_address_are_told_apart() {
    let nobody = run(&setting("http://127.0.0.1:1", Rest), |_| {}).await.unwrap_err();
    assert!(matches!(nobody, ConformError::Unreachable { .. }), "{nobody}");
    let nowhere = run(&setting("127.0.0.1:8081", Rest), |_| {}).await.unwrap_err();
    assert!(matches!(nowhere, ConformError::Place(_)), "{nowhere}");
    let wrong = Setting { bearer: Some("a\nb".to_owned()), ..setting("http://127.0.0.1:1", Rest) };
    assert_eq!(run(&wrong, |_| {}).await.unwrap_err(), ConformError::Bearer);
}
