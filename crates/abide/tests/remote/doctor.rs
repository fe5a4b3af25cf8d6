//! `doctor`: everything is looked at, and what is wrong comes with what to do.

use crate::world::{World, has};

#[test]
fn a_server_at_work_is_found_well() {
    let world = World::new();
    let told = world.abide(&["doctor"]).ok();
    has(&told, &["✓ data folder", "✓ layout       2 shards", "✓ lock         a process has the folder"]);
    has(&told, &["✓ server       http://", "✓ clocks", "✓ readiness    ready", "0 to mend"]);
    let findings = world.abide(&["doctor", "--json"]).json();
    assert!(
        findings.iter().all(|finding| finding["verdict"] != "bad" && finding["check"].is_string()),
        "{findings:?}"
    );
}

#[test]
fn a_server_that_is_gone_is_found_with_what_to_do() {
    let mut world = World::new();
    world.stop();
    let told = world.abide(&["doctor"]).with(1);
    has(
        &told.out,
        &[
            "✗ server",
            "do: start one with `abide serve`",
            "✓ lock         nobody has the folder",
            "1 to mend",
        ],
    );
    let told = world.abide(&["doctor", "--data", &world.path("none")]).with(1);
    has(&told.out, &["! data folder", "is not there"]);
}
