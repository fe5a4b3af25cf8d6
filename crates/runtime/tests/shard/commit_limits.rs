//! Limits of a commit: a turn that does not fit parks its run, never the shard; and everything within the limits fits.

use abide_dispatch::AttemptResult;
use abide_ids::RunNumber;
#[cfg(feature = "faults")]
use abide_runtime::fault_injection::Fault;
use abide_runtime::{RequestError, ShardConfig, ShardReply, ShardRequest};
use abide_store::rows::{CommitOutcome, StoreLimits};
use abide_store::tables::TableId;
use abide_workflow::Message;
use serde_json::{Value, json};

use crate::harness::{ShardHarness, failure, instance_id, task_state};

const MIB: usize = 1024 * 1024;

fn order(reason: &str) -> Message {
    Message::Terminate { reason: reason.to_owned() }
}

/// A run that continues as new on an event, and carries over the events raised before.
fn publish_carrier(harness: &ShardHarness) {
    let gate = json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "Again"});
    let again = json!({"type": "continueAsNew", "input": "$.input"});
    harness.publish("carrier", &json!({"Start": gate, "Again": again}));
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
}

/// More is buffered than a commit can hold. Only a run that was started under other limits can be like this.
fn overloaded() -> ShardHarness {
    let mut harness = ShardHarness::with(|config| config.run_limits.buffered_bytes_max = 64 * MIB as u64);
    publish_carrier(&harness);
    harness.start_with("carrier", "a", json!({"x": "x".repeat(100_000)}));
    for _ in 0..17 {
        assert!(matches!(harness.raise_large("a", "item", MIB - 8_192), ShardReply::Accepted));
    }
    harness
}

#[test]
fn a_turn_that_no_commit_can_hold_parks_its_run_and_no_other() {
    let mut harness = overloaded();
    let reply = harness.raise("a", "go");
    assert!(matches!(&reply, ShardReply::Refused(RequestError::Parked { .. })), "{reply:?}");
    for _ in 0..2 {
        assert_eq!(harness.stopped, None);
        let reason = harness.park_reason("a").unwrap();
        assert!(reason.contains("more than one commit"), "{reason}");
        assert_eq!(harness.run("a").unwrap().instance.unconsumed_events(), ["item"], "nothing of it is lost");
        harness.check();
        harness.crash();
    }
    harness.start("one", "b");
    harness.complete_attempt();
    assert_eq!(harness.status("b"), "Completed");
    assert!(matches!(harness.send_message("a", order("enough")), ShardReply::Accepted));
    assert_eq!(harness.status("a"), "Terminated");
    harness.start("one", "a");
    harness.advance_clock(2_000);
    harness.check();
}

#[test]
fn a_client_is_not_told_of_an_end_that_a_dropped_turn_would_have_brought() {
    let mut harness = overloaded();
    let awaiting = harness
        .request_without_waiting(ShardRequest::AwaitEnd { instance_id: instance_id("a"), run_number: None });
    assert!(harness.reply_to(awaiting).is_none());
    harness.raise("a", "go");
    let reply = harness.reply_to(awaiting);
    assert!(matches!(&reply, Some(ShardReply::Refused(RequestError::Parked { .. }))), "{reply:?}");
    harness.check();
}

#[test]
fn a_client_learns_that_a_run_is_parked_only_when_that_is_durable() {
    let mut harness = overloaded();
    let away = || Some(CommitOutcome::Unavailable { reason: "away".to_owned() });
    harness.outcomes.extend([away(), away()]);
    let message = Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() };
    let first =
        harness.request_without_waiting(ShardRequest::SendMessage { instance_id: instance_id("a"), message });
    let awaiting = harness
        .request_without_waiting(ShardRequest::AwaitEnd { instance_id: instance_id("a"), run_number: None });
    let message = Message::EventRaised { name: "item".to_owned(), payload: json!(1).into() };
    let second =
        harness.request_without_waiting(ShardRequest::SendMessage { instance_id: instance_id("a"), message });
    let message = Message::Resume { reason: String::new() };
    let third =
        harness.request_without_waiting(ShardRequest::SendMessage { instance_id: instance_id("a"), message });
    assert_eq!((harness.park_reason("a"), harness.replies.len()), (None, 0));
    harness.advance_clock(1_000);
    for request_id in [first, awaiting, second] {
        let reply = harness.reply_to(request_id);
        assert!(matches!(&reply, Some(ShardReply::Refused(RequestError::Parked { .. }))), "{reply:?}");
    }
    assert!(
        matches!(harness.reply_to(third), Some(ShardReply::Accepted)),
        "without the event that was refused it goes on"
    );
    assert_eq!((harness.park_reason("a"), harness.status("a").as_str()), (None, "Running"));
    assert_eq!(harness.run("a").unwrap().instance.unconsumed_events(), ["item"]);
    harness.check();
}

