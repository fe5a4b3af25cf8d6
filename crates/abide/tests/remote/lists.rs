//! `list`, `stuck`, `stats`, `purge` by filter: what is read from tables that follow what happened.

use serde_json::json;

use crate::world::{World, has};

#[test]
fn runs_are_listed_newest_first_and_by_filter() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "echo", "--id", "e-1", "--entity-id", "d-1", "--wait", "30s"]).ok();
    world.abide(&["start", "undone", "--id", "u-1", "--correlation-id", "c-1", "--wait", "30s"]).with(1);
    world.abide(&["start", "gate", "--id", "g-1"]).ok();
    world.list_until(&["list", "--json"], 3);
    let told = world.abide(&["list"]).ok();
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["RUN", "STATUS", "WORKFLOW", "VERSION", "AGE", "MOVED", "ERROR"]);
    assert_eq!(rows.iter().skip(1).map(|row| row[0]).collect::<Vec<_>>(), ["g-1/1", "u-1/1", "e-1/1"]);
    has(&told, &["u-1/1  Failed     undone    1.0.0", "Lost: failed as asked, 1 of 1\n"]);

    for (args, id) in [
        (["--status", "Completed"], "e-1"),
        (["--workflow", "gate"], "g-1"),
        (["--correlation-id", "c-1"], "u-1"),
        (["--entity-id", "d-1"], "e-1"),
    ] {
        let found = world.list_until(&["list", "--json", args[0], args[1]], 1);
        assert_eq!(found[0]["instanceId"], id);
    }
    assert_eq!(world.abide(&["list", "--created-to", "1h"]).ok(), "no runs\n");
    assert_eq!(world.abide(&["list", "--created-from", "1h", "--json", "--all"]).json().len(), 3);
    let cut = world.abide(&["list", "--limit", "2"]).with(0);
    assert_eq!(
        (cut.out.lines().count(), cut.err.as_str()),
        (3, "abide: there are more; --limit N or --all shows them\n")
    );
    assert_eq!(world.abide(&["list", "--limit", "2", "--json"]).json().len(), 2);
    has(&world.abide(&["list", "--status", "Sleeping"]).with(1).err, &["look at status"]);
}

#[test]
fn ended_runs_are_counted_asked_for_and_purged_by_filter() {
    let world = World::new();
    world.publish_all();
    for number in 0..3 {
        world.abide(&["start", "echo", "--id", &format!("e-{number}"), "--wait", "30s"]).ok();
    }
    world.abide(&["start", "gate", "--id", "g-1"]).ok();
    world.list_until(&["list", "--json", "--status", "Completed"], 3);
    assert_eq!(world.abide(&["purge", "--workflow", "echo", "--dry-run"]).ok(), "3 runs would be purged\n");
    let asked = world.abide(&["purge", "--workflow", "echo"]).with(2);
    has(&asked.err, &["This forgets 3 runs and their history for good.", "say --yes"]);
    let purged =
        world.abide(&["purge", "--status", "Completed", "--status", "Failed", "--yes", "--json"]).json();
    assert_eq!(purged, [json!({"matched": 3, "purged": 3})]);
    world.abide(&["show", "e-1"]).with(1);
    world.abide(&["show", "g-1"]).ok();
    world.list_until(&["list", "--json", "--workflow", "echo"], 0);
    assert_eq!(world.abide(&["purge", "--workflow", "echo", "--yes"]).ok(), "0 of 0 runs purged\n");
}

#[test]
fn a_run_past_its_time_is_told_with_what_it_waits_for() {
    let world = World::new();
    assert_eq!(world.abide(&["stuck"]).ok(), "no stuck runs\n");
    let definition = json!({
        "$schema": "workflow-schema-v1.json", "id": "slow", "version": "1.0.0", "startAt": "Begin",
        "configuration": {"stuckAfter": "PT1S"}, "states": crate::world::gate(),
    });
    let file = world.file("slow.json", &definition.to_string());
    world.abide(&["publish", &file]).ok();
    world.abide(&["start", "slow", "--id", "s-1"]).ok();
    let found = world.list_until(&["stuck", "--json"], 1);
    assert_eq!((&found[0]["instanceId"], &found[0]["waitingFor"][0]["event"]), (&json!("s-1"), &json!("Go")));
    has(&world.abide(&["stuck"]).ok(), &["s-1", "slow", "Begin waits for the event \"Go\""]);
}

#[test]
fn stats_are_told_in_words() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).ok();
    world.list_until(&["list", "--json"], 1);
    let told = world.abide(&["stats", "--shards"]).ok();
    has(
        &told,
        &[
            "server       0.1.0, up for ",
            "runs         1 Running\n",
            "shards       2 of 2 at work",
            "SHARD  IN MEMORY",
        ],
    );
    has(&told, &["store        embedded, operating-system\n"]);
    let json = world.abide(&["stats", "--json"]).json();
    assert_eq!(json[0]["instances"]["byStatus"]["Running"], 1);
}
