//! `workflows`: versions are listed, chosen and retired.

use serde_json::json;

use crate::world::{World, gate, has};

#[test]
fn versions_are_listed_chosen_and_retired() {
    let world = World::new();
    world.publish("gate", "1.0.0", &gate());
    world.publish("gate", "1.1.0", &gate());
    world.abide(&["start", "gate", "--version", "=1.0.0", "--id", "g-1"]).ok();
    has(&world.abide(&["workflows", "list"]).ok(), &["WORKFLOW", "DEFAULT VERSION", "gate"]);
    assert_eq!(world.abide(&["workflows", "list", "--json"]).json()[0]["id"], "gate");
    assert_eq!(world.abide(&["workflows", "default", "gate", "1.1.0"]).ok(), "gate runs 1.1.0 from now on\n");
    let versions = world.abide(&["workflows", "versions", "gate", "--json"]).json();
    let of = |version: &str| versions.iter().find(|one| one["version"] == version).unwrap().clone();
    assert_eq!((&of("1.1.0")["default"], &of("1.0.0")["default"]), (&json!(true), &json!(false)));
    assert_eq!((&of("1.0.0")["live"], &of("1.1.0")["live"]), (&json!(1), &json!(0)));
    has(&world.abide(&["workflows", "versions", "gate"]).ok(), &["VERSION", "LIVE RUNS", "default\n"]);
    has(&world.abide(&["workflows", "retire", "gate", "1.1.0"]).with(1).err, &["abide: "]);
    has(&world.abide(&["workflows", "retire", "gate", "1.0.0"]).with(1).err, &["abide: "]);
    world.abide(&["terminate", "g-1"]).ok();
    while world.abide(&["workflows", "retire", "gate", "1.0.0"]).code != 0 {
        std::thread::yield_now();
    }
    has(&world.abide(&["workflows", "versions", "gate"]).ok(), &["retired\n"]);
    has(&world.abide(&["workflows", "show", "gate", "--version", "1.1.0"]).ok(), &["gate"]);
    has(&world.abide(&["workflows", "versions", "nothing"]).with(1).err, &["nothing"]);
}