#[test]
fn a_first_turn_that_no_commit_can_hold_leaves_a_parked_run() {
    // A wide map of large inputs, started under limits that allow too much of it at once.
    let mut harness = ShardHarness::with(|config| {
        config.run_limits.turn.bytes_max = 64 * MIB as u64;
    });
    let each = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "work", "input": {"x": "$.input.x", "i": "$.item"}, "next": "Done"},
        "Done": {"type": "succeed"}}});
    let map = json!({"type": "map", "items": "$.input.items", "iterator": each, "next": "End"});
    harness.publish("wide", &json!({"Start": map, "End": {"type": "succeed"}}));
    let items: Vec<u32> = (0..40).collect();
    harness.start_with("wide", "a", json!({"items": items, "x": "x".repeat(900_000)}));
    assert!(harness.park_reason("a").is_some() && harness.calls.is_empty());
    assert_eq!((&harness.stopped, harness.status("a").as_str()), (&None, "Pending"));
    harness.check();
    harness.crash();
    assert!(harness.park_reason("a").is_some() && harness.calls.is_empty());
    assert!(matches!(harness.send_message("a", order("enough")), ShardReply::Accepted));
    assert_eq!(harness.status("a"), "Terminated");
    harness.check();
}

/// A run whose first turn no commit can hold: a child and many large calls, under limits that allow all of it at once.
/// Returns how many instances, calls and timers have a row after that turn and what follows from it.
fn rows_after_a_dropped_turn(change: impl FnOnce(&mut ShardConfig)) -> [usize; 3] {
    let mut harness = ShardHarness::with(|config| {
        config.run_limits.turn.bytes_max = 64 * MIB as u64;
        change(config);
    });
    let each = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "work", "input": {"x": "$.input.x", "i": "$.item"}, "next": "Done"},
        "Done": {"type": "succeed"}}});
    let child = json!({"startAt": "Child", "states": {
        "Child": {"type": "workflow", "workflow": "one", "input": {"id": 1}, "next": "Done"},
        "Done": {"type": "succeed"}}});
    let map = json!({"startAt": "Each", "states": {
        "Each": {"type": "map", "items": "$.input.items", "iterator": each, "next": "Done"},
        "Done": {"type": "succeed"}}});
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    let parallel = json!({"type": "parallel", "branches": [child, map], "next": "End"});
    harness.publish("wide", &json!({"Start": parallel, "End": {"type": "succeed"}}));
    let items: Vec<u32> = (0..40).collect();
    harness.start_with("wide", "a", json!({"items": items, "x": "x".repeat(900_000)}));
    harness.advance_clock(10_000);
    assert!(harness.park_reason("a").unwrap().contains("more than one commit"));
    [TableId::Instance, TableId::Call, TableId::Timer].map(|table| harness.keys(table).len())
}

#[test]
fn a_dropped_turn_starts_no_child_and_no_call() {
    assert_eq!(rows_after_a_dropped_turn(|_| {}), [1, 0, 0]);
}

#[cfg(feature = "faults")]
#[test]
fn a_child_started_by_a_dropped_turn_is_noticed() {
    let leaks = |config: &mut ShardConfig| config.fault = Some(Fault::DroppedTurnLeaks);
    assert_eq!(rows_after_a_dropped_turn(leaks), [2, 1, 0]);
}

/// The largest payload that the limits allow.
fn largest(harness: &ShardHarness) -> usize {
    usize::try_from(harness.config.run_limits.payload_bytes_max).unwrap() - 64
}

fn assert_fits(harness: &ShardHarness, id: &str) {
    assert_eq!((&harness.stopped, harness.park_reason(id)), (&None, None));
    harness.check();
}

const STORES: [StoreLimits; 3] = [StoreLimits::GUARANTEED, StoreLimits::AZURE, StoreLimits::LOCAL];

#[test]
fn a_full_buffer_is_carried_over_with_the_largest_input() {
    for limits in STORES {
        let mut harness = ShardHarness::with_limits(limits, |_| {});
        publish_carrier(&harness);
        let bytes = largest(&harness);
        harness.start_with("carrier", "a", json!("x".repeat(bytes)));
        for _ in 0..1_000 {
            assert!(matches!(harness.raise_large("a", "item", 1), ShardReply::Accepted));
        }
        let mut buffered = 0;
        while matches!(harness.raise_large("a", "item", bytes), ShardReply::Accepted) {
            buffered += 1;
        }
        assert!(buffered >= 3, "{buffered}");
        assert!(matches!(harness.raise("a", "go"), ShardReply::Accepted));
        assert_fits(&harness, "a");
        let run = harness.run("a").unwrap();
        assert_eq!(
            (run.row.run_number, run.instance.unconsumed_events()),
            (RunNumber(2), vec!["item".to_owned()])
        );
    }
}

