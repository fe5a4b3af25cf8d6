//! The crash matrix of the examples: each case, the process stopped at every point every time it comes to one. Every test prints its part of
//! the table (`--no-capture` shows it). `ABIDE_MATRIX=all` stops the process a second time soon after it has come back: minutes, and only in a
//! release build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abide_runtime::planted::Bug;
use abide_sim::matrix::{Case, Children, Crashes, Line, Point, cases_of, folders, try_case};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn cases(example: &str, children: Children) -> Vec<Case> {
    let cases = cases_of(&examples().join(example), children).unwrap_or_default();
    assert!(!cases.is_empty(), "{example}");
    cases
}

/// All cases of an example: no crash makes a difference.
fn matrix(example: &str, children: Children) -> Vec<Line> {
    let all = std::env::var("ABIDE_MATRIX").is_ok_and(|what| what == "all");
    let crashes = if all { Crashes::Two } else { Crashes::One };
    let lines: Vec<Line> =
        cases(example, children).iter().map(|case| try_case(case, crashes, None)).collect();
    println!("{}", Line::HEAD);
    let mut told = Vec::new();
    for line in &lines {
        println!("{line}");
        told.extend(
            line.differences.iter().take(10).map(|difference| format!("{}: {difference}", line.case)),
        );
    }
    assert_eq!(told, Vec::<String>::new());
    assert!(lines.iter().all(|line| line.crash_runs > 20 && line.extra_attempts > 0));
    lines
}

#[test]
fn crash_matrix_no_crash_changes_device_onboarding() {
    matrix("device-onboarding", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_endless_sync() {
    matrix("endless-sync", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_fleet_health_check() {
    matrix("fleet-health-check", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_human_approval() {
    matrix("human-approval", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_key_rotation() {
    matrix("key-rotation", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_polling_loop() {
    let lines = matrix("polling-loop", Children::AsDefined);
    assert!(lines.iter().all(|line| line.times(Point::TimerFired) > 0));
}

#[test]
fn crash_matrix_no_crash_changes_quorum_write() {
    matrix("quorum-write", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_tenant_provisioning() {
    matrix("tenant-provisioning", Children::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_tenant_provisioning_with_its_child_on_another_shard() {
    let lines = matrix("tenant-provisioning", Children::Spread);
    for point in [Point::AfterPost, Point::AfterDrop] {
        assert!(lines.iter().all(|line| line.times(point) > 0), "{point:?}");
    }
}

#[test]
fn crash_matrix_has_every_example() {
    let there: BTreeSet<String> = folders(&examples())
        .unwrap()
        .iter()
        .filter(|folder| folder.join("workflow.json").exists())
        .map(|folder| folder.file_name().unwrap().to_string_lossy().replace('-', "_"))
        .collect();
    let source = include_str!("crash_matrix.rs");
    for example in there {
        assert!(source.contains(&format!("fn crash_matrix_no_crash_changes_{example}()")), "{example}");
    }
}

/// Mistakes that one process alone can show. Others need two owners of a shard, a store that does not answer, or a client that meddles.
#[test]
fn crash_matrix_finds_mistakes_that_are_planted() {
    let on = |example: &'static str, name: &'static str, children| move |bug| (bug, example, name, children);
    let steps = on("device-onboarding", "success", Children::AsDefined);
    let waits = on("device-onboarding", "timeout", Children::AsDefined);
    let rounds = on("endless-sync", "stop-carried-over", Children::AsDefined);
    let parent = on("tenant-provisioning", "success", Children::AsDefined);
    let spread = on("tenant-provisioning", "success", Children::Spread);
    for (bug, example, name, children) in [
        steps(Bug::EarlyAcknowledgement),
        waits(Bug::LostTimer),
        spread(Bug::DoubleDelivery),
        parent(Bug::EarlyDeletion),
        steps(Bug::EarlyCompletion),
        rounds(Bug::EventLostAtContinue),
        steps(Bug::StaleRecovery),
        steps(Bug::AttemptNotPersisted),
        parent(Bug::ChildEndDoubled),
        steps(Bug::StatusApart),
        rounds(Bug::KeyWithoutRun),
        steps(Bug::OrphansForgotten),
    ] {
        let case = cases(example, children).into_iter().find(|case| case.name == name).unwrap();
        let line = try_case(&case, Crashes::One, Some(bug));
        let first = line.differences.first().map(ToString::to_string).unwrap_or_default();
        println!("{bug:?}: {} differences in {} runs. {first}", line.differences.len(), line.crash_runs + 1);
        assert!(!line.differences.is_empty(), "{bug:?} makes no difference to {example}, {name}");
    }
}
