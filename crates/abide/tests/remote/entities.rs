//! `entity`, `route`, `send`, `dlq`: events in, what holds them, and what could not be routed.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::world::{World, has};

#[test]
fn an_entity_is_called_shown_and_listed() {
    let world = World::new();
    let told = world.abide(&["entity", "call", "device", "d 1", "RecordEvent", "{\"t\": 20}"]).ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["position"].is_u64(), "{told}");
    for _ in 0..2 {
        world
            .abide(&[
                "entity",
                "call",
                "device",
                "d 1",
                "RecordEvent",
                "{\"t\": 21}",
                "--key",
                "twice-is-once",
            ])
            .ok();
    }
    let events = world.abide(&["entity", "events", "device", "d 1", "--json"]).json();
    assert_eq!(events.iter().map(|event| &event["event"]["t"]).collect::<Vec<_>>(), [&json!(20), &json!(21)]);
    has(&world.abide(&["entity", "events", "device", "d 1"]).ok(), &["POSITION", "RECORDED", "{\"t\":20}\n"]);
    has(&world.abide(&["entity", "show", "device", "d 1"]).ok(), &["device d 1\n", "  events       2\n"]);
    assert_eq!(world.abide(&["entity", "show", "device", "d 1", "--json"]).json()[0]["eventCount"], 2);
    let listed = world.list_until(&["entity", "list", "--type", "device", "--json"], 1);
    assert_eq!(listed[0]["entityKey"], "d 1");
    has(&world.abide(&["entity", "list"]).ok(), &["TYPE", "device"]);
    world.abide(&["entity", "show", "device", "nobody"]).with(1);
    world.abide(&["entity", "call", "device", "d 1", "Dance"]).with(1);
    let cleared = world.abide(&["entity", "call", "device", "d 1", "Clear", "--json"]).json();
    assert_eq!(cleared[0]["output"]["cleared"], 2);
}

#[test]
fn events_are_routed_sent_recognised_and_dead_lettered() {
    let world = World::new();
    world.publish_all();
    let put =
        ["route", "put", "reading", "--entity-type", "device", "--workflow", "gate", "--event-name", "Go"];
    assert_eq!(world.abide(&put).ok(), "reading is routed\n");
    has(
        &world.abide(&["route", "list"]).ok(),
        &["EVENT TYPE", "reading     device       startOrRaise  gate"],
    );
    assert_eq!(world.abide(&["route", "list", "--json"]).json()[0]["eventType"], "reading");

    let send = [
        "send",
        "--type",
        "reading",
        "--source",
        "s",
        "--id",
        "1",
        "--subject",
        "d-1",
        "--data",
        "{\"t\": 20}",
    ];
    assert_eq!(world.abide(&send).ok(), "1 recorded, 0 there already, 0 dead-lettered\n");
    assert_eq!(world.abide(&send).ok(), "0 recorded, 1 there already, 0 dead-lettered\n");
    assert_eq!(world.abide(&["entity", "show", "device", "d-1", "--json"]).json()[0]["eventCount"], 1);

    let mut lines = String::new();
    for number in 0..250 {
        let _ = writeln!(lines, "{}", json!({"id": number.to_string(), "data": {"n": number}}));
    }
    let flags = ["send", "-", "--type", "reading", "--source", "t", "--session", "d-2", "--batch", "100"];
    let told = world.abide_reading(&flags, &lines).ok();
    assert_eq!(told, "250 recorded, 0 there already, 0 dead-lettered\n");
    let held = world.abide(&["entity", "events", "device", "d-2", "--all", "--json"]).json();
    let numbers: Vec<u64> = held.iter().map(|event| event["event"]["data"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..250).collect::<Vec<u64>>(), "in the order they were sent");

    let lost = world
        .abide(&["send", "--type", "nobody's", "--source", "s", "--id", "9", "--subject", "d-1"])
        .with(1);
    has(
        &lost.out,
        &[
            "dead-lettered 9 of s: ",
            "0 recorded, 0 there already, 1 dead-lettered\n",
            "`abide dlq list` shows why",
        ],
    );
    let letters = world.list_until(&["dlq", "list", "--json"], 1);
    assert_eq!((&letters[0]["engine"], &letters[0]["status"]), (&json!("ingress"), &json!("Pending")));
    has(
        &world.abide(&["dlq", "list", "--engine", "ingress", "--status", "Pending", "--from", "1h"]).ok(),
        &["ingress", "Pending"],
    );
    let key = letters[0]["rowKey"].as_str().unwrap();
    has(
        &world.abide(&["dlq", "show", "ingress", key]).ok(),
        &["ingress ", " Pending\n", "  reason       ", "nobody's"],
    );
    assert!(world.abide(&["dlq", "show", "ingress", key, "--json"]).json()[0]["originalMessage"].is_string());

    assert_eq!(world.abide(&["route", "delete", "reading"]).ok(), "reading is not routed any more\n");
    assert_eq!(world.abide(&["route", "list"]).ok(), "no routes\n");
}