#[test]
fn the_largest_calls_fail_all_at_once_and_again_while_suspended() {
    let each = json!({"startAt": "Do", "states": {
        "Do": {"type": "task", "activity": "work", "input": "$.input.x", "output": "$.state.y",
            "retryPolicy": {"maxAttempts": 3, "initialInterval": "PT1S"},
            "compensateWith": {"activity": "undo"}, "next": "Done"},
        "Done": {"type": "succeed", "output": 1}}});
    let map = json!({"type": "map", "items": "$.input.items", "iterator": each, "next": "End"});
    let states = json!({"Start": map, "End": {"type": "succeed"}});
    for (limits, results_are_large) in
        [(StoreLimits::GUARANTEED, true), (StoreLimits::GUARANTEED, false), (StoreLimits::AZURE, true)]
    {
        let mut harness = ShardHarness::with_limits(limits, |_| {});
        harness.publish("wide", &states);
        let items: Vec<u32> = (0..30).collect();
        let bytes = largest(&harness) - 1_024;
        harness.start_with("wide", "a", json!({"items": items, "x": "x".repeat(bytes)}));
        finish_all(&mut harness, &failure(true));
        harness.send_message("a", Message::Suspend { reason: String::new() });
        harness.advance_clock(10_000);
        finish_all(&mut harness, &failure(true));
        harness.crash();
        assert_fits(&harness, "a");
        harness.send_message("a", Message::Resume { reason: String::new() });
        harness.advance_clock(20_000);
        assert_fits(&harness, "a");
        harness.send_message("a", Message::Suspend { reason: String::new() });
        let result: Value = json!("y".repeat(if results_are_large { bytes } else { 1 }));
        finish_all(&mut harness, &AttemptResult::Completed(result.into()));
        harness.send_message("a", Message::Resume { reason: String::new() });
        harness.advance_clock(20_000);
        assert_fits(&harness, "a");
        assert_ne!(harness.status("a"), "Running", "it has completed, or failed at the limit of its data");
    }
}

#[test]
fn the_largest_result_and_input_of_a_call_fit_beside_a_full_buffer() {
    let states = json!({
        "Start": {"type": "task", "activity": "work", "output": "$.state.x", "next": "Next"},
        "Next": {"type": "task", "activity": "work", "input": "$.state.x", "next": "Hold",
            "retryPolicy": {"maxAttempts": 3, "initialInterval": "PT1S"}},
        "Hold": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"},
        "End": {"type": "succeed"}});
    for limits in STORES {
        let mut harness = ShardHarness::with_limits(limits, |_| {});
        harness.publish("large", &states);
        harness.start("large", "a");
        let bytes = largest(&harness);
        while matches!(harness.raise_large("a", "item", bytes), ShardReply::Accepted) {}
        let largest = usize::try_from(harness.config.run_limits.call_bytes_max).unwrap() - 64;
        assert!(largest > 3 * bytes, "{largest}");
        harness.finish_attempt(AttemptResult::Completed(json!("y".repeat(largest)).into()));
        assert_fits(&harness, "a");
        harness.crash();
        harness.finish_attempt(failure(true));
        harness.advance_clock(2_000);
        assert_fits(&harness, "a");
        let call = harness.complete_attempt();
        assert_eq!(call.input.as_str().map(str::len), Some(largest));
        harness.send_message("a", Message::EventRaised { name: "go".to_owned(), payload: json!(1).into() });
        assert_fits(&harness, "a");
        assert_eq!(
            harness.run("a").unwrap().instance.unconsumed_events().first().map(String::as_str),
            Some("item")
        );
    }
}

/// Finishes all attempts at once, as after a common outage.
fn finish_all(harness: &mut ShardHarness, result: &AttemptResult) {
    assert!(!harness.calls.is_empty());
    let attempts: Vec<_> = std::mem::take(&mut harness.calls).into_iter().map(|(id, _)| id).collect();
    harness.send_events(
        attempts.into_iter().map(|id| abide_runtime::Event::AttemptFinished(id, result.clone())),
    );
}

#[test]
fn the_rows_of_a_long_purged_run_are_deleted_with_small_commits() {
    let mut harness = ShardHarness::with_limits(StoreLimits::GUARANTEED, |config| {
        config.retention = abide_workflow::Duration::hours(1)
    });
    let states = json!({"Start": task_state("Again"), "Again": {"type": "choice", "default": "Start",
        "choices": [{"when": {"path": "$.state.x.last", "op": "eq", "value": true}, "next": "End"}]},
        "End": {"type": "succeed"}});
    harness.publish_with("long", &json!({"maxTransitions": 10_000}), &states);
    harness.start("long", "a");
    for _ in 0..150 {
        harness.complete_attempt();
    }
    harness.finish_attempt(AttemptResult::Completed(json!({"last": true}).into()));
    assert_eq!(harness.status("a"), "Completed");
    harness.advance_clock(8_000_000);
    assert_eq!(harness.stopped, None);
    assert!(harness.keys(TableId::HistoryPage).is_empty());
    harness.check();
}
