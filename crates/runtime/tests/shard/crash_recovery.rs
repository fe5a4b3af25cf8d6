//! Crashes and restarts: timers, children, unfinished turns and events survive, and a drain releases the shard.

use std::collections::BTreeMap;

use abide_ids::{PageNumber, RunId, Timestamp};
use abide_runtime::event::AttemptId;
use abide_runtime::run_message::{self, RunMessage};
use abide_runtime::{Event, OperatorEvent, RequestError, ShardReply, ShardRequest, StopReason};
use abide_store::rows::{Batch, CommitOutcome, StoreLimits};
use abide_store::tables::calls::{CallRow, CallRowState};
use abide_store::tables::{TableId, decode, encode, heads, inbox};
use abide_testkit::shard_driver::poll_ready;
use abide_workflow::{CommandId, Message};
use serde_json::json;

use crate::harness::{EPOCH_MS, ShardHarness, failure, instance_id, task_state};

fn wait(duration: &str) -> serde_json::Value {
    json!({"Start": {"type": "wait", "waitType": "duration", "duration": duration, "next": "End"}, "End": {"type": "succeed"}})
}

#[test]
fn a_timer_fires_once_also_if_it_was_due_while_no_node_owned_the_shard() {
    let mut harness = ShardHarness::new();
    harness.publish("wait", &wait("PT10M"));
    harness.start("wait", "a");
    harness.advance_clock(20_000);
    assert_eq!(harness.shard.resident_instances(), 0, "a run that waits need not stay in memory");
    harness.crash();
    harness.advance_clock(570_000);
    assert_eq!(harness.status("a"), "Running");
    harness.advance_clock(11_000);
    assert_eq!(harness.status("a"), "Completed");
    assert_eq!(harness.keys(TableId::Timer), []);
    harness.check();
}

#[test]
fn overdue_timers_fire_at_their_rate_and_fresh_work_does_not_wait_for_them() {
    let mut harness = ShardHarness::with(|config| config.recovery_per_second = 10);
    harness.publish("wait", &wait("PT1M"));
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    for number in 0..100 {
        harness.start("wait", &format!("w-{number:03}"));
    }
    // No node owns the shard when they become due.
    harness.config.incarnation += 1;
    harness.jump_clock(120_000);
    harness.crash();
    let ended = |harness: &ShardHarness| {
        (0..100).filter(|n| harness.status(&format!("w-{n:03}")) == "Completed").count()
    };
    harness.advance_clock(2_000);
    assert!((15..=25).contains(&ended(&harness)), "{}", ended(&harness));
    harness.start("one", "fresh");
    assert_eq!(harness.calls.len(), 1);
    harness.advance_clock(9_000);
    assert_eq!(ended(&harness), 100);
    harness.check();
}

/// Runs of several branches, each in its second call when the process crashes. Returns the attempts that are made
/// again, and after how many milliseconds.
fn overdue_calls(per_second: u32) -> Vec<(u64, AttemptId)> {
    let branch = json!({"startAt": "One", "states": {"One": task_state("Two"), "Two": task_state("Done"), "Done": {"type": "succeed"}}});
    let states = json!({"Start": {"type": "parallel", "branches": vec![branch; BRANCHES], "next": "End"}, "End": {"type": "succeed"}});
    let mut harness = ShardHarness::with(|config| config.recovery_per_second = per_second);
    harness.publish("wide", &states);
    for run in 0..RUNS {
        harness.start("wide", &format!("w-{run}"));
    }
    // The last branches first, two of each run at the same time: the calls of a run are neither next to each other nor
    // in the order of their branches.
    harness.calls.make_contiguous().sort_by_key(|(id, _)| std::cmp::Reverse(id.command));
    for _ in 0..BRANCHES / 2 {
        (0..RUNS * 2).for_each(|_| drop(harness.complete_attempt()));
        harness.advance_clock(100);
    }
    assert_eq!(harness.calls.len(), RUNS * BRANCHES);
    harness.jump_clock(60_000);
    harness.crash();
    let mut taken = Vec::new();
    for ms in 0..10_000 {
        taken.extend(harness.calls.drain(..).map(|(id, _)| (ms, id)));
        harness.advance_clock(1);
    }
    harness.check();
    taken
}

