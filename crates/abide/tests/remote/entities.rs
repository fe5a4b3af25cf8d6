//! `entity`, `route`, `send`, `dlq`: events, the entities that record them, and the dead letters of those without a
//! route.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::testbed::{CliTestbed, assert_contains};

#[test]
fn an_entity_is_called_shown_and_listed() {
    let world = CliTestbed::new();
    let output = world.abide(&["entity", "call", "device", "d 1", "RecordEvent", "{\"t\": 20}"]).expect_ok();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert!(output["position"].is_u64(), "{output}");
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
            .expect_ok();
    }
    let events = world.abide(&["entity", "events", "device", "d 1", "--json"]).json();
    assert_eq!(events.iter().map(|event| &event["event"]["t"]).collect::<Vec<_>>(), [&json!(20), &json!(21)]);
    assert_contains(
        &world.abide(&["entity", "events", "device", "d 1"]).expect_ok(),
        &["POSITION", "RECORDED", "{\"t\":20}\n"],
    );
    assert_contains(
        &world.abide(&["entity", "show", "device", "d 1"]).expect_ok(),
        &["device d 1\n", "  events       2\n"],
    );
    assert_eq!(world.abide(&["entity", "show", "device", "d 1", "--json"]).json()[0]["eventCount"], 2);
    let listed = world.list_until(&["entity", "list", "--type", "device", "--json"], 1);
    assert_eq!(listed[0]["entityKey"], "d 1");
    assert_contains(&world.abide(&["entity", "list"]).expect_ok(), &["TYPE", "device"]);
    world.abide(&["entity", "show", "device", "missing"]).expect_code(1);
    world.abide(&["entity", "call", "device", "d 1", "Dance"]).expect_code(1);
    let cleared = world.abide(&["entity", "call", "device", "d 1", "Clear", "--json"]).json();
    assert_eq!(cleared[0]["output"]["cleared"], 2);
}

