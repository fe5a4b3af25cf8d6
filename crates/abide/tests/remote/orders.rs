//! `suspend`, `resume`, `terminate`, `rewind`, `restart`, `purge` of one.

use serde_json::json;

use crate::world::{World, has};

#[test]
fn orders_are_told_and_reach_the_run_with_their_reason() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).ok();
    assert_eq!(world.abide(&["suspend", "g-1", "--reason", "a look"]).ok(), "suspended g-1\n");
    has(&world.abide(&["show", "g-1"]).ok(), &["g-1/1 Suspended\n"]);
    assert_eq!(world.abide(&["resume", "g-1"]).ok(), "resumed g-1\n");
    assert_eq!(world.abide(&["terminate", "g-1", "--reason", "enough"]).ok(), "terminated g-1\n");
    has(&world.abide(&["history", "g-1"]).ok(), &["suspended: a look\n", "terminated: enough\n"]);
    has(&world.abide(&["show", "g-1"]).ok(), &["g-1/1 Terminated", "  ○ Begin\n"]);
    assert_eq!(world.abide(&["restart", "g-1", "--json"]).json()[0]["executionId"], "g-1/2");
    assert_eq!(world.abide(&["terminate", "g-1", "--json"]).json()[0]["instanceId"], "g-1");
    assert_eq!(world.abide(&["restart", "g-1"]).ok(), "restarted as g-1/3\n");
    has(
        &world.abide(&["history", "g-1", "--run", "1"]).ok(),
        &["suspended: a look\n", "terminated: enough\n"],
    );
    has(&world.abide(&["history", "g-1", "--run", "4"]).with(1).err, &["g-1", "no run 4"]);
    has(&world.abide(&["history", "g-1", "--run", "0"]).with(2).err, &["--run"]);
}

#[test]
fn a_failed_run_goes_on_where_it_failed() {
    let world = World::new();
    let fails = json!({"type": "task", "activity": "core.fail", "input": {"code": "Broken", "message": "no", "retryable": false}, "next": "End"});
    world.publish("fails", "1.0.0", &json!({"Begin": fails, "End": {"type": "succeed"}}));
    world.abide(&["start", "fails", "--id", "f-1", "--wait", "30s"]).with(1);
    assert_eq!(world.abide(&["rewind", "f-1"]).ok(), "rewound f-1\n");
    has(&world.abide(&["history", "f-1"]).ok(), &["rewound (redrive 1)"]);
}

#[test]
fn nothing_is_forgotten_unasked() {
    let world = World::new();
    world.publish_all();
    world.abide(&["start", "echo", "--id", "e-1", "--wait", "30s"]).ok();
    let asked = world.abide(&["purge", "e-1"]).with(2);
    has(&asked.err, &["forgets e-1", "say --yes"]);
    world.abide(&["show", "e-1"]).ok();
    assert_eq!(world.abide(&["purge", "e-1", "--yes"]).ok(), "purged e-1\n");
    has(&world.abide(&["show", "e-1"]).with(1).err, &["e-1"]);
    has(&world.abide(&["purge"]).with(2).err, &["say which"]);
    has(&world.abide(&["purge", "e-1", "--status", "Failed"]).with(2).err, &["cannot be used with"]);
}