const RUNS: usize = 5;
const BRANCHES: usize = 6;

#[test]
fn overdue_calls_are_repeated_at_their_rate_in_the_order_of_their_commands_deterministically() {
    let taken = overdue_calls(10);
    assert_eq!(taken.len(), RUNS * BRANCHES, "each of them once: {taken:?}");
    for (before, (ms, id)) in taken.iter().enumerate() {
        assert!(before as u64 <= ms / 100, "{id:?} after {ms} ms and {before} others");
    }
    assert!(taken.last().is_some_and(|(ms, _)| *ms <= 4_000), "nor much slower: {taken:?}");
    let mut instances: BTreeMap<&str, Vec<CommandId>> = BTreeMap::new();
    for (_, id) in &taken {
        assert_eq!(id.attempt, 1, "{id:?}");
        instances.entry(id.instance_id.as_str()).or_default().push(id.command);
    }
    assert_eq!(instances.len(), RUNS);
    for (id, commands) in instances {
        assert!(commands.is_sorted_by(|one, next| one < next), "{id}: {commands:?}");
    }
    assert!(
        !taken.is_sorted_by_key(|(_, id)| id.instance_id.as_str()),
        "the calls of different instances alternate"
    );
    assert_eq!(taken, overdue_calls(10), "the same every time");
}

/// A message for an instance that does not exist: it is looked up, not found, and deleted.
fn leave_message(harness: &ShardHarness, number: u64) {
    let waiting = inbox::InboxRow {
        instance_id: format!("nobody-{number}"),
        received_at: Timestamp(EPOCH_MS - 1),
        message: run_message::encode(&RunMessage::Continue { run_id: RunId(7) }),
    };
    let batch =
        Batch::checked().create(inbox::key(abide_ids::Sequence(1_000_000 + number)), encode(&waiting));
    harness.store.commit_now(&harness.partition(), &batch);
}

#[test]
fn recovered_messages_are_processed_at_their_rate_and_leave_capacity_to_clients() {
    let mut harness = ShardHarness::with(|config| {
        config.recovery_per_second = 10;
        config.queued_max = 8;
    });
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    (0..100).for_each(|number| leave_message(&harness, number));
    harness.jump_clock(60_000);
    harness.crash();
    let left = |harness: &ShardHarness| harness.keys(TableId::Inbox).len();
    assert!(left(&harness) > 90, "{}", left(&harness));
    for number in 0..8 {
        harness.start("one", &format!("i-{number}"));
    }
    harness.advance_clock(3_000);
    assert!((60..=80).contains(&left(&harness)), "{}", left(&harness));
    harness.advance_clock(10_000);
    assert_eq!(left(&harness), 0);
    harness.check();
}

