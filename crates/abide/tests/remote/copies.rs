//! `backup` and `restore`: a copy has everything, replaces nothing, and is proved before it is used.

use serde_json::{Value, json};

use crate::world::{World, has};

#[test]
fn a_copy_put_back_goes_on_where_it_was_made() {
    let mut world = World::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).ok();
    let (data, copy, other) = (world.data(), world.path("copy"), world.path("other"));
    let told = world.abide(&["backup", &copy]).with(2);
    has(&told.err, &["in use by another process", "stop the server first"]);
    world.stop();
    has(&world.abide(&["backup", &copy]).ok(), &["backed up to ", "bytes of rows; `abide restore "]);
    assert_eq!(std::fs::read_to_string(format!("{copy}/abide.json")).unwrap(), "{\"shards\":2}\n");

    let told = world.abide(&["backup", &copy]).with(2);
    has(&told.err, &["exists already", "choose another folder"]);
    let told = world.abide(&["restore", &copy]).with(2);
    has(&told.err, &["exists already"]);
    let restored: Value =
        serde_json::from_str(&world.abide(&["restore", &copy, "--data", &other, "--json"]).ok()).unwrap();
    assert_eq!(restored, json!({"folder": other, "instances": 1, "live": 1, "findings": 0}));

    std::fs::remove_dir_all(&data).unwrap();
    has(&world.abide(&["restore", &copy]).ok(), &["restored to ", ": 1 instances (1 live), 0 findings\n"]);
    world.serve();
    world.abide(&["raise", "g-1", "Go", "7"]).ok();
    has(&world.abide(&["show", "g-1"]).ok(), &["g-1/1 Completed with 7"]);
}

#[test]
fn what_is_no_copy_is_not_put_back_and_leaves_nothing() {
    let mut world = World::new();
    world.stop();
    let (empty, copy, target) = (world.path("empty"), world.path("copy"), world.path("target"));
    std::fs::create_dir(&empty).unwrap();
    let told = world.abide(&["restore", &empty, "--data", &target]).with(2);
    has(&told.err, &["abide.json", "is it the folder that"]);
    world.abide(&["backup", &copy, "--json"]).ok();
    std::fs::write(format!("{copy}/FORMAT"), "nonsense").unwrap();
    let told = world.abide(&["restore", &copy, "--data", &target]).with(2);
    has(&told.err, &["what was copied cannot be used", "FORMAT"]);
    assert!(!std::path::Path::new(&target).exists());
    let told = world.abide(&["backup", &world.path("second"), "--data", &empty]).with(2);
    has(&told.err, &["abide.json"]);
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing was made in it");
}