#[test]
fn events_are_routed_sent_deduplicated_and_dead_lettered() {
    let world = CliTestbed::new();
    world.publish_all();
    let put =
        ["route", "put", "reading", "--entity-type", "device", "--workflow", "gate", "--event-name", "Go"];
    assert_eq!(world.abide(&put).expect_ok(), "set the route of reading\n");
    assert_contains(
        &world.abide(&["route", "list"]).expect_ok(),
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
    assert_eq!(world.abide(&send).expect_ok(), "1 recorded, 0 duplicate, 0 dead-lettered\n");
    assert_eq!(world.abide(&send).expect_ok(), "0 recorded, 1 duplicate, 0 dead-lettered\n");
    assert_eq!(world.abide(&["entity", "show", "device", "d-1", "--json"]).json()[0]["eventCount"], 1);

    let mut lines = String::new();
    for number in 0..250 {
        let _ = writeln!(lines, "{}", json!({"id": number.to_string(), "data": {"n": number}}));
    }
    let flags = ["send", "-", "--type", "reading", "--source", "t", "--session", "d-2", "--batch", "100"];
    let output = world.abide_with_stdin(&flags, &lines).expect_ok();
    assert_eq!(output, "250 recorded, 0 duplicate, 0 dead-lettered\n");
    let recorded = world.abide(&["entity", "events", "device", "d-2", "--all", "--json"]).json();
    let numbers: Vec<u64> =
        recorded.iter().map(|event| event["event"]["data"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..250).collect::<Vec<u64>>(), "in the order they were sent");

    let unrouted = world
        .abide(&["send", "--type", "unrouted", "--source", "s", "--id", "9", "--subject", "d-1"])
        .expect_code(1);
    assert_contains(
        &unrouted.out,
        &[
            "dead-lettered 9 of s: ",
            "0 recorded, 0 duplicate, 1 dead-lettered\n",
            "`abide dlq list` has the reasons",
        ],
    );
    let letters = world.list_until(&["dlq", "list", "--json"], 1);
    assert_eq!((&letters[0]["engine"], &letters[0]["status"]), (&json!("ingress"), &json!("Pending")));
    assert_contains(
        &world
            .abide(&["dlq", "list", "--engine", "ingress", "--status", "Pending", "--from", "1h"])
            .expect_ok(),
        &["ingress", "Pending"],
    );
    let key = letters[0]["rowKey"].as_str().unwrap();
    assert_contains(
        &world.abide(&["dlq", "show", "ingress", key]).expect_ok(),
        &["ingress ", " Pending\n", "  reason       ", "unrouted"],
    );
    assert!(world.abide(&["dlq", "show", "ingress", key, "--json"]).json()[0]["originalMessage"].is_string());

    assert_eq!(world.abide(&["route", "delete", "reading"]).expect_ok(), "removed the route of reading\n");
    assert_eq!(world.abide(&["route", "list"]).expect_ok(), "no routes\n");
}

#[test]
fn an_invalid_line_is_named_and_the_events_before_it_are_sent() {
    let world = CliTestbed::new();
    world.abide(&["route", "put", "reading", "--entity-type", "device", "--action", "record"]).expect_ok();
    let file = world.file("events.jsonl", "{\"id\": \"1\", \"subject\": \"d\"}\n\nnonsense\n");
    let output = world.abide(&["send", &file, "--type", "reading", "--source", "s"]).expect_code(2);
    assert_contains(&output.err, &["events.jsonl, line 3: "]);
    assert_eq!(output.out, "1 recorded, 0 duplicate, 0 dead-lettered\n");
    let receipts = world
        .abide(&["send", "--type", "reading", "--source", "s", "--id", "2", "--subject", "d", "--json"])
        .json();
    assert_eq!((&receipts[0]["status"], &receipts[0]["entityKey"]), (&json!("recorded"), &json!("d")));
    assert_contains(&world.abide(&["send"]).expect_code(2).err, &["give --type"]);
    assert_contains(&world.abide(&["send", "none.jsonl"]).expect_code(2).err, &["none.jsonl"]);
}

#[test]
fn a_corrected_file_that_is_sent_again_records_only_the_corrected_lines() {
    let world = CliTestbed::new();
    world.abide(&["route", "put", "reading", "--entity-type", "device", "--action", "record"]).expect_ok();
    let send = |lines: &str, more: &[&str]| {
        let file = world.file("events.jsonl", lines);
        world.abide(&[&["send", &file, "--type", "reading", "--subject", "d"], more].concat())
    };
    // The first and the third are the same reading twice.
    let output = send("{\"data\": 1}\n{\"data\": 2}\n{\"data\": 1}\n{\"data\": 3", &[]).expect_code(2);
    assert_contains(&output.err, &["events.jsonl, line 4: "]);
    assert_eq!(output.out, "3 recorded, 0 duplicate, 0 dead-lettered\n");
    let corrected = "{\"data\": 0}\n{\"data\": 1}\n{\"data\": 2}\n{\"data\": 1}\n{\"data\": 3}\n";
    assert_eq!(send(corrected, &[]).expect_ok(), "2 recorded, 3 duplicate, 0 dead-lettered\n");
    assert_eq!(send(corrected, &[]).expect_ok(), "0 recorded, 5 duplicate, 0 dead-lettered\n");
    assert_eq!(send(corrected, &["--source", "s"]).expect_ok(), "5 recorded, 0 duplicate, 0 dead-lettered\n");
    let recorded = world.abide(&["entity", "events", "device", "d", "--all", "--json"]).json();
    let data: Vec<_> =
        recorded.iter().take(5).map(|event| event["event"]["data"].as_u64().unwrap()).collect();
    assert_eq!((recorded.len(), data), (10, vec![1, 2, 1, 0, 3]));

    let single = ["send", "--type", "reading", "--subject", "d", "--data", "1"];
    for _ in 0..2 {
        assert_eq!(world.abide(&single).expect_ok(), "1 recorded, 0 duplicate, 0 dead-lettered\n");
    }
}