#[test]
fn a_recovered_message_is_processed_before_later_ones() {
    let mut harness = ShardHarness::with(|config| config.recovery_per_second = 1);
    harness.publish("child", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"}, "End": {"type": "succeed"}}));
    harness.publish("parent", &json!({"Start": {"type": "workflow", "workflow": "child", "next": "End"}, "End": {"type": "succeed"}}));
    // The process crashes when the child is requested and has not started.
    let lost = CommitOutcome::Unavailable { reason: "dying".to_owned() };
    harness.outcomes.extend([None, Some(lost)]);
    harness.start("parent", "p");
    assert!(harness.run("p~1.1").is_none());
    assert_eq!(harness.keys(TableId::Inbox).len(), 1);
    (0..3).for_each(|number| leave_message(&harness, number));
    harness.outcomes.clear();
    harness.jump_clock(60_000);
    harness.crash();
    assert!(harness.run("p~1.1").is_none(), "it waits for its scheduled time");
    harness.send_message("p", Message::Terminate { reason: String::new() });
    harness.advance_clock(10_000);
    assert_eq!(
        (harness.status("p").as_str(), harness.status("p~1.1").as_str()),
        ("Terminated", "Terminated")
    );
    harness.check();
}

#[test]
fn a_cancelled_timer_leaves_nothing_behind_also_after_a_reload() {
    let mut harness = ShardHarness::new();
    let states = json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT5H", "timeoutNext": "End", "next": "End"}, "End": {"type": "succeed"}});
    harness.publish("wait", &states);
    harness.start("wait", "a");
    assert_eq!(harness.keys(TableId::Timer).len(), 2, "its timeout, and when it counts as stuck");
    harness.crash();
    assert!(matches!(harness.raise("a", "go"), ShardReply::Accepted));
    assert_eq!(harness.keys(TableId::Timer), []);
    assert!(
        matches!(harness.raise("a", "go"), ShardReply::Refused(RequestError::Message(_))),
        "it has ended"
    );
    assert!(matches!(harness.raise("b", "go"), ShardReply::Refused(RequestError::NotFound { .. })));
    harness.check();
}

#[test]
fn a_stuck_run_is_reported_once_with_the_things_it_waits_for() {
    let mut harness = ShardHarness::new();
    let states = json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "timeout": "PT5H", "timeoutNext": "End", "next": "End"}, "End": {"type": "succeed"}});
    let definition = json!({"$schema": "workflow-schema-v1.json", "id": "slow", "version": "1.0.0", "startAt": "Start",
        "configuration": {"stuckAfter": "PT1H"}, "states": states});
    poll_ready(harness.definitions.publish(&definition.to_string(), None, Timestamp(0))).unwrap();
    harness.start("slow", "a");
    harness.advance_clock(3_590_000);
    harness.crash();
    let stuck = |harness: &ShardHarness| {
        harness
            .operator_events
            .iter()
            .filter_map(|n| {
                if let OperatorEvent::Stuck { waiting_for: why, .. } = n { Some(why.clone()) } else { None }
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(stuck(&harness), Vec::<String>::new());
    harness.advance_clock(20_000);
    assert_eq!(stuck(&harness).len(), 1);
    assert!(stuck(&harness)[0].contains("event go since"), "{:?}", stuck(&harness));
    harness.crash();
    harness.advance_clock(7_200_000);
    assert_eq!(stuck(&harness).len(), 1, "reported once");
    harness.check();
}

#[test]
fn a_workflow_that_times_out_is_reported_with_the_states_it_was_in() {
    let mut harness = ShardHarness::new();
    let gate =
        |next: &str| json!({"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": next});
    let block = || json!({"startAt": "Gate", "states": {"Gate": gate("End"), "End": {"type": "succeed"}}});
    let states = json!({"Start": {"type": "parallel", "branches": [block(), block()], "next": "End"}, "End": {"type": "succeed"}});
    let definition = json!({"$schema": "workflow-schema-v1.json", "id": "slow", "version": "1.0.0", "startAt": "Start",
        "configuration": {"timeout": "PT1H"}, "states": states});
    poll_ready(harness.definitions.publish(&definition.to_string(), None, Timestamp(0))).unwrap();
    harness.start("slow", "a");
    harness.advance_clock(3_700_000);
    assert_eq!(harness.status("a"), "Failed");
    let expected = OperatorEvent::WorkflowTimedOut {
        instance_id: instance_id("a"),
        timeout: "PT1H".to_owned(),
        states: "Start, Start/branches/0/Gate, Start/branches/1/Gate".to_owned(),
    };
    let reported = harness.operator_events.iter().filter(|notice| **notice == expected).count();
    assert_eq!(reported, 1, "{:?}", harness.operator_events);
    harness.check();
}

fn times_stuck(harness: &ShardHarness) -> usize {
    harness.operator_events.iter().filter(|notice| matches!(notice, OperatorEvent::Stuck { .. })).count()
}

#[test]
fn a_run_that_is_always_in_a_short_call_is_reported_as_stuck_all_the_same() {
    let mut harness = ShardHarness::new();
    let again = json!({"type": "choice", "default": "Start", "choices":
        [{"when": {"path": "$.state.x.last", "op": "eq", "value": true}, "next": "End"}]});
    let states = json!({"Start": task_state("Again"), "Again": again, "End": {"type": "succeed"}});
    harness.publish_with("busy", &json!({"stuckAfter": "PT1M"}), &states);
    harness.start("busy", "a");
    for _ in 0..6 {
        assert_eq!((times_stuck(&harness), harness.keys(TableId::Timer)), (0, vec![]), "it is young");
        harness.advance_clock(9_000);
        harness.complete_attempt();
    }
    for _ in 0..20 {
        harness.advance_clock(9_000);
        harness.complete_attempt();
    }
    assert_eq!(times_stuck(&harness), 1);
    harness.crash();
    harness.advance_clock(9_000);
    harness.check();
    harness.finish_attempt(abide_dispatch::AttemptResult::Completed(json!({"last": true}).into()));
    assert_eq!((times_stuck(&harness), harness.status("a").as_str()), (1, "Completed"));
    harness.check();
}

#[test]
fn a_run_whose_first_attempt_never_ends_is_reported_as_stuck() {
    // Idle runs stay in memory, or do not.
    for resting_bytes_max in [usize::MAX, 0] {
        let mut harness = ShardHarness::with(|config| config.idle_bytes_max = resting_bytes_max);
        let states = json!({"Start": task_state("End"), "End": {"type": "succeed"}});
        harness.publish_with("slow", &json!({"stuckAfter": "PT10M"}), &states);
        harness.start("slow", "a");
        harness.advance_clock(590_000);
        assert_eq!(times_stuck(&harness), 0);
        assert_eq!(harness.keys(TableId::Timer).len(), 1);
        harness.check();
        harness.advance_clock(20_000);
        assert_eq!(times_stuck(&harness), 1);
        harness.advance_clock(3_600_000);
        harness.complete_attempt();
        assert_eq!((times_stuck(&harness), harness.status("a").as_str()), (1, "Completed"));
        harness.check();
    }
}

#[test]
fn a_child_is_started_once_and_its_end_reaches_its_parent_once_whatever_crashes() {
    for crash_at in 0..12 {
        let mut harness = ShardHarness::new();
        harness.publish("parent", &json!({"Start": {"type": "workflow", "workflow": "child", "input": {"id": 1}, "output": "$.state.x", "next": "End"}, "End": {"type": "succeed", "output": "$.state.x"}}));
        harness.publish(
            "child",
            &json!({"Start": task_state("End"), "End": {"type": "succeed", "output": "$.state.x"}}),
        );
        // Every commit from this one on is lost until the process crashes.
        let lost = CommitOutcome::Unavailable { reason: "dying".to_owned() };
        for _ in 0..crash_at {
            harness.outcomes.push_back(None);
        }
        harness.outcomes.push_back(Some(lost));
        let request = harness.start_request("parent", "p", None);
        let request_id = harness.request_without_waiting(request);
        while !harness.calls.is_empty() && harness.outcomes.iter().any(Option::is_some) {
            harness.complete_attempt();
        }
        let acknowledged = harness.reply_to(request_id).is_some();
        harness.outcomes.clear();
        harness.crash();
        if !acknowledged && harness.run("p").is_none() {
            harness.start("parent", "p");
        }
        harness.advance_clock(2_000);
        while !harness.calls.is_empty() {
            harness.complete_attempt();
        }
        harness.advance_clock(2_000);
        assert_eq!(harness.status("p"), "Completed", "crash at commit {crash_at}");
        harness.check();
    }
}

#[test]
fn a_child_that_cannot_start_fails_at_its_parent_and_children_end_with_their_parent() {
    let mut harness = ShardHarness::new();
    harness.publish("child", &json!({"Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "next": "End"}, "End": {"type": "succeed"}}));
    let parent = |workflow: &str| json!({"Start": {"type": "workflow", "workflow": workflow, "next": "End"}, "End": {"type": "succeed"}});
    harness.publish("lonely", &parent("nobody"));
    harness.publish("parent", &parent("child"));
    harness.start("lonely", "a");
    assert_eq!(harness.status("a"), "Failed");
    harness.start("parent", "p");
    assert_eq!(harness.status("p~1.1"), "Running");
    harness.send_message("p", Message::Terminate { reason: String::new() });
    assert_eq!(
        (harness.status("p").as_str(), harness.status("p~1.1").as_str()),
        ("Terminated", "Terminated")
    );
    harness.check();
}

#[test]
fn a_long_fan_out_goes_on_after_a_crash_in_its_middle() {
    let mut harness = ShardHarness::with(|config| {
        config.run_limits.turn.commands_max = 40;
        config.run_limits.turn.steps_max = 10;
    });
    harness.publish("map", &json!({"Start": {"type": "map", "items": "$.input.items", "output": "$.state.all", "next": "End", "iterator": {
        "startAt": "Do", "states": {"Do": task_state("Done"), "Done": {"type": "succeed", "output": "$.state.x"}}}},
        "End": {"type": "succeed", "output": "$.state.all"}}));
    let lost = CommitOutcome::Unavailable { reason: "dying".to_owned() };
    harness.outcomes.extend([None, None, Some(lost)]);
    let mut request = harness.start_request("map", "a", None);
    if let ShardRequest::Start(start) = &mut request {
        let items: Vec<u32> = (0..200).collect();
        start.input = json!({"id": "a", "items": items}).into();
    }
    harness.request_without_waiting(request);
    assert!(harness.calls.len() < 200, "{}", harness.calls.len());
    harness.outcomes.clear();
    harness.crash();
    harness.advance_clock(1_000);
    assert_eq!(harness.calls.len(), 200);
    (0..200).for_each(|_| drop(harness.complete_attempt()));
    harness.advance_clock(1_000);
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn a_drain_accepts_nothing_new_records_unsent_calls_and_releases_the_shard() {
    let mut harness = ShardHarness::new();
    harness.publish(
        "two",
        &json!({"Start": task_state("B"), "B": task_state("End"), "End": {"type": "succeed"}}),
    );
    harness.start("two", "a");
    harness.send_event(Event::Drain);
    assert_eq!(harness.stopped, None, "an attempt is in flight");
    let request = harness.start_request("two", "b", None);
    assert!(matches!(harness.request(request), ShardReply::Refused(RequestError::Draining)));
    harness.complete_attempt();
    assert_eq!(harness.stopped, Some(StopReason::Drained));
    assert_eq!(harness.calls.len(), 0, "the second call was not made");
    let head = harness.store.read_now(&harness.partition(), &heads::key()).unwrap().unwrap();
    assert!(decode::<heads::HeadRow>(&head.value).unwrap().is_released());
    let key = harness.keys(TableId::Call).remove(0);
    let call: CallRow =
        decode(&harness.store.read_now(&harness.partition(), &key).unwrap().unwrap().value).unwrap();
    assert_eq!((call.state, call.attempt), (CallRowState::Pending, 0));
    harness.crash();
    assert_eq!(harness.calls[0].1.metadata.retry_attempt, 0, "it was not sent");
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed");
}

#[test]
fn a_run_of_many_turns_is_folded_and_loads_as_it_was() {
    let mut harness = ShardHarness::new();
    let states = json!({
        "Start": {"type": "wait", "waitType": "externalEvent", "eventName": "go", "output": "$.state.last", "next": "Again"},
        "Again": {"type": "choice", "choices": [{"when": {"path": "$.state.last", "op": "eq", "value": "end"}, "next": "End"}], "default": "Start"},
        "End": {"type": "succeed"}});
    harness.publish("long", &states);
    harness.start("long", "a");
    for _ in 0..100 {
        harness.raise("a", "go");
    }
    let run = harness.run("a").unwrap();
    assert!(run.row.folded_page > PageNumber(60), "{}", run.row.folded_page);
    assert!(run.unfolded.len() < 10);
    harness.crash();
    let payload = json!("end").into();
    harness.send_message("a", Message::EventRaised { name: "go".to_owned(), payload });
    assert_eq!(harness.status("a"), "Completed");
    harness.check();
}

#[test]
fn failures_of_one_branch_do_not_disturb_another_run() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    harness.start("one", "b");
    harness.finish_attempt(failure(false));
    harness.complete_attempt();
    assert_eq!((harness.status("a").as_str(), harness.status("b").as_str()), ("Failed", "Completed"));
    let purged = harness.request(ShardRequest::Purge { instance_id: instance_id("a"), run_number: None });
    assert!(matches!(purged, ShardReply::Purged));
}

#[test]
fn attempts_withdrawn_by_many_graceful_restarts_are_neither_poison_nor_counted() {
    for (failed, dropped) in [(0, false), (0, true), (1, true)] {
        let mut harness = ShardHarness::new();
        harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
        harness.start("one", "a");
        for _ in 0..failed {
            harness.finish_attempt(failure(true));
            harness.advance_clock(60_000);
        }
        for _ in 0..7 {
            let (id, call) = harness.calls.pop_front().unwrap();
            assert_eq!((call.metadata.retry_attempt, call.probe_first), (failed, false));
            if dropped {
                harness.advance_clock(20_000);
                assert_eq!(harness.shard.resident_instances(), 0);
            }
            harness.send_events([Event::Drain, Event::AttemptWithdrawn(id)]);
            assert_eq!(harness.stopped.take(), Some(StopReason::Drained), "nothing is in flight any more");
            harness.crash();
            harness.advance_clock(1_000);
        }
        harness.complete_attempt();
        assert_eq!(harness.status("a"), "Completed");
        assert_eq!(harness.settled_calls("a")[0].attempt, failed);
        harness.advance_clock(1_000);
        harness.check();
    }
}

#[test]
fn an_attempt_that_has_a_result_or_a_successor_is_not_withdrawn() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    let (first, _) = harness.calls.front().cloned().unwrap();
    harness.finish_attempt(failure(true));
    harness.advance_clock(60_000);
    let (second, _) = harness.calls.front().cloned().unwrap();
    assert_eq!((first.attempt, second.attempt), (0, 1));
    harness.send_event(Event::AttemptWithdrawn(first));
    let row = harness.run("a").unwrap().calls.remove(0).1;
    assert_eq!((row.state, row.last_attempt_unsent), (CallRowState::Sent, false));
    harness.send_events([
        Event::AttemptFinished(second.clone(), abide_dispatch::AttemptResult::Completed(json!(1).into())),
        Event::AttemptWithdrawn(second),
    ]);
    assert_eq!(harness.status("a"), "Completed");
    harness.advance_clock(1_000);
    harness.check();
}

#[test]
fn a_shard_is_released_by_its_last_commit_and_not_before() {
    let mut harness = ShardHarness::with_limits(StoreLimits::AZURE, |_| {});
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    for number in 0..250 {
        harness.start("one", &format!("a{number}"));
    }
    let owner = |harness: &ShardHarness| {
        let head = harness.store.read_now(&harness.partition(), &heads::key()).unwrap().unwrap();
        decode::<heads::HeadRow>(&head.value).unwrap().owner
    };
    // The second of several commits fails: the head still names an owner.
    harness.outcomes.extend([None, Some(CommitOutcome::Unavailable { reason: "away".to_owned() })]);
    let waiting: Vec<Event> = harness.calls.drain(..).map(|(id, _)| Event::AttemptWithdrawn(id)).collect();
    assert_eq!(waiting.len(), 250);
    harness.send_events([Event::Drain].into_iter().chain(waiting));
    assert_eq!((owner(&harness).as_deref(), &harness.stopped), (Some("node-1"), &None));
    harness.advance_clock(10_000);
    assert_eq!((owner(&harness).as_deref(), &harness.stopped), (None, &Some(StopReason::Drained)));
    for key in harness.keys(TableId::Call) {
        let row = harness.store.read_now(&harness.partition(), &key).unwrap().unwrap();
        let call: CallRow = decode(&row.value).unwrap();
        assert_eq!((call.state, call.last_attempt_unsent), (CallRowState::FailedRetryable, true));
    }
    harness.crash();
    harness.advance_clock(10_000);
    assert_eq!(harness.calls.len(), 250);
}

#[test]
fn a_withdrawn_attempt_is_made_by_an_owner_whose_clock_is_behind() {
    let mut harness = ShardHarness::new();
    harness.publish("one", &json!({"Start": task_state("End"), "End": {"type": "succeed"}}));
    harness.start("one", "a");
    let (id, _) = harness.calls.pop_front().unwrap();
    harness.send_events([Event::Drain, Event::AttemptWithdrawn(id)]);
    harness.wall_clock_ahead_ms = -3_600_000;
    harness.crash();
    harness.advance_clock(1_000);
    harness.complete_attempt();
    assert_eq!(harness.status("a"), "Completed");
}
