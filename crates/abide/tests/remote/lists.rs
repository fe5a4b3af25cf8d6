//! `list`, `stuck`, `stats`, `purge` by filter: commands that read eventually consistent tables.

use serde_json::json;

use crate::testbed::{CliTestbed, assert_contains};

#[test]
fn runs_are_listed_newest_first_and_by_filter() {
    let world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "echo", "--id", "e-1", "--entity-id", "d-1", "--wait", "30s"]).expect_ok();
    world
        .abide(&["start", "undone", "--id", "u-1", "--correlation-id", "c-1", "--wait", "30s"])
        .expect_code(1);
    world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    world.list_until(&["list", "--json"], 3);
    let output = world.abide(&["list"]).expect_ok();
    let rows: Vec<Vec<&str>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["RUN", "STATUS", "WORKFLOW", "VERSION", "AGE", "UPDATED", "ERROR"]);
    assert_eq!(rows.iter().skip(1).map(|row| row[0]).collect::<Vec<_>>(), ["g-1/1", "u-1/1", "e-1/1"]);
    assert_contains(&output, &["u-1/1  Failed     undone    1.0.0", "Lost: failed as asked, 1 of 1\n"]);

    for (args, id) in [
        (["--status", "Completed"], "e-1"),
        (["--workflow", "gate"], "g-1"),
        (["--correlation-id", "c-1"], "u-1"),
        (["--entity-id", "d-1"], "e-1"),
    ] {
        let found = world.list_until(&["list", "--json", args[0], args[1]], 1);
        assert_eq!(found[0]["instanceId"], id);
    }
    assert_eq!(world.abide(&["list", "--created-to", "1h"]).expect_ok(), "no runs\n");
    assert_eq!(world.abide(&["list", "--created-from", "1h", "--json", "--all"]).json().len(), 3);
    let cut = world.abide(&["list", "--limit", "2"]).expect_code(0);
    assert_eq!(
        (cut.out.lines().count(), cut.err.as_str()),
        (3, "abide: there are more; --limit N or --all shows them\n")
    );
    assert_eq!(world.abide(&["list", "--limit", "2", "--json"]).json().len(), 2);
    assert_contains(&world.abide(&["list", "--status", "Sleeping"]).expect_code(1).err, &["check status"]);
}

#[test]
fn ended_runs_are_counted_confirmed_and_purged_by_filter() {
    let world = CliTestbed::new();
    world.publish_all();
    for number in 0..3 {
        world.abide(&["start", "echo", "--id", &format!("e-{number}"), "--wait", "30s"]).expect_ok();
    }
    world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    world.list_until(&["list", "--json", "--status", "Completed"], 3);
    assert_eq!(
        world.abide(&["purge", "--workflow", "echo", "--dry-run"]).expect_ok(),
        "3 runs would be purged\n"
    );
    let unconfirmed = world.abide(&["purge", "--workflow", "echo"]).expect_code(2);
    assert_contains(&unconfirmed.err, &["This permanently deletes 3 runs and their history.", "pass --yes"]);
    let purged =
        world.abide(&["purge", "--status", "Completed", "--status", "Failed", "--yes", "--json"]).json();
    assert_eq!(purged, [json!({"matched": 3, "purged": 3})]);
    world.abide(&["show", "e-1"]).expect_code(1);
    world.abide(&["show", "g-1"]).expect_ok();
    world.list_until(&["list", "--json", "--workflow", "echo"], 0);
    assert_eq!(world.abide(&["purge", "--workflow", "echo", "--yes"]).expect_ok(), "0 of 0 runs purged\n");
}

#[test]
fn a_stuck_run_is_listed_with_what_it_waits_for() {
    let world = CliTestbed::new();
    assert_eq!(world.abide(&["stuck"]).expect_ok(), "no stuck runs\n");
    let definition = json!({
        "$schema": "workflow-schema-v1.json", "id": "slow", "version": "1.0.0", "startAt": "Begin",
        "configuration": {"stuckAfter": "PT1S"}, "states": crate::testbed::gate_states(),
    });
    let file = world.file("slow.json", &definition.to_string());
    world.abide(&["publish", &file]).expect_ok();
    world.abide(&["start", "slow", "--id", "s-1"]).expect_ok();
    let stuck = world.list_until(&["stuck", "--json"], 1);
    assert_eq!((&stuck[0]["instanceId"], &stuck[0]["waitingFor"][0]["event"]), (&json!("s-1"), &json!("Go")));
    assert_contains(
        &world.abide(&["stuck"]).expect_ok(),
        &["s-1", "slow", "Begin waits for the event \"Go\""],
    );
}

#[test]
fn stats_are_printed_as_text_and_json() {
    let world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    world.list_until(&["list", "--json"], 1);
    let output = world.abide(&["stats", "--shards"]).expect_ok();
    assert_contains(
        &output,
        &[
            "server       0.1.0, up for ",
            "runs         1 Running\n",
            "shards       2 of 2 active",
            "SHARD  IN MEMORY",
        ],
    );
    assert_contains(&output, &["store        embedded, operating-system\n"]);
    let json = world.abide(&["stats", "--json"]).json();
    assert_eq!(json[0]["instances"]["byStatus"]["Running"], 1);
}
