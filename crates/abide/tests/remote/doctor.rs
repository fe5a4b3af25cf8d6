//! `doctor`: every check is made, and problems come with a hint.

use crate::testbed::{CliTestbed, assert_contains};

#[test]
fn a_running_server_has_no_errors() {
    let world = CliTestbed::new();
    let output = world.abide(&["doctor"]).expect_ok();
    assert_contains(
        &output,
        &["✓ data folder", "✓ layout       2 shards", "✓ lock         a process uses the folder"],
    );
    assert_contains(&output, &["✓ server       http://", "✓ clocks", "✓ readiness    ready", "errors: 0, "]);
    let findings = world.abide(&["doctor", "--json"]).json();
    assert!(
        findings.iter().all(|finding| finding["verdict"] != "error" && finding["check"].is_string()),
        "{findings:?}"
    );
}

#[test]
fn a_stopped_server_is_an_error_with_a_hint() {
    let mut world = CliTestbed::new();
    world.stop();
    let output = world.abide(&["doctor"]).expect_code(1);
    assert_contains(
        &output.out,
        &[
            "✗ server",
            "hint: start one with `abide serve`",
            "✓ lock         no process uses the folder",
            "errors: 1, ",
        ],
    );
    let output = world.abide(&["doctor", "--data", &world.path("none")]).expect_code(1);
    assert_contains(&output.out, &["! data folder", "does not exist"]);
}
