//! `backup` and `restore`: a copy is complete, overwrites nothing, and is checked before it is used.

use serde_json::{Value, json};

use crate::testbed::{CliTestbed, assert_contains};

#[test]
fn a_restored_copy_continues_where_it_was_made() {
    let mut world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    let data = world.data();
    let copy = world.path("copy");
    let other = world.path("other");
    let output = world.abide(&["backup", &copy]).expect_code(2);
    assert_contains(&output.err, &["in use by another process", "stop the server first"]);
    world.stop();
    assert_contains(
        &world.abide(&["backup", &copy]).expect_ok(),
        &["backed up to ", "bytes of rows; `abide restore "],
    );
    assert_eq!(std::fs::read_to_string(format!("{copy}/abide.json")).unwrap(), "{\"shards\":2}\n");

    let output = world.abide(&["backup", &copy]).expect_code(2);
    assert_contains(&output.err, &["already exists", "choose another folder"]);
    let output = world.abide(&["restore", &copy]).expect_code(2);
    assert_contains(&output.err, &["already exists"]);
    let restored: Value =
        serde_json::from_str(&world.abide(&["restore", &copy, "--data", &other, "--json"]).expect_ok())
            .unwrap();
    assert_eq!(restored, json!({"folder": other, "instances": 1, "live": 1, "findings": 0}));

    std::fs::remove_dir_all(&data).unwrap();
    assert_contains(
        &world.abide(&["restore", &copy]).expect_ok(),
        &["restored to ", ": 1 instances (1 live), 0 findings\n"],
    );
    world.serve();
    world.abide(&["raise", "g-1", "Go", "7"]).expect_ok();
    assert_contains(&world.abide(&["show", "g-1"]).expect_ok(), &["g-1/1 Completed with 7"]);
}

#[test]
fn an_invalid_copy_is_not_restored_and_leaves_nothing() {
    let mut world = CliTestbed::new();
    world.stop();
    let empty = world.path("empty");
    let copy = world.path("copy");
    let target = world.path("target");
    std::fs::create_dir(&empty).unwrap();
    let output = world.abide(&["restore", &empty, "--data", &target]).expect_code(2);
    assert_contains(&output.err, &["abide.json", "give a folder that"]);
    world.abide(&["backup", &copy, "--json"]).expect_ok();
    std::fs::write(format!("{copy}/FORMAT"), "nonsense").unwrap();
    let output = world.abide(&["restore", &copy, "--data", &target]).expect_code(2);
    assert_contains(&output.err, &["the copy cannot be used", "FORMAT"]);
    assert!(!std::path::Path::new(&target).exists());
    let output = world.abide(&["backup", &world.path("second"), "--data", &empty]).expect_code(2);
    assert_contains(&output.err, &["abide.json"]);
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing was made in it");
}
