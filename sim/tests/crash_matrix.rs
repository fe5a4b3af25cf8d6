//! The crash matrix of the examples: each case is played once for every time it reaches a crash point, and the process
//! crashes there. Every test prints its part of the table (`--no-capture` shows it).
//!
//! `ABIDE_MATRIX=all` crashes the process a second time soon after it has restarted. Use a release build for it: it
//! takes minutes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abide_runtime::fault_injection::Fault;
use abide_sim::matrix::{
    Case, CaseReport, ChildPlacement, CrashesPerRun, MatrixCrashPoint, folders, load_cases, try_case,
};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn cases(example: &str, children: ChildPlacement) -> Vec<Case> {
    let cases = load_cases(&examples().join(example), children).unwrap_or_default();
    assert!(!cases.is_empty(), "{example}");
    cases
}

/// Plays all cases of an example and checks that no crash makes a difference.
fn matrix(example: &str, children: ChildPlacement) -> Vec<CaseReport> {
    let all = std::env::var("ABIDE_MATRIX").is_ok_and(|what| what == "all");
    let crashes = if all { CrashesPerRun::Two } else { CrashesPerRun::One };
    let lines: Vec<CaseReport> =
        cases(example, children).iter().map(|case| try_case(case, crashes, None)).collect();
    println!("{}", CaseReport::TABLE_HEADER);
    let mut differences = Vec::new();
    for line in &lines {
        println!("{line}");
        differences.extend(
            line.differences.iter().take(10).map(|difference| format!("{}: {difference}", line.case)),
        );
    }
    assert_eq!(differences, Vec::<String>::new());
    assert!(lines.iter().all(|line| line.crash_runs > 20 && line.extra_attempts > 0));
    lines
}

#[test]
fn crash_matrix_no_crash_changes_device_onboarding() {
    matrix("device-onboarding", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_endless_sync() {
    matrix("endless-sync", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_fleet_health_check() {
    matrix("fleet-health-check", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_human_approval() {
    matrix("human-approval", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_key_rotation() {
    matrix("key-rotation", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_polling_loop() {
    let lines = matrix("polling-loop", ChildPlacement::AsDefined);
    assert!(lines.iter().all(|line| line.times_reached(MatrixCrashPoint::TimerFired) > 0));
}

#[test]
fn crash_matrix_no_crash_changes_quorum_write() {
    matrix("quorum-write", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_tenant_provisioning() {
    matrix("tenant-provisioning", ChildPlacement::AsDefined);
}

#[test]
fn crash_matrix_no_crash_changes_tenant_provisioning_with_its_child_on_another_shard() {
    let lines = matrix("tenant-provisioning", ChildPlacement::Spread);
    for point in [MatrixCrashPoint::AfterRunMessage, MatrixCrashPoint::AfterInboundDelete] {
        assert!(lines.iter().all(|line| line.times_reached(point) > 0), "{point:?}");
    }
}

#[test]
fn crash_matrix_has_every_example() {
    let names: BTreeSet<String> = folders(&examples())
        .unwrap()
        .iter()
        .filter(|folder| folder.join("workflow.json").exists())
        .map(|folder| folder.file_name().unwrap().to_string_lossy().replace('-', "_"))
        .collect();
    let source = include_str!("crash_matrix.rs");
    for example in names {
        assert!(source.contains(&format!("fn crash_matrix_no_crash_changes_{example}()")), "{example}");
    }
}

/// Faults that one process alone can show. Others need two owners of a shard, a store that does not answer, or more
/// requests from clients.
#[test]
fn crash_matrix_finds_planted_faults() {
    let on =
        |example: &'static str, name: &'static str, children| move |fault| (fault, example, name, children);
    let steps = on("device-onboarding", "success", ChildPlacement::AsDefined);
    let waits = on("device-onboarding", "timeout", ChildPlacement::AsDefined);
    let rounds = on("endless-sync", "stop-carried-over", ChildPlacement::AsDefined);
    let parent = on("tenant-provisioning", "success", ChildPlacement::AsDefined);
    let spread = on("tenant-provisioning", "success", ChildPlacement::Spread);
    for (fault, example, name, children) in [
        steps(Fault::EarlyReply),
        waits(Fault::LostTimer),
        spread(Fault::DuplicateMessage),
        parent(Fault::MessageDeletedEarly),
        steps(Fault::EarlyCompletion),
        rounds(Fault::EventLostAtContinue),
        steps(Fault::StaleRecovery),
        steps(Fault::AttemptNotPersisted),
        parent(Fault::ChildEndDoubled),
        steps(Fault::InstanceRowNotWritten),
        rounds(Fault::KeyWithoutRun),
        steps(Fault::OrphanedCallsLost),
    ] {
        let case = cases(example, children).into_iter().find(|case| case.name == name).unwrap();
        let line = try_case(&case, CrashesPerRun::One, Some(fault));
        let first = line.differences.first().map(ToString::to_string).unwrap_or_default();
        println!(
            "{fault:?}: {} differences in {} runs. {first}",
            line.differences.len(),
            line.crash_runs + 1
        );
        assert!(!line.differences.is_empty(), "{fault:?} makes no difference to {example}, {name}");
    }
}