#[test]
fn a_line_that_is_no_event_is_named_and_what_came_before_it_is_sent() {
    let world = World::new();
    world.abide(&["route", "put", "reading", "--entity-type", "device", "--action", "record"]).ok();
    let file = world.file("events.jsonl", "{\"id\": \"1\", \"subject\": \"d\"}\n\nnonsense\n");
    let told = world.abide(&["send", &file, "--type", "reading", "--source", "s"]).with(2);
    has(&told.err, &["events.jsonl, line 3: "]);
    assert_eq!(told.out, "1 recorded, 0 there already, 0 dead-lettered\n");
    let receipts = world
        .abide(&["send", "--type", "reading", "--source", "s", "--id", "2", "--subject", "d", "--json"])
        .json();
    assert_eq!((&receipts[0]["status"], &receipts[0]["entityKey"]), (&json!("recorded"), &json!("d")));
    has(&world.abide(&["send"]).with(2).err, &["say --type"]);
    has(&world.abide(&["send", "none.jsonl"]).with(2).err, &["none.jsonl"]);
}

#[test]
fn a_mended_file_that_is_sent_again_is_recognised_but_for_what_was_mended() {
    let world = World::new();
    world.abide(&["route", "put", "reading", "--entity-type", "device", "--action", "record"]).ok();
    let send = |lines: &str, more: &[&str]| {
        let file = world.file("events.jsonl", lines);
        world.abide(&[&["send", &file, "--type", "reading", "--subject", "d"], more].concat())
    };
    // The first and the third are the same reading twice.
    let told = send("{\"data\": 1}\n{\"data\": 2}\n{\"data\": 1}\n{\"data\": 3", &[]).with(2);
    has(&told.err, &["events.jsonl, line 4: "]);
    assert_eq!(told.out, "3 recorded, 0 there already, 0 dead-lettered\n");
    let mended = "{\"data\": 0}\n{\"data\": 1}\n{\"data\": 2}\n{\"data\": 1}\n{\"data\": 3}\n";
    assert_eq!(send(mended, &[]).ok(), "2 recorded, 3 there already, 0 dead-lettered\n");
    assert_eq!(send(mended, &[]).ok(), "0 recorded, 5 there already, 0 dead-lettered\n");
    assert_eq!(send(mended, &["--source", "s"]).ok(), "5 recorded, 0 there already, 0 dead-lettered\n");
    let held = world.abide(&["entity", "events", "device", "d", "--all", "--json"]).json();
    let data: Vec<_> = held.iter().take(5).map(|event| event["event"]["data"].as_u64().unwrap()).collect();
    assert_eq!((held.len(), data), (10, vec![1, 2, 1, 0, 3]));

    let single = ["send", "--type", "reading", "--subject", "d", "--data", "1"];
    for _ in 0..2 {
        assert_eq!(world.abide(&single).ok(), "1 recorded, 0 there already, 0 dead-lettered\n");
    }
}
