//! `workflows`: versions are listed, made the default and retired.

use serde_json::json;

use crate::testbed::{CliTestbed, assert_contains, gate_states};

#[test]
fn versions_are_listed_made_the_default_and_retired() {
    let world = CliTestbed::new();
    world.publish("gate", "1.0.0", &gate_states());
    world.publish("gate", "1.1.0", &gate_states());
    world.abide(&["start", "gate", "--version", "=1.0.0", "--id", "g-1"]).expect_ok();
    assert_contains(
        &world.abide(&["workflows", "list"]).expect_ok(),
        &["WORKFLOW", "DEFAULT VERSION", "gate"],
    );
    assert_eq!(world.abide(&["workflows", "list", "--json"]).json()[0]["id"], "gate");
    assert_eq!(
        world.abide(&["workflows", "default", "gate", "1.1.0"]).expect_ok(),
        "gate: the default version is now 1.1.0\n"
    );
    let versions = world.abide(&["workflows", "versions", "gate", "--json"]).json();
    let of = |version: &str| versions.iter().find(|one| one["version"] == version).unwrap().clone();
    assert_eq!((&of("1.1.0")["default"], &of("1.0.0")["default"]), (&json!(true), &json!(false)));
    assert_eq!((&of("1.0.0")["live"], &of("1.1.0")["live"]), (&json!(1), &json!(0)));
    assert_contains(
        &world.abide(&["workflows", "versions", "gate"]).expect_ok(),
        &["VERSION", "LIVE RUNS", "default\n"],
    );
    assert_contains(&world.abide(&["workflows", "retire", "gate", "1.1.0"]).expect_code(1).err, &["abide: "]);
    assert_contains(&world.abide(&["workflows", "retire", "gate", "1.0.0"]).expect_code(1).err, &["abide: "]);
    world.abide(&["terminate", "g-1"]).expect_ok();
    while world.abide(&["workflows", "retire", "gate", "1.0.0"]).code != 0 {
        std::thread::yield_now();
    }
    assert_contains(&world.abide(&["workflows", "versions", "gate"]).expect_ok(), &["retired\n"]);
    assert_contains(
        &world.abide(&["workflows", "show", "gate", "--version", "1.1.0"]).expect_ok(),
        &["gate"],
    );
    assert_contains(&world.abide(&["workflows", "versions", "nothing"]).expect_code(1).err, &["nothing"]);
}
