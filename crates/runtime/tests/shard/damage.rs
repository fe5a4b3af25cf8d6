//! Damaged rows: only the runs and requests that depend on one are affected, and the shard neither stops nor spins.

use abide_ids::{PageNumber, Timestamp};
use abide_runtime::run_message::{self, AddressedMessage, ChildStart, RunMessage};
use abide_runtime::{OperatorEvent, RequestError, ShardReply};
use abide_store::rows::{Batch, CommitOutcome, Key};
use abide_store::tables::inbound::{self, InboundRow};
use abide_store::tables::inbound_watermarks::{self, InboundWatermarkRow};
use abide_store::tables::{TableId, encode, instances};
use abide_workflow::instance::ParentLink;
use abide_workflow::{CommandId, Message, RunNumber};
use serde_json::json;

use crate::harness::{ShardHarness, instance_id, request_idempotency, task_state};

fn one(harness: &ShardHarness) {
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

fn wait(harness: &ShardHarness, id: &str, duration: &str) {
    harness.publish(id, &json!({"Start": {"type": "wait", "waitType": "duration", "duration": duration, "next": "End"}, "End": {"type": "succeed"}}));
}

fn keyed(harness: &ShardHarness, id: &str, key: u8) -> abide_runtime::ShardRequest {
    harness.start_request("one", id, Some(request_idempotency(key, 1)))
}

/// Makes the row of a key unreadable.
fn damage(harness: &ShardHarness, key: &Key) {
    harness.store.inject_damage(&harness.partition(), key.clone(), key.clone());
}

/// Overwrites a row with bytes that cannot be decoded.
fn garble(harness: &ShardHarness, key: &Key) {
    let partition = harness.partition();
    let version = harness.store.read_now(&partition, key).unwrap().unwrap().version;
    let batch = Batch::checked().replace(key.clone(), version, b"garbage".to_vec());
    assert!(matches!(harness.store.commit_now(&partition, &batch), CommitOutcome::Committed(_)));
}

fn unreadable(harness: &ShardHarness) -> usize {
    harness.operator_events.iter().filter(|notice| matches!(notice, OperatorEvent::Unreadable { .. })).count()
}

fn is_damaged(reply: &ShardReply) -> bool {
    matches!(reply, ShardReply::Refused(RequestError::Damaged { .. }))
}

#[test]
fn a_start_with_a_key_is_refused_when_the_row_of_its_id_cannot_be_read() {
    for spoil in [damage, garble] {
        let mut harness = ShardHarness::new();
        one(&harness);
        let request = keyed(&harness, "a", 1);
        assert!(matches!(harness.request(request), ShardReply::Started(_)));
        harness.complete_attempt();
        harness.crash();
        spoil(&harness, &instances::key("a"));
        let request = keyed(&harness, "a", 2);
        assert!(is_damaged(&harness.request(request)), "another key");
        let request = keyed(&harness, "a", 1);
        assert!(matches!(harness.request(request), ShardReply::Started(_)), "this key has a stored reply");
        let request = keyed(&harness, "b", 3);
        assert!(matches!(harness.request(request), ShardReply::Started(_)));
    }
}

#[test]
fn a_start_whose_stored_reply_cannot_be_read_is_refused_and_nothing_starts_twice() {
    for spoil in [damage, garble] {
        let mut harness = ShardHarness::new();
        one(&harness);
        let request = keyed(&harness, "a", 1);
        assert!(matches!(harness.request(request), ShardReply::Started(_)));
        harness.complete_attempt();
        harness.crash();
        spoil(&harness, &harness.keys(TableId::Idempotency)[0]);
        for _ in 0..2 {
            let request = keyed(&harness, "a", 1);
            assert!(is_damaged(&harness.request(request)));
        }
        assert_eq!((harness.run("a").unwrap().row.run_number, harness.calls.len()), (RunNumber(1), 0));
        // Under another key it may start; then its run is in memory when the damaged key is used again.
        let request = keyed(&harness, "a", 2);
        assert!(matches!(harness.request(request), ShardReply::Started(_)));
        let request = keyed(&harness, "a", 1);
        assert!(is_damaged(&harness.request(request)));
        harness.complete_attempt();
        assert_eq!(harness.status("a"), "Completed");
    }
}

#[test]
fn timers_around_a_damaged_range_fire_and_those_in_it_fire_from_memory() {
    let mut harness = ShardHarness::new();
    for number in 1..=9 {
        wait(&harness, &format!("wait-{number}"), &format!("PT{number}H"));
        harness.start(&format!("wait-{number}"), &format!("w-{number}"));
    }
    let timers = harness.keys(TableId::Timer);
    harness.store.inject_damage(&harness.partition(), timers[3].clone(), timers[5].clone());
    harness.crash();
    for hours in 1..=9 {
        harness.advance_clock(3_600_000);
        let done = (1..=9).filter(|number| harness.status(&format!("w-{number}")) == "Completed").count();
        assert_eq!(done, hours, "after {hours} hours");
        if hours == 2 {
            // A timer in the damaged range, set before the damage is known.
            wait(&harness, "late", "PT90M");
            harness.start("late", "late");
        }
        if hours == 3 {
            // And one set after it is known.
            wait(&harness, "later", "PT30M");
            harness.start("later", "later");
        }
    }
    assert_eq!(
        (harness.status("late").as_str(), harness.status("later").as_str()),
        ("Completed", "Completed")
    );
    assert_eq!(unreadable(&harness), 1, "{:?}", harness.operator_events);
}

#[test]
fn one_timer_that_cannot_be_read_stops_no_other_of_its_page() {
    let mut harness = ShardHarness::new();
    wait(&harness, "wait", "PT1M");
    for id in ["a", "b", "c"] {
        harness.start("wait", id);
    }
    garble(&harness, &harness.keys(TableId::Timer)[1]);
    harness.crash();
    harness.advance_clock(61_000);
    for id in ["a", "b", "c"] {
        assert_eq!(harness.status(id), "Completed", "{id}");
    }
    assert_eq!(unreadable(&harness), 1, "{:?}", harness.operator_events);
}

#[test]
fn a_call_that_cannot_be_read_parks_its_run_and_no_other() {
    for spoil in [damage, garble] {
        let mut harness = ShardHarness::new();
        one(&harness);
        for id in ["a", "b", "c"] {
            harness.start("one", id);
        }
        spoil(&harness, &harness.keys(TableId::Call)[1]);
        harness.crash();
        let parked = |notice: &OperatorEvent| match notice {
            OperatorEvent::Parked { instance_id, .. } => Some(instance_id.to_string()),
            _ => None,
        };
        assert_eq!(harness.operator_events.iter().filter_map(parked).collect::<Vec<_>>(), ["b"]);
        assert_eq!(unreadable(&harness), 1, "{:?}", harness.operator_events);
        assert!(matches!(harness.raise("b", "go"), ShardReply::Refused(RequestError::Parked { .. })));
        assert_eq!(harness.calls.len(), 2);
        harness.complete_attempt();
        harness.complete_attempt();
        assert_eq!((harness.status("a").as_str(), harness.status("c").as_str()), ("Completed", "Completed"));
        let ended = harness.send_message("b", Message::Terminate { reason: "enough".to_owned() });
        assert!(matches!(ended, ShardReply::Accepted), "{ended:?}");
        harness.start("one", "b");
    }
}

#[test]
fn recovery_continues_behind_damage_in_any_of_its_tables() {
    for table in [TableId::Inbox, TableId::Outbox, TableId::InboundWatermark, TableId::Call] {
        let mut harness = ShardHarness::new();
        one(&harness);
        harness.start("one", "a");
        let prefix = |last: u8| Key::new([table as u8, last]);
        harness.store.inject_damage(&harness.partition(), prefix(0), prefix(255));
        harness.crash();
        assert_eq!(harness.stopped, None);
        harness.start("one", &format!("b-{table:?}").to_lowercase());
        assert!(unreadable(&harness) >= 1, "{table:?}");
    }
}

fn child_start(child: &str) -> AddressedMessage {
    let parent =
        ParentLink { instance_id: instance_id("elsewhere"), run: RunNumber(1), command: CommandId(1) };
    let start = ChildStart {
        parent,
        workflow: "one".to_owned(),
        version: None,
        input: json!({"id": child}).to_string(),
        correlation_id: child.to_owned(),
        entity_id: None,
    };
    AddressedMessage { instance_id: instance_id(child), message: RunMessage::LegacyStartChild(start) }
}

fn arrive(harness: &ShardHarness, number: u64, child: &str) {
    let message = run_message::encode(&child_start(child));
    let arrival = InboundRow { instance_id: child.to_owned(), message, sent_at: Timestamp(0) };
    let batch =
        Batch::checked().create(inbound::key("shard/9", abide_ids::Sequence(number)), encode(&arrival));
    let inbox = harness.shard.id().inbound_partition().unwrap();
    assert!(matches!(harness.store.commit_now(&inbox, &batch), CommitOutcome::Committed(_)));
}

#[test]
fn messages_behind_one_that_cannot_be_read_are_accepted() {
    let mut harness = ShardHarness::new();
    one(&harness);
    for number in 1..=5 {
        arrive(&harness, number, &format!("c-{number}"));
    }
    let inbox = harness.shard.id().inbound_partition().unwrap();
    harness.store.inject_damage(
        &inbox,
        inbound::key("shard/9", abide_ids::Sequence(2)),
        inbound::key("shard/9", abide_ids::Sequence(3)),
    );
    harness.crash();
    harness.advance_clock(1_000);
    let begun: Vec<_> = (1..=5).filter(|number| harness.run(&format!("c-{number}")).is_some()).collect();
    assert_eq!(begun, [1, 4, 5]);
    arrive(&harness, 6, "c-6");
    harness.send_event(abide_runtime::Event::InboundHinted);
    assert!(harness.run("c-6").is_some());
    assert_eq!(unreadable(&harness), 1, "{:?}", harness.operator_events);
}

#[test]
fn nothing_is_accepted_from_a_source_whose_watermark_cannot_be_read() {
    let mut harness = ShardHarness::new();
    one(&harness);
    let taken = InboundWatermarkRow { last_number: abide_ids::Sequence(4), updated_at: Timestamp(0) };
    let batch = Batch::checked().create(inbound_watermarks::key("shard/9"), encode(&taken));
    harness.store.commit_now(&harness.partition(), &batch);
    garble(&harness, &inbound_watermarks::key("shard/9"));
    arrive(&harness, 4, "taken-before");
    harness.crash();
    harness.advance_clock(1_000);
    assert!(harness.run("taken-before").is_none());
    assert!(unreadable(&harness) >= 1);
}

#[test]
fn a_run_whose_instance_row_cannot_be_read_is_not_deleted_and_delays_no_other() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&harness);
    for id in ["a", "b"] {
        harness.start("one", id);
        harness.complete_attempt();
    }
    let run = harness.run("a").unwrap().row.run_id;
    harness.advance_clock(60_000);
    damage(&harness, &instances::key("a"));
    harness.advance_clock(4_000_000);
    let page = abide_store::tables::history_pages::key(run, PageNumber::FIRST);
    assert!(harness.store.read_now(&harness.partition(), &page).unwrap().is_some());
    assert!(matches!(harness.raise("b", "go"), ShardReply::Refused(RequestError::NotFound { .. })));
}

#[test]
fn expired_rows_behind_damage_are_deleted() {
    let mut harness = ShardHarness::with(|config| config.retention = abide_workflow::Duration::hours(1));
    one(&harness);
    for id in ["a", "b", "c"] {
        harness.start("one", id);
        harness.complete_attempt();
        harness.advance_clock(60_000);
    }
    let expiries = harness.keys(TableId::Expiry);
    assert_eq!(expiries.len(), 3);
    damage(&harness, &expiries[0]);
    harness.crash();
    harness.advance_clock(4_000_000);
    assert_eq!(harness.status("a"), "Completed", "its expiry cannot be read");
    for id in ["b", "c"] {
        assert!(
            matches!(harness.raise(id, "go"), ShardReply::Refused(RequestError::NotFound { .. })),
            "{id}"
        );
    }
    assert_eq!(unreadable(&harness), 1, "{:?}", harness.operator_events);
}
