//! `backup` and `restore`: a copy is complete, overwrites nothing, and is checked before it is used. A running server
//! can be copied too.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::testbed::{CliTestbed, abide, assert_contains};

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
    assert!(!Path::new(&target).exists());
    let output = world.abide(&["backup", &world.path("second"), "--data", &empty]).expect_code(2);
    assert_contains(&output.err, &["abide.json"]);
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing was made in it");
}

/// Three clients start runs and raise their events while the server is copied. What was acknowledged before is in the
/// copy, and nothing in it is torn.
#[test]
fn a_server_is_copied_while_it_works() {
    let mut world = CliTestbed::new();
    world.publish_all();
    let url = world.url.clone();
    let copy = world.path("copy");
    let stop = AtomicBool::new(false);
    let acknowledged = Mutex::new(BTreeSet::new());
    let count = || acknowledged.lock().unwrap().len();
    let before = std::thread::scope(|scope| {
        for client in 0..3 {
            let (url, stop, acknowledged) = (&url, &stop, &acknowledged);
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let id = format!("load-{client}-{number}");
                    let run = |args: &[&str]| abide(args).args(["--url", url]).status().unwrap().success();
                    assert!(run(&["start", "gate", "--id", &id]));
                    acknowledged.lock().unwrap().insert(id.clone());
                    assert!(run(&["raise", &id, "Go", "7"]));
                }
            });
        }
        while count() < 30 {
            std::thread::yield_now();
        }
        let before = acknowledged.lock().unwrap().clone();
        let output = world.abide(&["backup", &copy, "--url", &url]);
        let during = count();
        while count() < during + 3 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        assert_contains(&output.expect_ok(), &["backed up to ", "bytes of rows; `abide restore "]);
        before
    });
    let output = world.abide(&["backup", &copy, "--url", &url]).expect_code(2);
    assert_contains(&output.err, &["already exists", "choose another folder"]);
    world.stop();
    let output = world.abide(&["backup", &world.path("second"), "--url", &url]).expect_code(3);
    assert_contains(&output.err, &["cannot connect"]);
    assert!(!Path::new(&world.path("second.making.partial")).exists(), "nothing is left");

    let checked = world.abide(&["fsck", "--data", &copy]).expect_ok();
    assert_contains(&checked, &[": 0 findings\n"]);
    std::fs::remove_dir_all(world.data()).unwrap();
    assert_contains(&world.abide(&["restore", &copy]).expect_ok(), &[" 0 findings\n"]);
    world.serve();
    let listed = world.abide(&["list", "--all", "--json"]).json();
    let listed: BTreeSet<String> =
        listed.iter().map(|run| run["instanceId"].as_str().unwrap().to_owned()).collect();
    assert!(before.is_subset(&listed), "missing: {:?}", before.difference(&listed).collect::<Vec<_>>());
}

fn assert_private(path: &Path) {
    let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let expected = if path.is_dir() { 0o700 } else { 0o600 };
    assert_eq!(mode, expected, "{}", path.display());
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| assert_private(&entry.unwrap().path()));
    }
}

#[test]
fn only_the_owner_can_read_a_data_folder_and_its_copies() {
    let mut world = CliTestbed::new();
    world.publish_all();
    world.abide(&["start", "gate", "--id", "g-1"]).expect_ok();
    assert_private(Path::new(&world.data()));
    let (streamed, copied, restored) = (world.path("streamed"), world.path("copied"), world.path("restored"));
    world.abide(&["backup", &streamed, "--url", &world.url]).expect_ok();
    world.stop();
    world.abide(&["backup", &copied]).expect_ok();
    // A copy that came from elsewhere may be readable for everybody.
    std::fs::set_permissions(format!("{copied}/FORMAT"), std::fs::Permissions::from_mode(0o644)).unwrap();
    world.abide(&["restore", &copied, "--data", &restored]).expect_ok();
    for folder in [&streamed, &restored, &world.data()] {
        assert_private(Path::new(folder));
    }
}
