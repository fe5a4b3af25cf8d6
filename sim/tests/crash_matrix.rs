//! The crash matrix of the examples: each case, the process stopped at every point every time it comes to one.

use std::path::Path;

use abide_sim::matrix::{Children, Line, Point, cases_of, folders, try_case};

fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn matrix(example: &str, children: Children) -> Vec<Line> {
    let mut lines = Vec::new();
    for case in cases_of(&examples().join(example), children).unwrap() {
        lines.push(try_case(&case, None));
    }
    println!("{}", Line::HEAD);
    for line in &lines {
        println!("{line}");
        for (crash, what) in line.differences.iter().take(10) {
            match crash {
                Some(crash) => println!("    {crash}: {what}"),
                None => println!("    without a crash: {what}"),
            }
        }
    }
    assert!(lines.iter().all(|line| line.differences.is_empty()));
    lines
}

#[test]
fn crash_matrix_of_device_onboarding() {
    matrix("device-onboarding", Children::AsDefined);
}
#[test]
fn crash_matrix_of_endless_sync() {
    matrix("endless-sync", Children::AsDefined);
}
#[test]
fn crash_matrix_of_fleet() {
    matrix("fleet-health-check", Children::AsDefined);
}
#[test]
fn crash_matrix_of_human() {
    matrix("human-approval", Children::AsDefined);
}
#[test]
fn crash_matrix_of_key() {
    matrix("key-rotation", Children::AsDefined);
}
#[test]
fn crash_matrix_of_polling() {
    matrix("polling-loop", Children::AsDefined);
}
#[test]
fn crash_matrix_of_quorum() {
    matrix("quorum-write", Children::AsDefined);
}
#[test]
fn crash_matrix_of_tenant() {
    matrix("tenant-provisioning", Children::AsDefined);
}
#[test]
fn crash_matrix_of_tenant_spread() {
    matrix("tenant-provisioning", Children::Spread);
}
